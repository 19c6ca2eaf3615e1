"""If, Loop and Scan: branches taken, and loops unrolled, while the graph is lowered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.movement import concat, split
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.values import Item, Poison, Unsupported, Value, constant
from snplan.ir import DType

MOST_TRIPS = 1024
"""Iterations that a loop may be unrolled to."""


def _inside(ctx: LowerContext, node: NodeView, branch: str, given: Sequence[Item], label: str) -> list[Item]:
    assert ctx.subgraphs is not None
    return ctx.subgraphs.subgraph(node.attr_graph(branch), node.scope, given, label)


@lowers("If")
def lower_if(ctx: LowerContext, node: NodeView) -> None:
    """The branch that a known condition takes; else both branches, and `where` picks."""
    condition = node.value(0)
    known = condition.array()
    if known is not None:
        node.need(known.size == 1, "its condition must be one value")
        branch = "then_branch" if bool(known.reshape(-1)[0]) else "else_branch"
        ctx.bind_all(_inside(ctx, node, branch, [], node.label))
        return
    sides = [_inside(ctx, node, f"{side}_branch", [], f"{node.label}/{side}") for side in ("then", "else")]
    ctx.bind_all([_picked(ctx, condition, then, other) for then, other in zip(*sides, strict=True)])
    ctx.warnings.append(f"node {node.label!r}: the condition depends on data, so both branches run")


def _picked(ctx: LowerContext, condition: Value, then: Item, other: Item) -> Item:
    for item in (then, other):
        if isinstance(item, Poison):
            return item
    if not isinstance(then, Value) or not isinstance(other, Value) or then.spec != other.spec:
        raise Unsupported("its condition depends on data and its branches give different shapes")
    return ctx.one("where", [ctx.view(condition, ()), then, other])


@lowers("Loop")
def lower_loop(ctx: LowerContext, node: NodeView) -> None:
    """The body as often as the known trip count and condition say."""
    trips = _trips(node)
    going = node.optional(1)
    carried: list[Item] = [item for item in node.items[2:] if item is not None]
    scans: list[list[Item]] = []
    trip = 0
    assert ctx.subgraphs is not None
    sure = trips if trips is not None and trips <= MOST_TRIPS and _runs_through(node.attr_graph("body")) else None
    with ctx.subgraphs.loop(node.label, sure) as unrolled:
        while (trips is None or trip < trips) and _goes_on(going):
            if trip >= MOST_TRIPS:
                raise Unsupported(f"it runs more than {MOST_TRIPS} times")
            given = [constant(np.array(trip, np.int64)), going or ctx.scalar(True, DType.BOOL), *carried]
            results = _inside(ctx, node, "body", given, f"{node.label}/{trip}")
            if isinstance(results[0], Poison):
                ctx.poison("", parents=[results[0]])
                return
            going = results[0] if isinstance(results[0], Value) else None
            carried = results[1 : 1 + len(carried)]
            scans.append(results[1 + len(carried) :])
            trip += 1
            unrolled(trip)
    ctx.bind_all([*carried, *_stacked(ctx, node, scans, len(node.proto.output) - len(carried))])


def _runs_through(body: GraphProto) -> bool:
    """Whether the body hands its condition on as it is, so that the trip count alone ends the loop."""
    if len(body.input) < 2 or not body.output:
        return False
    name = body.output[0].name
    for inner in reversed(body.node):
        if name in inner.output:
            if inner.op_type != "Identity" or len(inner.input) != 1:
                return False
            name = inner.input[0]
    return bool(name == body.input[1].name)


def _trips(node: NodeView) -> int | None:
    if not node.given(0):
        return None
    count = node.value(0).array()
    if count is None:
        raise Unsupported("its trip count is computed from data")
    return int(count.reshape(()))


def _goes_on(going: Value | None) -> bool:
    if going is None:
        return True
    known = going.array()
    if known is None:
        raise Unsupported("its condition depends on data")
    return bool(known.reshape(-1)[0])


def _stacked(ctx: LowerContext, node: NodeView, scans: Sequence[Sequence[Item]], count: int) -> list[Item]:
    """The scan outputs: what each iteration gave, along a new first axis."""
    if count and not scans:
        raise Unsupported("it never runs, so the shape of its scan outputs is not known")
    columns: list[Item] = []
    for place in range(count):
        items = [trip[place] for trip in scans]
        values = [item for item in items if isinstance(item, Value)]
        if len(values) < len(items):
            columns.append(next(item for item in items if not isinstance(item, Value)))
            continue
        columns.append(concat(ctx, [ctx.view(value, (1, *value.spec.shape)) for value in values], 0))
    return columns


@lowers("Scan")
def lower_scan(ctx: LowerContext, node: NodeView) -> None:
    """The body once for each entry of the scan inputs (Scan 9 and later, axis 0 only)."""
    if node.version < 9:
        raise Unsupported("Scan of opset 8")
    if any(node.attr_ints(name) for name in _AXES):
        raise Unsupported("axes and directions are not supported")
    count = node.attr_int("num_scan_inputs")
    values = node.values()
    node.need(0 < count <= len(values), f"{count} scan inputs of {len(values)} inputs")
    carried: list[Item] = list(values[: len(values) - count])
    rows = [_rows(ctx, node, value) for value in values[len(values) - count :]]
    node.need(len({len(row) for row in rows}) == 1, "its scan inputs differ in length")
    scans: list[list[Item]] = []
    assert ctx.subgraphs is not None
    with ctx.subgraphs.loop(node.label, len(rows[0])) as unrolled:
        for trip in range(len(rows[0])):
            results = _inside(ctx, node, "body", [*carried, *(row[trip] for row in rows)], f"{node.label}/{trip}")
            scans.append(results[len(carried) :])
            carried = results[: len(carried)]
            unrolled(trip + 1)
    ctx.bind_all([*carried, *_stacked(ctx, node, scans, len(node.proto.output) - len(carried))])


_AXES = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")


def _rows(ctx: LowerContext, node: NodeView, value: Value) -> list[Value]:
    """The entries along the first axis, without it."""
    node.need(value.spec.rank > 0 and value.spec.shape[0] > 0, "a scan input has no entry")
    if value.spec.shape[0] > MOST_TRIPS:
        raise Unsupported(f"it runs more than {MOST_TRIPS} times")
    return [ctx.view(part, value.spec.shape[1:]) for part in split(ctx, value, 0, [1] * value.spec.shape[0])]
