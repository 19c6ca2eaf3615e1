"""Layers, segments and the moments of copies, worked out by hand."""

from __future__ import annotations

from tests_support import Line, chain_of, forward_of, indexed_of

from snplan.analysis.floor import floor
from snplan.analysis.index import IndexedStep, index_step
from snplan.analysis.schedule import build_schedule
from snplan.ir import Forward, Phase, Role
from snplan.passes.order import sink_updates
from snplan.passes.route import route
from snplan.strategies.caffe import chain_heirs
from snplan.strategies.chen import border_tensors
from snplan.strategies.cost_aware import memory_centric
from snplan.strategies.layers import checkpoint_tensors, fetch_positions, heavy_tensors, layer_inputs
from snplan.training import attach_loss, build_step, make_optimizer

BACK = Phase.BACKWARD


def indexed(forward: Forward) -> IndexedStep:
    """The training step of a forward graph, each op of one microsecond."""
    step = sink_updates(build_step(attach_loss(forward, "auto"), optimizer=make_optimizer("sgd")))
    return index_step(step, [1] * len(step.graph.ops))


def names(step: IndexedStep, tensors: set[int]) -> set[str]:
    return {step.names[tensor] for tensor in tensors}


def segment(*, granules: int = 1, phases: int = 3) -> IndexedStep:
    """conv makes k; cheap ops a, b, c follow, all saved; then their backward ops, last first, and k's."""
    cheap = ("a", "b", "c")[:phases]
    forward = [Line(name="conv", reads=("x",), writes=("k",), kind="conv")]
    forward += [
        Line(name=f"f{name}", reads=(before,), writes=(name,), kind="lrn")
        for before, name in zip(("k", *cheap), cheap, strict=False)
    ]
    gradient = "top"
    backward = [Line(name="loss", reads=(cheap[-1],), writes=("top",), phase=BACK)]
    for name in reversed(cheap):
        backward.append(Line(name=f"g{name}", reads=(name, gradient), writes=(f"d{name}",), phase=BACK))
        gradient = f"d{name}"
    backward.append(Line(name="gk", reads=("k", gradient), writes=("dk",), phase=BACK))
    sizes = dict.fromkeys((*cheap, "k", "top", "dk", *(f"d{name}" for name in cheap)), granules)
    return indexed_of([*forward, *backward], sources={"x": Role.INPUT}, outputs=("dk",), granules=sizes)


def test_a_layer_is_what_its_result_becomes_in_place() -> None:
    step = indexed(chain_of(3))  # matmul, relu: the relu's result is in the matmul's buffer, and is what is saved
    assert {n.split("_")[0] for n in names(step, heavy_tensors(step))} == {"relu"}
    assert len(heavy_tensors(step)) == 3


def test_joins_and_forks_are_checkpoints() -> None:
    forward = forward_of({"a": ("x",), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ("d",)})
    step = indexed_of(
        [
            *(
                Line(name=op.name, reads=op.inputs, writes=op.outputs, kind={"add": "add"}.get(op.kind, "lrn"))
                for op in route(forward.graph).ops
            ),
            *(Line(name=f"g{n}", reads=(n,), writes=(f"d{n}",), phase=BACK) for n in "edcba"),
        ],
        sources={"x": Role.INPUT},
        outputs=tuple(f"d{n}" for n in "edcba"),
    )
    assert names(step, checkpoint_tensors(step)) == {"a", "d"}  # a has two readers, d joins b and c


def test_inputs_of_layers_are_activations_and_no_parameters() -> None:
    step = indexed(chain_of(2))
    found = names(step, layer_inputs(step, frozenset({"matmul"})))
    assert "x" in found
    assert not {"w0", "w1"} & found
    assert len(found) == 2


def test_a_small_segment_is_recomputed_once_and_a_large_one_for_each_reader() -> None:
    step = segment()
    kept = checkpoint_tensors(step)
    assert names(step, kept) == {"k"}
    # Segment a, b, c: 3 granules, and beside them a gradient read and one written: 5 in all.
    assert memory_centric(step, kept, 5 * 512) == set()
    assert names(step, memory_centric(step, kept, 4 * 512)) == {"a", "b", "c"}


def test_memory_centric_recompute_costs_n_n_plus_1_halves_and_speed_centric_n() -> None:
    step = segment()
    kept = checkpoint_tensors(step)
    speed = build_schedule(step, kept)
    assert sum(not first for first in speed.first) == 3
    # The loss reads c as well as gc: c, b and a are made for it, too.
    memory = build_schedule(step, kept, memory_centric(step, kept, floor(step).bytes))
    assert sum(not first for first in memory.first) == 3 + (3 + 2 + 1)


def test_prefetches_are_issued_one_convolution_ahead() -> None:
    step = indexed_of(
        [
            Line(name="c1", reads=("x",), writes=("k1",), kind="conv"),
            Line(name="c2", reads=("k1",), writes=("k2",), kind="conv"),
            Line(name="c3", reads=("k2",), writes=("k3",), kind="conv"),
            Line(name="top", reads=("k3",), writes=("d3",), phase=BACK),
            Line(name="c3x", reads=("d3",), writes=("d2",), phase=BACK, kind="conv_transpose"),
            Line(name="c3w", reads=("k2", "d3"), writes=("w3",), phase=BACK, kind="conv_filter"),
            Line(name="act", reads=("k2", "d2"), writes=("e2",), phase=BACK),
            Line(name="c2x", reads=("e2",), writes=("d1",), phase=BACK, kind="conv_transpose"),
            Line(name="c2w", reads=("k1", "e2"), writes=("w2",), phase=BACK, kind="conv_filter"),
        ],
        sources={"x": Role.INPUT},
        outputs=("d1", "w2", "w3"),
    )
    fetch = fetch_positions(build_schedule(step))
    # The backward pass begins at 3. c3 (4, 5) is the first CONV there: what it reads is fetched at 3. What `act` and
    # c2 (7, 8) read is fetched when c3 begins.
    assert fetch == [0, 1, 2, 3, 3, 3, 4, 4, 4]


def test_chen_keeps_what_crosses_a_border() -> None:
    lines = [Line(name=f"f{i}", reads=(f"t{i}",), writes=(f"t{i + 1}",), kind="lrn") for i in range(9)]
    back = [Line(name=f"g{i}", reads=(f"t{i}",), writes=(f"d{i}",), phase=BACK) for i in range(9, 0, -1)]
    step = indexed_of([*lines, *back], sources={"t0": Role.INPUT}, outputs=tuple(f"d{i}" for i in range(1, 10)))
    assert names(step, border_tensors(step)) == {"t3", "t6"}  # nine ops: three segments of three
    schedule = build_schedule(step, border_tensors(step))
    assert sum(not first for first in schedule.first) == 7  # all but the two borders, once


def test_gradients_take_over_forward_buffers_on_a_chain_and_not_at_a_fork() -> None:
    step = segment()
    schedule = build_schedule(step)
    heirs = chain_heirs(schedule)
    tensors = [step.names[value.tensor] for value in schedule.values]
    taken = {tensors[heir]: tensors[owner] for heir, owner in heirs.items()}
    # c is free once gc has read it: gb writes db there. b is free after gb, a after ga.
    assert taken == {"db": "c", "da": "b", "dk": "a"}


def test_summed_gradients_have_buffers_of_their_own() -> None:
    step = indexed_of(
        [
            Line(name="f1", reads=("x",), writes=("a",), kind="lrn"),
            Line(name="f2", reads=("a",), writes=("b",), kind="lrn"),
            Line(name="g1", reads=("b",), writes=("d1",), phase=BACK),
            Line(name="g2", reads=("a",), writes=("d2",), phase=BACK),
            Line(name="sum", reads=("d1", "d2"), writes=("d",), phase=BACK, kind="add"),
            Line(name="g3", reads=("d",), writes=("e",), phase=BACK),
        ],
        sources={"x": Role.INPUT},
        outputs=("e",),
    )
    schedule = build_schedule(step)
    tensors = [step.names[value.tensor] for value in schedule.values]
    taken = {tensors[heir]: tensors[owner] for heir, owner in chain_heirs(schedule).items()}
    assert "d1" not in taken
    assert "d2" not in taken
    assert taken.get("e") in ("a", "b")
