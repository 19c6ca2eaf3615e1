"""Gather, Scatter and OneHot in their forms."""

from __future__ import annotations

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.movement import sliced
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.lowering.shape import cast
from snplan.frontend.node import NodeView
from snplan.frontend.values import Value
from snplan.ir import Attr, DType

_REDUCTIONS = ("none", "add", "mul", "max", "min")


@lowers("Gather")
def lower_gather(ctx: LowerContext, node: NodeView) -> None:
    """`gather`; one known index is a slice."""
    x, indices = node.value(0), node.value(1)
    axis = node.attr_axis("axis", 0, x.spec.rank)
    if indices.spec.elements == 1 and indices.fixed:
        ctx.bind(0, _picked(ctx, node, x, axis, indices))
        return
    ctx.bind(0, ctx.one("gather", [x, indices], {"axis": axis}))


def _picked(ctx: LowerContext, node: NodeView, x: Value, axis: int, indices: Value) -> Value:
    index = int(node.array_scalar(1, "the index"))
    size = x.spec.shape[axis]
    node.need(-size <= index < size, f"index {index} is out of range for {size} entries")
    starts, sizes = [0] * x.spec.rank, list(x.spec.shape)
    starts[axis], sizes[axis] = index % size, 1
    found = sliced(ctx, x, starts, sizes, [1] * x.spec.rank)
    return ctx.view(found, x.spec.shape[:axis] + indices.spec.shape + x.spec.shape[axis + 1 :])


@lowers("GatherElements")
def lower_gather_elements(ctx: LowerContext, node: NodeView) -> None:
    """`gather_elements`."""
    x, indices = node.value(0), node.value(1)
    ctx.bind(0, ctx.one("gather_elements", [x, indices], {"axis": node.attr_axis("axis", 0, x.spec.rank)}))


@lowers("GatherND")
def lower_gather_nd(ctx: LowerContext, node: NodeView) -> None:
    """`gather_nd`."""
    ctx.bind(0, ctx.one("gather_nd", [node.value(0), node.value(1)], {"batch_dims": node.attr_int("batch_dims", 0)}))


@lowers("ScatterElements", "Scatter")
def lower_scatter_elements(ctx: LowerContext, node: NodeView) -> None:
    """`scatter_elements`."""
    x = node.value(0)
    attrs: dict[str, Attr] = {"axis": node.attr_axis("axis", 0, x.spec.rank), "reduction": _reduction(node)}
    ctx.bind(0, ctx.one("scatter_elements", [x, node.value(1), node.value(2)], attrs))


@lowers("ScatterND")
def lower_scatter_nd(ctx: LowerContext, node: NodeView) -> None:
    """`scatter_nd`."""
    inputs = [node.value(0), node.value(1), node.value(2)]
    ctx.bind(0, ctx.one("scatter_nd", inputs, {"reduction": _reduction(node)}))


def _reduction(node: NodeView) -> str:
    reduction = node.attr_str("reduction", "none")
    node.need(reduction in _REDUCTIONS, f"reduction {reduction!r} is unknown")
    return reduction


@lowers("OneHot")
def lower_one_hot(ctx: LowerContext, node: NodeView) -> None:
    """`one_hot` of int64 indices."""
    indices, values = node.value(0), node.value(2)
    depth = int(node.array_scalar(1, "depth"))
    node.need(depth > 0, f"depth is {depth}")
    axis = node.attr_axis("axis", -1, indices.spec.rank, extra=1)
    if indices.spec.dtype is not DType.INT32:
        indices = cast(ctx, indices, DType.INT64)
    ctx.bind(0, ctx.one("one_hot", [indices, values], {"axis": axis, "depth": depth}))
