"""When the actions of a plan run: the simulator's answer, from nothing but the plan."""

from __future__ import annotations

from collections.abc import Mapping

import snplan.ops  # noqa: F401  (fills the op table)
from snplan.cost.device import PRECISIONS, Device, Precision, device_from, load_device
from snplan.cost.engines import engines
from snplan.cost.roofline import op_costs
from snplan.cost.simulate import OpTime, Timeline, simulate
from snplan.errors import UsageError
from snplan.ir import DType, Graph, Op, Phase, Role, Spec, Tensor
from snplan.ops import input_specs
from snplan.plan.model import Algorithm, StepPlan


def plan_timeline(plan: StepPlan, device: Device | None = None) -> Timeline:
    """When each action of a verified plan runs on `device` (None: the plan's, by its published numbers).

    Times that a profile measured are not in the plan: without the profile's device the timeline is the roofline's, and
    its step time another than the plan's `step_time_us`. Raises UsageError (SNP-U045, SNP-U046) where the plan's device
    is neither described in it nor known.
    """
    used = device or device_of(plan)
    sizes = {row.name: row.bytes for row in plan.tensors}
    pools = {row.id: row.pool for row in plan.slots if row.pool is not None}
    return simulate(plan.actions, op_times(plan, used), sizes, used, slot_pools=pools)


def device_of(plan: StepPlan) -> Device:
    """The device that a plan describes."""
    try:
        return device_from(plan.device, "the plan's device")
    except UsageError:
        return load_device(str(plan.device.get("name", "")))


def graph_of(plan: StepPlan) -> Graph:
    """The ops and tensors of a plan as a graph."""
    tensors = {
        row.name: Tensor(name=row.name, spec=Spec(DType(row.dtype), tuple(row.shape)), role=Role(row.role))
        for row in plan.tensors
    }
    ops = tuple(
        Op(
            name=row.name,
            kind=row.kind,
            inputs=tuple(row.inputs),
            outputs=tuple(row.outputs),
            phase=Phase(row.phase),
            attrs=row.attrs,
            nodes=tuple(row.nodes),
            rng=row.rng,
        )
        for row in plan.ops
    )
    written = {name for op in ops for name in op.outputs}
    sources = tuple(name for name in tensors if name not in written)
    return Graph(tensors=tensors, ops=ops, sources=sources, outputs=())


def op_times(plan: StepPlan, device: Device) -> OpTime:
    """Microseconds of an op's execution with an engine (None: it has no choice)."""
    graph, precision, pieces = graph_of(plan), _precision(plan.options), _pieces(plan.options)
    names = [op.name for op in graph.ops]
    costs = op_costs(graph, device, precision, pieces=pieces).tolist()
    fastest: dict[str, int] = dict(zip(names, costs, strict=True))
    chosen = {action.op for action in plan.actions if isinstance(action, Algorithm)}
    times: dict[tuple[str, int], int] = {}
    for op in graph.ops:
        if op.name in chosen:
            found = engines(op, tuple(input_specs(op, graph.tensors)), device, precision, pieces=pieces)
            times.update({(op.name, engine.id): engine.us for engine in found})

    def time(op: str, engine: int | None) -> int:
        return fastest[op] if engine is None else times.get((op, engine), fastest[op])

    return time


def _precision(options: Mapping[str, object]) -> Precision:
    given = options.get("precision")
    return next((known for known in PRECISIONS if known == given), "fp32")


def _pieces(options: Mapping[str, object]) -> int:
    given = options.get("conv_pieces")
    return given if isinstance(given, int) else 1
