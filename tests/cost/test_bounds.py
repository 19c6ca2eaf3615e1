"""Lower bounds: worked out by hand on small steps, and against brute force over cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snplan.cost.bounds import Cut, copies_us, cut_at, lower_bound_us, predecessors, spill_bound_us
from snplan.cost.device import load_device
from snplan.ir import DType, Graph, Op, Phase, Role, Spec, Step, Tensor

# 1000 B/us one way, 800 B/us each way when both run.
LINK = replace(
    load_device("h200"),
    h2d_bytes_per_s=10**9,
    d2h_bytes_per_s=10**9,
    h2d_both_bytes_per_s=8 * 10**8,
    d2h_both_bytes_per_s=8 * 10**8,
)
KB = 1000


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


def cut(step: Step, times: Sequence[int], v: int) -> Cut:
    return cut_at(step, times, v, predecessors(step.graph))


def test_copies_of_one_direction() -> None:
    assert copies_us(5 * KB, 0, LINK) == 5
    assert copies_us(0, 7 * KB, LINK) == 7


def test_copies_of_both_directions_overlap_where_that_pays() -> None:
    # 8 KB each way at 800 B/us: 10 us; one after the other it would be 16.
    assert copies_us(8 * KB, 8 * KB, LINK) == pytest.approx(10)
    # After 10 us 8 KB of the larger are gone, the rest goes alone.
    assert copies_us(18 * KB, 8 * KB, LINK) == pytest.approx(20)


def test_a_link_that_halves_gains_nothing_from_overlap() -> None:
    half = replace(LINK, h2d_both_bytes_per_s=4 * 10**8, d2h_both_bytes_per_s=4 * 10**8)
    assert copies_us(8 * KB, 8 * KB, half) == pytest.approx(16)


def test_without_a_budget_the_bound_is_the_sum() -> None:
    step = chain([KB, KB])
    assert lower_bound_us(step, np.array([1, 2, 3, 4]), LINK) == 10


def test_a_large_budget_adds_nothing() -> None:
    step = chain([KB] * 6)
    assert lower_bound_us(step, np.full(12, 5), LINK, 10**9) == 60


def test_cut_in_the_middle_of_a_chain() -> None:
    # b2 reads a2 and writes g2 in its place; a0 and a1 wait for their backward ops. a1 costs less a byte.
    step = chain([100, 200, 300])
    assert step.graph.ops[3].name == "b2"
    middle = cut(step, [9, 2, 3, 4, 5, 6], 3)
    assert middle == Cut(here=300, stuck=0, droppable=((200, 2), (100, 9)))
    assert middle.bytes == 600


def test_an_output_that_fits_two_inputs_is_in_place_once() -> None:
    # b1 reads a1 and g2 and writes g1 in place of either.
    assert cut(chain([100] * 3), [1] * 6, 4).here == 200


def test_cut_counts_gradients_as_stuck() -> None:
    # During u, gradient g waits for v's reader: only a copy can take it away.
    spec = Spec(DType.UINT8, (KB,))
    tensors = {name: Tensor(name=name, spec=spec) for name in ("x", "g", "h", "k")}
    ops = (
        Op(name="g", kind="tanh", inputs=("x",), outputs=("g",), phase=Phase.BACKWARD),
        Op(name="h", kind="tanh", inputs=("g",), outputs=("h",), phase=Phase.BACKWARD),
        Op(name="mid", kind="concat", inputs=("h",), outputs=("k",), attrs={"axis": 0}, phase=Phase.BACKWARD),
        Op(name="end", kind="add", inputs=("g", "k"), outputs=("y",), phase=Phase.BACKWARD),
    )
    tensors["y"] = Tensor(name="y", spec=spec)
    graph = Graph(tensors=tensors, ops=ops, sources=("x",), outputs=("y",))
    step = Step(graph=graph, loss=None, inputs=("x",), gradients={}, becomes={})
    assert cut(step, [1, 1, 1, 1], 2) == Cut(here=2 * KB, stuck=KB, droppable=())


def test_cut_counts_parameters_that_are_updated_later() -> None:
    spec = Spec(DType.FLOAT32, (250,))
    tensors = {name: Tensor(name=name, spec=spec) for name in ("x", "w", "frozen", "y", "g", "w:next")}
    ops = (
        Op(name="f", kind="add", inputs=("x", "frozen"), outputs=("y",)),
        Op(name="b", kind="tanh", inputs=("y",), outputs=("g",), phase=Phase.BACKWARD),
        Op(name="u", kind="sgd_update", inputs=("w", "g"), outputs=("w:next",), phase=Phase.UPDATE),
    )
    graph = Graph(tensors=tensors, ops=ops, sources=("x", "w", "frozen"), outputs=())
    becomes = {"w": "w:next", "frozen": "frozen"}
    step = Step(graph=graph, loss=None, inputs=("x",), gradients={"w": "g"}, becomes=becomes)
    assert cut(step, [1, 1, 1], 0).stuck == KB
    assert cut(step, [1, 1, 1], 2).stuck == 0


def test_copies_alone() -> None:
    # 80 KB too many, none of them droppable: 80 KB each way at 800 B/us are 100 us.
    cut = Cut(here=10 * KB, stuck=90 * KB, droppable=())
    assert spill_bound_us(30, cut, LINK, 20 * KB) in (99, 100)
    assert spill_bound_us(500, cut, LINK, 20 * KB) == 500


def test_recompute_and_copies_share_the_excess() -> None:
    # Excess 80 KB, 1.25 us a KB to copy, 1 us a KB to recompute: 30 + d = 1.25 * (80 - d) at d = 31.1: 61.1 us.
    cut = Cut(here=10 * KB, stuck=0, droppable=((90 * KB, 90),))
    assert spill_bound_us(30, cut, LINK, 20 * KB) == 61


def test_recompute_is_limited_to_what_can_be_dropped() -> None:
    # Only 20 KB can be dropped (for 1 us); 60 KB must be copied: 75 us.
    cut = Cut(here=0, stuck=80 * KB, droppable=((20 * KB, 1),))
    assert spill_bound_us(30, cut, LINK, 20 * KB) in (74, 75)


def test_no_excess() -> None:
    assert spill_bound_us(30, Cut(here=KB, stuck=KB, droppable=((KB, 1),)), LINK, 3 * KB) == 30


def test_bound_of_a_chain() -> None:
    # Eight activations of 1 MB, 16 ops of 100 us, budget 3 MB: at the first backward op (in place) 8 MB are needed,
    # 5 too many. 1 MB takes 1250 us to copy both ways, 100 us to recompute: 1600 + 100 d = 1250 (5 - d) at d = 3.444.
    step = chain([1000 * KB] * 8)
    assert lower_bound_us(step, np.full(16, 100), LINK, 3000 * KB) == 1944


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    items = draw(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 2000)), max_size=6))
    return Cut(
        here=draw(st.integers(0, 10**6)),
        stuck=draw(st.integers(0, 10**6)),
        droppable=tuple(sorted(items, key=lambda item: item[1] / item[0])),
    )


@given(cuts(), st.integers(0, 4 * 10**6), st.integers(0, 3000))
@settings(max_examples=200, deadline=None)
def test_no_choice_of_what_to_drop_beats_the_bound(cut: Cut, budget: int, compute: int) -> None:
    """Every subset of droppable tensors, the rest of the excess copied, takes at least the bound."""
    bound = spill_bound_us(compute, cut, LINK, budget)
    excess = cut.bytes - budget
    per_byte = copies_us(1, 1, LINK)
    for mask in range(1 << len(cut.droppable)):
        chosen = [item for i, item in enumerate(cut.droppable) if mask >> i & 1]
        copied = max(0, excess - sum(size for size, _ in chosen))
        assert max(compute + sum(us for _, us in chosen), copied * per_byte) >= bound


@given(cuts(), st.integers(0, 4 * 10**6), st.integers(0, 3000), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_a_larger_budget_never_raises_the_bound(cut: Cut, budget: int, compute: int, more: int) -> None:
    larger = spill_bound_us(compute, cut, LINK, budget + more)
    assert compute <= larger <= spill_bound_us(compute, cut, LINK, budget)


@given(st.lists(st.integers(1, 9).map(lambda n: n * KB), min_size=1, max_size=8), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_bounds_fall_with_the_budget(sizes: list[int], budget: int) -> None:
    step = chain(sizes)
    costs = np.full(2 * len(sizes), 7)
    smaller = lower_bound_us(step, costs, LINK, budget * KB)
    assert smaller >= lower_bound_us(step, costs, LINK, (budget + 1) * KB) >= int(costs.sum())
