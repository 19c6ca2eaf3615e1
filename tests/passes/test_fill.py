"""Orders that fill stalls, drafts by random changes, and tensors that leave and return: small steps counted by hand."""

from __future__ import annotations

import pytest
from solver.steps import budgets, random_graph, slow_link, step_of
from tests_support import Line, indexed_of

from snplan.analysis.floor import floor
from snplan.analysis.index import IndexedStep
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import build_schedule, saved_tensors
from snplan.cost.device import load_device
from snplan.ir import Phase, Role
from snplan.passes.evict import Leanings, fit
from snplan.passes.fill import orders, refilled, renumbered
from snplan.passes.improve import Draft
from snplan.passes.layout import make_layout
from snplan.passes.realise import Costs, realise, sketch, step_costs
from snplan.passes.trials import Trials
from snplan.passes.wander import wander

GRANULE = 512
BACKWARD, UPDATE = Phase.BACKWARD, Phase.UPDATE


BUDGET = 18 * 512 * GRANULE
ORDER = [0, 1, 3, 2, 5, 4]  # fc, top, dw, side, last, update


def weighted(kind: str = "sgd_update") -> IndexedStep:
    """W (2 MiB) is read by `fc`, has no room beside its gradient while `dw` runs, and is updated in place after it.

    `side` and `last` need neither. The input x has three eighths of W's bytes, others one.
    """
    lines = [
        Line(name="fc", reads=("x", "W"), writes=("a",), us=100),
        Line(name="top", reads=("a",), writes=("da",), phase=BACKWARD),
        Line(name="side", reads=("da",), writes=("s",), phase=BACKWARD),
        Line(name="dw", reads=("da", "x"), writes=("dW",), phase=BACKWARD),
        Line(name="update", reads=("W", "dW"), writes=("W:next",), phase=UPDATE, kind=kind),
        Line(name="last", reads=("s",), writes=("t",), phase=BACKWARD),
    ]
    sizes = {"x": 1536} | dict.fromkeys(("a", "da", "s", "t"), 512) | dict.fromkeys(("W", "dW", "W:next"), 4096)
    sources = {"x": Role.INPUT, "W": Role.PARAMETER}
    return indexed_of(lines, granules=sizes, sources=sources, outputs=("t",), becomes={"W": "W:next"})


def costs_of(step: IndexedStep) -> Costs:
    return step_costs(step, load_device("h200"))


def trials_of(step: IndexedStep) -> Trials:
    return Trials(step=step, costs=costs_of(step), target=BUDGET, allowance=1000)


def coming(step: IndexedStep) -> Leanings:
    return Leanings(coming=frozenset({step.names.index("W")}))


@pytest.mark.parametrize("returns", [False, True])
def test_a_weight_that_leaves_starts_and_ends_in_host_memory_unless_it_returns(returns: bool) -> None:
    step = weighted()
    residency = Residency(build_schedule(step))
    assert fit(residency, BUDGET, leanings=coming(step) if returns else Leanings())
    weight = step.sources.index(step.names.index("W"))
    assert (weight in residency.in_host) is not returns
    assert residency.starts_in_host(weight) is not returns
    assert 1 in residency.evicted[weight]  # between its use by `fc` and its update
    layout = make_layout(residency, BUDGET, costs_of(step).copy_us)
    assert len(layout.tied()) == returns


def test_what_returns_ends_in_the_bytes_in_which_it_started_and_saves_the_copies_at_both_ends() -> None:
    step = weighted()
    schedule, costs = build_schedule(step), costs_of(step)
    home = realise(schedule, BUDGET, BUDGET, costs)
    back = realise(schedule, BUDGET, BUDGET, costs, coming(step))
    assert home is not None
    assert back is not None
    ((first, last),) = back.layout.tied()
    assert first != last
    assert back.offsets[first] == back.offsets[last]
    (start,) = [place for place in back.body.resident if place.tensor == "W"]
    (end,) = back.body.persistent
    assert (start.buffer, end.buffer) == (first, last)
    # W is 2 MiB: 46 us from the host for `fc`. Back for `update` it comes in either case; out, at the end or hidden.
    assert back.step_us <= home.step_us - 46


def test_a_weight_whose_update_is_not_in_place_does_not_return() -> None:
    step = weighted(kind="concat")
    residency = Residency(build_schedule(step))
    residency.let_return(step.sources.index(step.names.index("W")))
    assert not residency.returning


def test_ops_that_what_waits_does_not_need_run_meanwhile() -> None:
    step = weighted()
    found = trials_of(step).sketch(Draft(leanings=coming(step)))
    assert found is not None
    assert ORDER in list(orders(found, costs_of(step)))


def test_a_step_in_an_order_that_fills_its_stall_is_faster_by_what_was_moved() -> None:
    step = weighted()
    trials, draft = trials_of(step), Draft(leanings=coming(step))
    before = trials.time(draft)
    found = refilled(trials, draft)
    assert found is not None
    order = [step.ops.index(op) for op in found[0].ops]
    assert order == ORDER
    assert trials_of(found[0]).time(found[1]) == before - 20  # `side` and `last`, 10 us each, while W comes


def test_leanings_on_ops_follow_them_into_a_new_order() -> None:
    leanings = Leanings(patient=frozenset({3}), slowed=frozenset({(2, 1)}), staying=frozenset({7}))
    moved = renumbered(Draft(leanings=leanings), ORDER).leanings
    assert moved == Leanings(patient=frozenset({2}), slowed=frozenset({(3, 1)}), staying=frozenset({7}))


def test_random_changes_are_the_same_every_time_and_lose_nothing() -> None:
    step = weighted()
    times = []
    for _ in range(2):
        trials = trials_of(step)
        start = trials.time(Draft())
        wander(trials, 1000)
        best = trials.ranked()[0]
        found = sketch(trials.schedule(best), BUDGET, trials.costs, best.leanings)
        assert found is not None
        assert found.step_us == trials.times[best] < start
        times.append(trials.times)
    assert times[0] == times[1]


def test_random_changes_end_where_nothing_can_change() -> None:
    step = weighted()
    trials = Trials(step=step, costs=costs_of(step), target=1 << 40, allowance=1)  # no tensor is large beside that
    before = trials.time(Draft())
    wander(trials, 1000)
    assert trials.times == {Draft(): before}


@pytest.mark.parametrize("seed", [1, 2, 4, 5, 6, 7, 9, 10, 12])
def test_an_order_has_every_op_once_and_after_what_it_needs(seed: int) -> None:
    step = step_of(random_graph(12, seed), seed)
    costs = step_costs(step, slow_link())
    tried = 0
    for target in budgets(step, floor(step).bytes * 2, 4):
        trials = Trials(step=step, costs=costs, target=target, allowance=200)
        for draft in (Draft(), Draft(dropped=frozenset(saved_tensors(step)))):
            found = trials.sketch(draft)
            for order in orders(found, costs) if found is not None else ():
                tried += 1
                assert sorted(order) == list(range(len(step.ops)))
                place = {op: position for position, op in enumerate(order)}
                for op, reads in enumerate(step.reads):
                    assert all(step.producer[t] < 0 or place[step.producer[t]] < place[op] for t in reads)
                    replaced = [step.producer[step.becomes[t]] for t in reads if t in step.becomes]
                    assert all(writer < 0 or place[op] <= place[writer] for writer in replaced)
    assert tried
