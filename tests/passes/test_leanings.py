"""What is decided before memory is counted, and when copies begin: small steps counted by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
from tests_support import Line, indexed_of

from snplan.analysis.index import Choice, IndexedStep
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import build_schedule
from snplan.cost.device import load_device
from snplan.ir import Phase, Role
from snplan.passes.evict import Leanings, fit
from snplan.passes.improve import Draft
from snplan.passes.layout import Layout, make_layout, start_times
from snplan.passes.leanings import leaned
from snplan.passes.realise import sketch, step_costs
from snplan.passes.trials import Trials

GRANULE = 512
BACKWARD = Phase.BACKWARD
INPUT = Role.INPUT


def names_of(step: IndexedStep, values: list[int], residency: Residency) -> list[str]:
    return [step.names[residency.schedule.values[v].tensor] for v in values]


def away(step: IndexedStep, residency: Residency) -> list[str]:
    """Tensors with an evicted gap."""
    return names_of(step, [v for v, gaps in enumerate(residency.evicted) if gaps], residency)


def two_saved() -> IndexedStep:
    """a (4 granules) and e (2) are saved for ops 6 and 5; at ops 3 and 4 there are 14 granules with both of them."""
    lines = [
        Line(name="fa", reads=("x",), writes=("a",)),
        Line(name="fb", reads=("a",), writes=("b",)),
        Line(name="fe", reads=("b",), writes=("e", "g")),
        Line(name="conv", reads=("g",), writes=("c",)),
        Line(name="top", reads=("c",), writes=("dc",), phase=BACKWARD),
        Line(name="ge", reads=("e", "dc"), writes=("de",), phase=BACKWARD),
        Line(name="ga", reads=("a", "de"), writes=("dx",), phase=BACKWARD),
    ]
    sizes = {"x": 4, "a": 4, "b": 2, "e": 2, "g": 4, "c": 4, "dc": 4, "de": 2, "dx": 4}
    return indexed_of(lines, granules=sizes, sources={"x": INPUT}, outputs=("dx",))


@pytest.mark.parametrize(
    ("staying", "leaving", "expected"),
    [("", "", ["a"]), ("a", "", ["e"]), ("", "e", ["e"]), ("", "ae", ["a", "e"]), ("ae", "", ["a"])],
)
def test_what_stays_goes_last_and_what_leaves_goes_in_any_case(staying: str, leaving: str, expected: list[str]) -> None:
    step = two_saved()
    ids = {name: i for i, name in enumerate(step.names)}
    leanings = Leanings(staying=frozenset(ids[n] for n in staying), leaving=frozenset(ids[n] for n in leaving))
    residency = Residency(build_schedule(step))
    assert fit(residency, 12 * GRANULE, leanings=leanings)
    assert away(step, residency) == expected
    assert int(residency.live.max()) <= 12 * GRANULE


def test_an_op_that_is_slowed_leaves_its_workspace_to_others() -> None:
    step = two_saved()
    engines = list(step.engines)
    engines[3] = (Choice(0, 0, 30), Choice(1, 4 * GRANULE, 10))
    step = replace(step, engines=engines)
    for leanings, engine in ((Leanings(), 1), (Leanings(slowed=frozenset({(3, 0)})), 0)):
        residency = Residency(build_schedule(step))
        assert fit(residency, 14 * GRANULE, leanings=leanings)
        assert residency.engine[3] == engine
        assert away(step, residency) == (["a"] if engine else [])
        layout = make_layout(residency, 14 * GRANULE, lambda size: 1)
        assert start_times(layout) == list(accumulate([10, 10, 10, 10 if engine else 30, 10, 10, 10], initial=0))


def updated() -> IndexedStep:
    """Parameter w (4 granules) is read by op 0, updated in place by op 3; op 1 has a workspace of 8 or 0."""
    lines = [
        Line(name="fw", reads=("x", "w"), writes=("a",)),
        Line(name="conv", reads=("a",), writes=("c",)),
        Line(name="top", reads=("c",), writes=("dw",), phase=BACKWARD),
        Line(name="up", reads=("w", "dw"), writes=("wn",), phase=Phase.UPDATE, kind="sgd_update"),
    ]
    step = indexed_of(
        lines,
        granules=dict.fromkeys(("x", "w", "a", "c", "dw", "wn"), 4),
        sources={"x": INPUT, "w": Role.PARAMETER},
        becomes={"w": "wn"},
    )
    return replace(step, engines=[(), (Choice(0, 0, 30), Choice(1, 8 * GRANULE, 10)), (), ()])


# With w there are 12 granules at op 1, 20 with the workspace, 16 with the workspace alone.
@pytest.mark.parametrize(("granules", "engine", "moved"), [(14, 0, []), (16, 1, ["w", "wn"]), (20, 1, [])])
def test_a_parameter_that_fits_after_all_comes_home(granules: int, engine: int, moved: list[str]) -> None:
    step = updated()
    residency = Residency(build_schedule(step))
    before = residency.live.copy()
    assert fit(residency, granules * GRANULE)
    assert residency.engine[1] == engine
    assert away(step, residency) == moved
    assert bool(residency.in_host) is bool(moved)
    if not moved:
        assert (before - residency.live).tolist() == [0, 0 if engine else 8 * GRANULE, 0, 0]


def test_bringing_home_undoes_all_evictions_of_a_parameter() -> None:
    residency = Residency(build_schedule(updated()))
    before = residency.live.tolist()
    source, last = residency.partner[1]
    residency.evict(source, 1)
    assert residency.starts_in_host(source)
    assert residency.ends_in_host(last)
    assert {(gap.value, gap.index) for gap in residency.away(last)} == {(source, 0), (source, 1), (last, 0)}
    residency.bring_home(last)
    assert residency.live.tolist() == before
    assert not residency.in_host
    assert not residency.away(source)


def fetching() -> IndexedStep:
    """w1 (4 granules) is read by op 2, w2 and w3 (2 each) by op 3; without them 8, 8, 2, 2 granules are there."""
    lines = [
        Line(name="p0", reads=("x",), writes=("a",)),
        Line(name="p1", reads=("a",), writes=("b",)),
        Line(name="p2", reads=("b", "w1"), writes=("c",)),
        Line(name="p3", reads=("c", "w2", "w3"), writes=("d",)),
    ]
    sizes = {"x": 1, "a": 7, "b": 1, "c": 1, "d": 1, "w1": 4, "w2": 2, "w3": 2}
    return indexed_of(lines, granules=sizes, sources=dict.fromkeys(("x", "w1", "w2", "w3"), INPUT), outputs=("d",))


# w1 finds room at position 2 (20 us) only. With copies of 8 us w2 is wanted at 14 us and done at 18 us, with
# copies of 12 us at 6 us and done at 12 us; with copies of 25 us it would keep the link from w1 until 25 us.
@pytest.mark.parametrize(("us", "second"), [(8, 1), (12, 0), (25, 2), (1000, 2)])
def test_what_is_used_later_does_not_keep_the_link_from_what_waits_for_room(us: int, second: int) -> None:
    step = fetching()
    residency = Residency(build_schedule(step))
    for value in (1, 2, 3):
        residency.evict(value, 0)
    assert (residency.live // GRANULE).tolist() == [8, 8, 6, 6]
    layout = make_layout(residency, 10 * GRANULE, lambda size: us)
    begins = dict(zip(names_of(step, [c.value for c in layout.prefetches], residency), positions(layout), strict=True))
    assert begins == {"w1": 2, "w2": second, "w3": 2}


def positions(layout: Layout) -> list[int]:
    return [copy.position for copy in layout.prefetches]


def test_an_input_leaves_from_the_start_of_the_step() -> None:
    """Its copy of 15 us is done while op 1 runs (10 to 20 us), not 15 us after op 0."""
    lines = [
        Line(name="p0", reads=("x",), writes=("a",)),
        Line(name="p1", reads=("a",), writes=("b",)),
        Line(name="p2", reads=("b",), writes=("c",)),
        Line(name="p3", reads=("c", "x"), writes=("d",)),
    ]
    residency = Residency(build_schedule(indexed_of(lines, sources={"x": INPUT}, outputs=("d",))))
    residency.evict(0, 1)
    layout = make_layout(residency, 100 * GRANULE, lambda size: 15)
    assert [copy.position for copy in layout.offloads] == [0]
    assert layout.buffers[layout.stay_buffer[0][0]].stop == 2


def big_two_saved() -> IndexedStep:
    """`two_saved` with tensors of MiB, and a slow engine without a workspace for op 3."""
    step = two_saved()
    engines = list(step.engines)
    engines[3] = (Choice(0, 0, 30), Choice(1, 8192 * GRANULE, 10))
    return replace(step, size=[size * 2048 for size in step.size], engines=engines)


def test_a_stall_suggests_what_stays_what_leaves_and_a_slower_engine() -> None:
    step = big_two_saved()
    costs = step_costs(step, load_device("h200"))
    budget = 12 * 2048 * GRANULE
    draft = Draft()
    found = sketch(build_schedule(step), budget, costs)
    assert found is not None
    groups = list(leaned(draft, found, costs, budget))
    near = [change for group in groups for change in group]
    assert near
    assert draft not in near
    assert all(change.dropped == draft.dropped for change in near)
    assert any(change.leanings.staying for change in near)
    assert groups[-1] == []
    back = list(leaned(near[0], found, costs, budget))[-1]
    assert back == [draft]


def test_drafts_that_differ_in_leanings_share_a_schedule() -> None:
    step = big_two_saved()
    trials = Trials(step=step, costs=step_costs(step, load_device("h200")), target=12 * 2048 * GRANULE, allowance=100)
    plain = Draft()
    assert trials.schedule(plain) is trials.schedule(plain.leaning(staying=frozenset({1})))
    assert trials.schedule(plain) is not trials.schedule(plain.dropping((step.names.index("a"),)))
