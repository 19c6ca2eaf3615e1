"""Lower bounds: worked out by hand on small steps, and against all choices for the items of a cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snplan.analysis.index import Choice, IndexedStep, index_step
from snplan.cost import bounds
from snplan.cost.bounds import (
    Absence,
    Way,
    absent_ticks,
    copies_us,
    engine_bound_us,
    fitting_us,
    least_late_us,
    leaving_absence,
    link_bound_us,
    lower_bound_us,
    returning_absence,
    ways,
)
from snplan.cost.cuts import NEVER, Cut, Cutter
from snplan.cost.device import load_device
from snplan.ir import DType, Graph, Op, Phase, Role, Spec, Step, Tensor

KB, MB = 1 << 10, 1 << 20
TICKS = 1 << 20
# 1 us a KiB one way, 4/3 us each way when both run; no latency.
LINK = replace(
    load_device("h200"),
    h2d_bytes_per_s=1024 * 10**6,
    d2h_bytes_per_s=1024 * 10**6,
    h2d_both_bytes_per_s=768 * 10**6,
    d2h_both_bytes_per_s=768 * 10**6,
    copy_latency_us=0,
)


def chain(sizes: Sequence[int]) -> Step:
    """x -> a0 -> a1 ...; backward op b_i reads a_i and the gradient of the one after it. Sizes in bytes of each a_i."""
    tensors = {"x": Tensor(name="x", spec=Spec(DType.UINT8, (KB,)), role=Role.INPUT)}
    ops = []
    last = "x"
    for i, size in enumerate(sizes):
        tensors[f"a{i}"] = Tensor(name=f"a{i}", spec=Spec(DType.UINT8, (size,)))
        ops.append(Op(name=f"f{i}", kind="tanh", inputs=(last,), outputs=(f"a{i}",)))
        last = f"a{i}"
    for i in reversed(range(len(sizes))):
        tensors[f"g{i}"] = Tensor(name=f"g{i}", spec=Spec(DType.UINT8, (sizes[i],)), role=Role.GRADIENT)
        inputs = (f"a{i}",) if last == f"a{i}" else (f"a{i}", last)
        ops.append(Op(name=f"b{i}", kind="tanh_grad", inputs=inputs, outputs=(f"g{i}",), phase=Phase.BACKWARD))
        last = f"g{i}"
    graph = Graph(tensors=tensors, ops=tuple(ops), sources=("x",), outputs=(last,))
    return Step(graph=graph, loss=None, inputs=("x",), gradients={}, becomes={})


def cut_of(step: Step, times: Sequence[int], op: int) -> Cut:
    return Cutter(step=index_step(step, times), us=list(times)).at(op)


def items(cut: Cut) -> list[tuple[int, int, int, int, int, bool]]:
    """(size, moved, again, made, due, both) of each item."""
    columns = (cut.size, cut.moved, cut.again, cut.made, cut.due, cut.both)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def made_cut(rows: Sequence[tuple[int, int, int, int]], **totals: int) -> Cut:
    """A cut whose items are (size, again, made, due), all of which go both ways."""
    columns = [np.asarray(column, np.int64) for column in zip(*rows, strict=True)]
    size, again, made, due = columns or [np.zeros(0, np.int64)] * 4
    values = {"op": 0, "here": 0, "before": 0, "after": 0, **totals}
    parts = np.zeros(len(size), np.bool_)
    return Cut(**values, size=size, moved=size, again=again, made=made, due=due, both=~parts, whole=parts)


def test_copies_of_one_direction() -> None:
    assert copies_us(5 * KB, 0, LINK) == 5
    assert copies_us(0, 7 * KB, LINK) == 7


def test_copies_of_both_directions_overlap_where_that_pays() -> None:
    # 6 KiB each way at 768 B/us: 8 us; one after the other it would be 12.
    assert copies_us(6 * KB, 6 * KB, LINK) == pytest.approx(8)
    # After 8 us 6 KiB of the larger are gone, the rest goes alone.
    assert copies_us(16 * KB, 6 * KB, LINK) == pytest.approx(18)


def test_a_link_that_halves_gains_nothing_from_overlap() -> None:
    half = replace(LINK, h2d_both_bytes_per_s=512 * 10**6, d2h_both_bytes_per_s=512 * 10**6)
    assert copies_us(8 * KB, 8 * KB, half) == pytest.approx(16)


def test_without_a_budget_the_bound_is_the_sum() -> None:
    assert lower_bound_us(index_step(chain([KB, KB]), [1, 2, 3, 4]), LINK) == 10


def test_a_large_budget_adds_nothing() -> None:
    assert lower_bound_us(index_step(chain([KB] * 6), [5] * 12), LINK, 10**9) == 60


def test_cut_in_the_middle_of_a_chain() -> None:
    # b2 reads a2 and writes g2 in its place; a0 and a1 wait for b0 (6 us) and b1 (5 us, and b0 after it).
    cut = cut_of(chain([512, 1024, 1536]), [9, 2, 3, 4, 5, 6], 3)
    assert (cut.here, cut.before, cut.after, cut.bytes) == (1536, 14, 11, 3072)
    assert items(cut) == [(512, 512, 9, 9, 6, True), (1024, 1024, 2, 11, 11, True)]


def test_buffers_are_whole_granules_and_copies_are_not() -> None:
    cut = cut_of(chain([100, 700, 700]), [1] * 6, 3)
    assert [(size, moved) for size, moved, *_ in items(cut)] == [(512, 100), (1024, 700)]


def test_an_output_that_fits_two_inputs_is_in_place_once() -> None:
    # b1 reads a1 and g2 and writes g1 in place of either.
    assert cut_of(chain([512] * 3), [1] * 6, 4).here == 1024


def test_an_input_that_is_read_again_may_wait_in_host_memory() -> None:
    tensors = {n: Tensor(name=n, spec=Spec(DType.UINT8, (KB,))) for n in ("y", "z", "g")}
    tensors["x"] = Tensor(name="x", spec=Spec(DType.UINT8, (2 * KB,)), role=Role.INPUT)
    ops = (
        Op(name="f", kind="tanh", inputs=("x",), outputs=("y",)),
        Op(name="m", kind="tanh", inputs=("y",), outputs=("z",)),
        Op(name="b", kind="tanh_grad", inputs=("x", "z"), outputs=("g",), phase=Phase.BACKWARD),
    )
    graph = Graph(tensors=tensors, ops=ops, sources=("x",), outputs=("g",))
    step = Step(graph=graph, loss=None, inputs=("x",), gradients={}, becomes={})
    assert items(cut_of(step, [1, 2, 3], 1)) == [(2 * KB, 2 * KB, NEVER, NEVER, 3, False)]


def test_gradients_and_results_cannot_be_made_again() -> None:
    # During `mid`, gradient g waits for `end`, and h is a result that nothing reads any more.
    tensors = {name: Tensor(name=name, spec=Spec(DType.UINT8, (KB,))) for name in ("x", "g", "h", "k", "y")}
    ops = (
        Op(name="g", kind="tanh", inputs=("x",), outputs=("g",), phase=Phase.BACKWARD),
        Op(name="h", kind="tanh", inputs=("g",), outputs=("h",), phase=Phase.BACKWARD),
        Op(name="mid", kind="concat", inputs=("h",), outputs=("k",), attrs={"axis": 0}, phase=Phase.BACKWARD),
        Op(name="mid2", kind="tanh", inputs=("k",), outputs=("y",), phase=Phase.BACKWARD),
        Op(name="end", kind="add", inputs=("g", "y"), outputs=("z",), phase=Phase.BACKWARD),
    )
    tensors["z"] = Tensor(name="z", spec=Spec(DType.UINT8, (KB,)))
    graph = Graph(tensors=tensors, ops=ops, sources=("x",), outputs=("z", "h"))
    step = Step(graph=graph, loss=None, inputs=("x",), gradients={}, becomes={})
    cut = cut_of(step, [1, 2, 4, 8, 16], 3)
    assert items(cut) == [(KB, KB, NEVER, 1, 16, True), (KB, KB, NEVER, 3, NEVER, False)]


def updated() -> Step:
    """f reads w, b makes its gradient, u updates w (1000 bytes) and `late` runs after the update."""
    spec = Spec(DType.FLOAT32, (250,))
    tensors = {name: Tensor(name=name, spec=spec) for name in ("x", "w", "frozen", "y", "g", "w:next", "t")}
    ops = (
        Op(name="f", kind="add", inputs=("x", "frozen"), outputs=("y",)),
        Op(name="b", kind="tanh", inputs=("y",), outputs=("g",), phase=Phase.BACKWARD),
        Op(name="u", kind="sgd_update", inputs=("w", "g"), outputs=("w:next",), phase=Phase.UPDATE),
        Op(name="late", kind="tanh", inputs=("w:next",), outputs=("t",), phase=Phase.UPDATE),
        Op(name="last", kind="tanh", inputs=("t",), outputs=("t2",), phase=Phase.UPDATE),
    )
    tensors["t2"] = Tensor(name="t2", spec=spec)
    graph = Graph(tensors=tensors, ops=ops, sources=("x", "w", "frozen"), outputs=())
    becomes = {"w": "w:next", "frozen": "frozen"}
    return Step(graph=graph, loss=None, inputs=("x",), gradients={"w": "g"}, becomes=becomes)


def test_a_persistent_tensor_is_somewhere_all_the_time() -> None:
    step, times = updated(), [1, 2, 4, 8, 16]
    # Before the update the old value comes back for it; after it the new one leaves, made at 7 us.
    assert items(cut_of(step, times, 0)) == [(1024, 1000, NEVER, NEVER, 28, True)]
    assert items(cut_of(step, times, 2)) == []
    assert items(cut_of(step, times, 4)) == [(1024, 1000, NEVER, 7, NEVER, True)]


def test_a_persistent_tensor_of_an_update_elsewhere_in_the_order() -> None:
    step = updated()
    tensors = {**step.graph.tensors, "aside": Tensor(name="aside", spec=Spec(DType.FLOAT32, (250,)))}
    aside = Op(name="aside", kind="tanh", inputs=("x",), outputs=("aside",))
    graph = replace(step.graph, tensors=tensors, ops=(*step.graph.ops, aside))
    assert items(cut_of(replace(step, graph=graph), [1] * 6, 5)) == [(1024, 1000, NEVER, NEVER, NEVER, True)]


def test_outputs_of_one_op_are_made_again_together() -> None:
    tensors = {n: Tensor(name=n, spec=Spec(DType.UINT8, (KB,))) for n in ("x", "mid", "g")}
    tensors |= {n: Tensor(name=n, spec=Spec(DType.UINT8, (size,))) for n, size in (("p", 2 * KB), ("q", 256))}
    ops = (
        Op(name="f", kind="tanh", inputs=("x",), outputs=("p", "q")),
        Op(name="m", kind="tanh", inputs=("p",), outputs=("mid",)),
        Op(name="n", kind="tanh", inputs=("mid",), outputs=("n",)),
        Op(name="b", kind="tanh_grad", inputs=("p", "n"), outputs=("g",), phase=Phase.BACKWARD),
        Op(name="c", kind="tanh_grad", inputs=("q", "g"), outputs=("h",), phase=Phase.BACKWARD),
    )
    tensors |= {n: Tensor(name=n, spec=Spec(DType.UINT8, (KB,))) for n in ("n", "h")}
    graph = Graph(tensors=tensors, ops=ops, sources=("x",), outputs=("h",))
    step = Step(graph=graph, loss=None, inputs=("x",), gradients={}, becomes={})
    # q's copy moves half of its buffer, so at least half of the item's 2560 bytes; c, 16 us, is the last to wait.
    [(size, moved, again, made, due, both)] = items(cut_of(step, [1, 2, 4, 8, 16], 2))
    assert (size, again, made, due, both) == (2560, 1, 1, 16, True)
    assert 1279 <= moved <= 1280


def hidden_step(small: int = KB) -> Step:
    """x -> h (of `small` bytes) -> i -> t; only t is read again, by b."""
    sizes = {"x": KB, "h": small, "i": KB, "t": KB, "m": KB, "n": KB, "g": KB}
    tensors = {name: Tensor(name=name, spec=Spec(DType.UINT8, (size,))) for name, size in sizes.items()}
    ops = (
        Op(name="h", kind="tanh", inputs=("x",), outputs=("h",)),
        Op(name="i", kind="tanh", inputs=("h",), outputs=("i",)),
        Op(name="t", kind="relu", inputs=("i",), outputs=("t",)),
        Op(name="m", kind="tanh", inputs=("t",), outputs=("m",)),
        Op(name="n", kind="tanh", inputs=("m",), outputs=("n",)),
        Op(name="b", kind="tanh_grad", inputs=("t", "n"), outputs=("g",), phase=Phase.BACKWARD),
    )
    graph = Graph(tensors=tensors, ops=ops, sources=("x",), outputs=("g",))
    return Step(graph=graph, loss=None, inputs=("x",), gradients={}, becomes={})


def test_what_is_made_of_something_as_large_that_nothing_else_reads() -> None:
    # To keep i or h is no better than to keep t: all three ops run again, or h leaves, which is there after 16 us.
    assert items(cut_of(hidden_step(), [16, 8, 1, 1, 1, 1], 4)) == [(KB, KB, 25, 16, 1, True)]


def test_what_is_made_of_something_smaller() -> None:
    # h takes half of the room, so that to keep it may pay: only t and i are sure to run again.
    assert items(cut_of(hidden_step(512), [16, 8, 1, 1, 1, 1], 4)) == [(KB, KB, 9, 24, 1, True)]


def test_what_has_another_forward_reader_may_be_kept_for_both() -> None:
    step = hidden_step()
    tensors = {**step.graph.tensors, "u": Tensor(name="u", spec=Spec(DType.UINT8, (KB,)))}
    other = Op(name="u", kind="tanh", inputs=("i",), outputs=("u",))
    graph = replace(step.graph, tensors=tensors, ops=(*step.graph.ops[:3], other, *step.graph.ops[3:]))
    assert items(cut_of(replace(step, graph=graph), [16, 8, 1, 1, 1, 1, 1], 5)) == [(KB, KB, 1, 25, 1, True)]


def test_little_is_won_where_copies_may_begin_much_earlier() -> None:
    # i takes 1 us, and leaves 9 us before t would: a window of 9 us is worth more than 1 us of recompute.
    assert items(cut_of(hidden_step(), [16, 1, 9, 1, 1, 1], 4)) == [(KB, KB, 9, 26, 1, True)]


def test_link_alone() -> None:
    # 72 KiB too many, none of which can be made again: 72 KiB each way at 768 B/us are 96 us.
    cut = made_cut([(90 * KB, NEVER, 0, 0)])
    assert link_bound_us(cut, 30, 72 * KB, LINK) in (95, 96)
    assert link_bound_us(cut, 500, 72 * KB, LINK) == 500


def test_recompute_and_link_share_the_excess() -> None:
    # 72 KiB, 4/3 us a KiB to copy, 1 us a KiB to make again: 30 + d = 4/3 (72 - d) at d = 28.3: 58.3 us.
    assert link_bound_us(made_cut([(90 * KB, 90, 0, 0)]), 30, 72 * KB, LINK) == 58


def test_recompute_is_limited_to_what_can_be_made_again() -> None:
    # Only 12 KiB can be (for 1 us); 60 KiB must be copied: 80 us.
    cut = made_cut([(12 * KB, 1, 0, 0), (80 * KB, NEVER, 0, 0)])
    assert link_bound_us(cut, 30, 72 * KB, LINK) in (79, 80)


def test_what_goes_one_way_only_is_absent_for_nothing() -> None:
    cut = made_cut([(60 * KB, NEVER, 0, 0), (12 * KB, NEVER, NEVER, 0)])
    one_way = replace(cut, both=np.array([True, False]))
    assert link_bound_us(one_way, 30, 72 * KB, LINK) in (79, 80)


# a0 (4 KiB, there after 9 us, 9 us again) and a1 (8 KiB, there after 11 us, 2 us again) at an op of 4 us with 14 us
# before it and 11 after.
TWO = made_cut([(4 * KB, 9, 9, 6), (8 * KB, 2, 11, 11)], before=14, after=11)


def test_windows_before_the_op() -> None:
    # The op begins no later than 29 - 4 - 11 = 14 us: 5 us for a0 and a1, 3 of them for a1. They take 4 and 8 us.
    absence = leaving_absence(TWO, 14, LINK)
    assert absence.granules.tolist() == [8, 16]
    assert (absence.cost // TICKS).tolist() == [4, 2]  # late by 4 us rather than 9 us again; 2 us again
    assert (absence.link // TICKS).tolist() == [4, 8]
    assert (absence.room // TICKS).tolist() == [5, 3]


def test_bound_of_two_items_that_must_both_go() -> None:
    # a0 fills 4 of the 5 us, one eighth of a1 the rest; seven eighths of it are made again: 1.75 us.
    assert engine_bound_us(TWO, 29, 4, 12 * KB, LINK) == 31
    # 4 KiB go for nothing.
    assert engine_bound_us(TWO, 29, 4, 4 * KB, LINK) == 29


def test_a_tensor_is_absent_as_a_whole() -> None:
    # Of 4 KiB that leave 4 us too late 1 KiB is too many: a quarter of that where it had parts.
    parts = made_cut([(4 * KB, NEVER, 14, NEVER)], before=14, after=11)
    one_way = replace(parts, both=np.array([False]))
    assert engine_bound_us(one_way, 29, 4, KB, LINK) == 29 + 1
    assert engine_bound_us(replace(one_way, whole=np.array([True])), 29, 4, KB, LINK) == 29 + 4
    assert engine_bound_us(replace(one_way, whole=np.array([True])), 29, 4, 4 * KB, LINK) == 29 + 4


def test_windows_after_the_op() -> None:
    # 29 - 4 - 14 = 11 us after it; the last 6 are after a0's readers, the last 11 after a1's. Half of each cost counts.
    absence = returning_absence(TWO, 11, LINK, 2)
    assert (absence.cost / TICKS).tolist() == [2, 1]
    assert (absence.room // TICKS).tolist() == [5, 0]
    assert returning_absence(TWO, 11, LINK, 1).cost.tolist() == [0, 0]


def test_what_cannot_be_made_again_is_late_on_both_sides() -> None:
    # 8 KiB that are there after 5 us of 10: 3 us late. On the way back 6 of 10 us are too late: 4 us late.
    cut = made_cut([(8 * KB, NEVER, 5, 6)], before=10, after=10)
    assert engine_bound_us(cut, 22, 2, 8 * KB, LINK) == 22 + 4
    assert engine_bound_us(replace(cut, due=cut.due - 6), 22, 2, 8 * KB, LINK) == 22 + 3


def test_latency_is_time_on_the_link() -> None:
    late = replace(LINK, copy_latency_us=7)
    cut = made_cut([(8 * KB, NEVER, 5, NEVER)], before=10, after=10)
    assert engine_bound_us(replace(cut, both=np.array([False])), 22, 2, 8 * KB, late) == 22 + 10


def test_rates_that_are_no_whole_bytes_a_microsecond() -> None:
    slow = replace(LINK, d2h_bytes_per_s=1_500_001)
    absence = leaving_absence(made_cut([(1024, NEVER, 0, 0)]), 0, slow)
    assert 0 < absence.link[0] <= 1024 * 10**6 * TICKS // 1_500_001


def test_bound_of_a_chain() -> None:
    # Eight activations of 1 MiB, 16 ops of 100 us, budget 3 MiB. The first backward op (in place) needs 8 MiB: 5 too
    # many, 100 us a MiB to make again, and 700 us of the link for nothing, 700 / 1024 MiB: 1600 + 500 - 68.4 us.
    step = index_step(chain([MB] * 8), [100] * 16)
    assert lower_bound_us(step, LINK, 3 * MB) == 2032


def test_engines_that_never_fit_do_not_count() -> None:
    engines = {1: [Choice(0, 0, 9), Choice(1, 4 * KB, 6), Choice(2, 16 * KB, 2)]}
    step = index_step(chain([KB] * 3), [1, 2, 1, 1, 1, 1], engines)
    # f1 reads a0 and writes a1 in its place: 1 KiB; 4 KiB more fit into 5 KiB, 16 KiB do not.
    assert fitting_us(step, 5 * KB) == [1, 6, 1, 1, 1, 1]
    assert lower_bound_us(step, LINK, 5 * KB) == 11
    assert fitting_us(step, 17 * KB) == [1, 2, 1, 1, 1, 1]


def late_ways(step: IndexedStep, budget: int) -> list[Way]:
    """The ways of b2, the fourth op, where nothing is copied: 1024 us a KiB."""
    slow = replace(LINK, d2h_bytes_per_s=10**6, d2h_both_bytes_per_s=10**6)
    us = fitting_us(step, budget)
    return ways(step, us, Cutter(step=step, us=us).at(3), slow, budget)


def test_an_engine_is_paid_for_by_what_it_drives_out() -> None:
    # Beside b2 and its engine of 4 KiB, a0 and a1 (1 KiB each) do not fit into 5 KiB: both are made again, for 20 us
    # each, or the engine without workspace takes 10 us more.
    engines = {3: [Choice(0, 0, 11), Choice(1, 4 * KB, 1)]}
    step = index_step(chain([KB] * 3), [20, 20, 1, 1, 1, 1], engines)
    assert late_ways(step, 5 * KB) == [Way(0, 40), Way(10, 10)]
    # One KiB more, and a1 alone goes, made again for 2 us.
    cheap = index_step(chain([KB] * 3), [20, 2, 1, 1, 1, 1], engines)
    assert late_ways(cheap, 6 * KB) == [Way(0, 2), Way(10, 10)]
    # All fits.
    assert late_ways(cheap, 7 * KB) == [Way(0, 0)]


def test_what_ops_are_slower_by_adds_up() -> None:
    assert least_late_us([]) == least_late_us([[]]) == 0
    assert least_late_us([[Way(0, 4)], [Way(0, 2)]]) == 4
    # Both fast: 9 us. Both slow: 3 + 2.
    assert least_late_us([[Way(0, 9), Way(3, 3)], [Way(0, 9), Way(2, 2)]]) == 5
    # The first fast is late by 6, with both slow it would be 8.
    assert least_late_us([[Way(0, 6), Way(5, 5)], [Way(0, 9), Way(3, 3)]]) == 6


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), min_size=1, max_size=3).map(
            lambda ways: [Way(slower, slower + late) for slower, late in ways]
        ),
        max_size=4,
    )
)
@settings(max_examples=200, deadline=None)
def test_no_choice_of_ways_is_less_late(cuts: list[list[Way]]) -> None:
    best = min(max((sum(way.slower for way in chosen), *(way.late for way in chosen))) for chosen in product(*cuts))
    assert least_late_us(cuts) == best


Row = tuple[int, int, int, int]


@st.composite
def absences(draw: st.DrawFn) -> list[Row]:
    """(granules, cost, link, room) by room upwards."""
    row = st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 40), st.integers(0, 60))
    return sorted(draw(st.lists(row, min_size=1, max_size=5)), key=lambda row: row[3])


def absence_of(rows: Sequence[Row]) -> Absence:
    granules, cost, link, room = (np.asarray(column, np.int64) for column in zip(*rows, strict=True))
    return Absence(granules=granules, cost=cost, link=link, room=room)


def cheapest(rows: Sequence[Row], wanted: int) -> int | None:
    """The least cost over all choices: each item is there, paid for, or in the windows; None where too few can go."""
    best: int | None = None
    for fates in product(range(3), repeat=len(rows)):
        chosen = list(zip(rows, fates, strict=True))
        if sum(row[0] for row, fate in chosen if fate) < wanted:
            continue
        filled = [sum(r[2] for r, f in chosen[: i + 1] if f == 2) for i in range(len(chosen))]
        if any(total > row[3] for total, (row, _) in zip(filled, chosen, strict=True)):
            continue
        cost = sum(row[1] for row, fate in chosen if fate == 1)
        best = cost if best is None else min(best, cost)
    return best


@given(absences(), st.integers(1, 30), st.integers(0, 50))
@settings(max_examples=300, deadline=None)
def test_no_choice_beats_the_bound_at_any_price(rows: list[Row], wanted: int, price: int) -> None:
    least = cheapest(rows, wanted)
    ticks, _ = absent_ticks(absence_of(rows), wanted, price)
    assert least is None or ticks <= least


@given(absences(), st.integers(1, 30))
@settings(max_examples=200, deadline=None)
def test_no_choice_beats_the_bound_at_its_best_price(rows: list[Row], wanted: int) -> None:
    least = cheapest(rows, wanted)
    items = absence_of(rows)
    assert least is None or bounds._best_ticks(items, wanted) <= least


@given(absences(), st.integers(1, 30), st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_items_that_are_put_together_bound_no_more(rows: list[Row], wanted: int, groups: int) -> None:
    rows = [row for row in rows for _ in range(2)]
    items = absence_of(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "_ITEMS", 0)
        patch.setattr(bounds, "_GROUPS", groups)
        merged = bounds._in_order(items, np.ones(len(rows), np.bool_))
    assert merged.granules.sum() == items.granules.sum()
    assert merged.link.sum() == items.link.sum()
    for price in range(0, 40, 3):
        # Up to the rounding of each item's rate.
        assert absent_ticks(merged, wanted, price)[0] <= absent_ticks(items, wanted, price)[0] + 1


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    row = st.tuples(
        st.integers(1, 400).map(lambda n: 512 * n), st.integers(1, 900), st.integers(0, 99), st.integers(0, 99)
    )
    rows = draw(st.lists(row, min_size=1, max_size=6))
    stuck = draw(st.sets(st.integers(0, 5)))
    return made_cut(
        [(s, NEVER if i in stuck else us, a, b) for i, (s, us, a, b) in enumerate(rows)], before=100, after=100
    )


@given(cuts(), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(201, 3000))
@settings(max_examples=100, deadline=None)
def test_a_larger_budget_never_raises_the_bound(cut: Cut, excess: int, more: int, compute: int) -> None:
    larger = engine_bound_us(cut, compute, 1, excess, LINK)
    assert compute <= larger <= engine_bound_us(cut, compute, 1, excess + more, LINK) + 1


@given(st.lists(st.integers(1, 9).map(lambda n: n * KB), min_size=1, max_size=8), st.integers(20, 60))
@settings(max_examples=50, deadline=None)
def test_bounds_fall_with_the_budget(sizes: list[int], budget: int) -> None:
    step = index_step(chain(sizes), [7] * (2 * len(sizes)))
    smaller = lower_bound_us(step, LINK, budget * KB)
    assert smaller + 1 >= lower_bound_us(step, LINK, (budget + 1) * KB) >= sum(step.cost)
