"""A parameter whose old value is read by a recompute after its update."""

from __future__ import annotations

from dataclasses import replace

from property.graphs import GraphWriter

from snplan.analysis.floor import floor
from snplan.analysis.index import IndexedStep, index_step
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import build_schedule, saved_tensors
from snplan.compiler import CompileOptions, assemble_plan
from snplan.cost.device import load_device
from snplan.ir import Graph, Phase, Role, Step
from snplan.passes.layout import make_layout
from snplan.passes.order import sink_updates
from snplan.passes.realise import finish, place, step_costs
from snplan.plan.model import ModelRef
from snplan.plan.verify import verify
from snplan.training import attach_loss, build_step, make_optimizer

DEVICE = load_device("h200")


def late_gradient() -> IndexedStep:
    """loss = mean((x * w0) * w1), with what needs x * w0 in the backward pass put after the update of w0."""
    writer = GraphWriter()
    x = writer.source("x", (16, 64), Role.INPUT)
    first, second = (writer.source(name, (16, 64), Role.CONSTANT) for name in ("w0", "w1"))
    (scaled,) = writer.op("mul", (x, first))
    (again,) = writer.op("mul", (scaled, second))
    (loss,) = writer.op("reduce_mean", (again,), axes=[0, 1], keepdims=False)
    step = sink_updates(build_step(attach_loss(writer.forward(loss), "auto"), optimizer=make_optimizer("sgd")))
    late = [op for op in step.graph.ops if "w1:grad" in (*op.inputs, *op.outputs)]
    ops = (*(op for op in step.graph.ops if op not in late), *late)
    graph = step.graph
    moved = Graph(tensors=graph.tensors, ops=ops, sources=graph.sources, outputs=graph.outputs)
    return index_step(replace(step, graph=moved), [1] * len(ops))


def test_its_home_is_host_memory() -> None:
    step = late_gradient()
    assert isinstance(step.step, Step)
    schedule = build_schedule(step, frozenset(saved_tensors(step)) - {step.names.index("mul_0:0")})
    recomputed = [p for p in range(schedule.end) if not schedule.first[p]]
    updated = [p for p, op in enumerate(schedule.runs) if step.ops[op].phase is Phase.UPDATE]
    assert min(updated) < recomputed[0]

    residency = Residency(schedule)
    source = next(v for v, value in enumerate(schedule.values) if step.names[value.tensor] == "w0")
    assert residency.starts_in_host(source)
    costs, lowest = step_costs(step, DEVICE), floor(step)
    layout = make_layout(residency, 1 << 30, costs.copy_us)
    offsets = place(layout, 1 << 30)
    assert offsets is not None
    plan = assemble_plan(
        ModelRef(sha256="0" * 64, name="late"),
        CompileOptions(budget_bytes=1 << 30, reserve_bytes=0),
        DEVICE,
        0,
        step,
        finish(layout, offsets, costs),
        bound=1,
        lowest=lowest,
    )
    assert verify(plan) == []


def test_other_parameters_stay_on_the_device() -> None:
    schedule = build_schedule(late_gradient())
    assert Residency(schedule).in_host == set()
