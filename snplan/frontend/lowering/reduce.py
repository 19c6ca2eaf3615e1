"""Reductions, ArgMax and ArgMin, CumSum, TopK."""

from __future__ import annotations

from collections.abc import Sequence

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.values import Unsupported, Value
from snplan.ir import Attr

PLAIN = {
    "ReduceLogSumExp": "reduce_log_sum_exp",
    "ReduceMax": "reduce_max",
    "ReduceMean": "reduce_mean",
    "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod",
    "ReduceSum": "reduce_sum",
}


def reduce(ctx: LowerContext, kind: str, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """A reduction of `x` over `axes`; where they are all of size 1 and the values stay, a view."""
    same = kind in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
    if same and all(x.spec.shape[axis] == 1 for axis in axes):
        shape = x.spec.shape if keepdims else [size for axis, size in enumerate(x.spec.shape) if axis not in axes]
        return ctx.view(x, shape)
    return ctx.one(kind, [x], {"axes": list(axes), "keepdims": keepdims})


def reduction_axes(node: NodeView, rank: int) -> list[int] | None:
    """The axes to reduce: an attribute, or an input from opset 13 (ReduceSum) or 18 on. None: reduce nothing."""
    if node.input_form("axes", 13 if node.op == "ReduceSum" else 18, 1):
        axes = node.array_ints(1, "axes") if node.given(1) else []
    else:
        axes = node.attr_ints("axes") or []
    if axes:
        return node.checked_axes(axes, rank)
    return None if node.attr_int("noop_with_empty_axes", 0) else list(range(rank))


@lowers(*PLAIN, "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare")
def lower_reduce(ctx: LowerContext, node: NodeView) -> None:
    """One reduction, with the elementwise ops before and after it that the operator stands for."""
    x = node.value(0)
    axes = reduction_axes(node, x.spec.rank)
    keepdims = bool(node.attr_int("keepdims", 1))
    if node.op == "ReduceL1":
        x = ctx.one("abs", [x])
    if node.op in ("ReduceL2", "ReduceSumSquare"):
        x = ctx.one("mul", [x, x])
    y = x if axes is None else reduce(ctx, PLAIN.get(node.op, "reduce_sum"), x, axes, keepdims)
    if node.op == "ReduceL2":
        y = ctx.one("sqrt", [y])
    if node.op == "ReduceLogSum":
        y = ctx.one("log", [y])
    ctx.bind(0, y)


@lowers("ArgMax", "ArgMin")
def lower_arg(ctx: LowerContext, node: NodeView) -> None:
    """`arg_max` or `arg_min`."""
    x = node.value(0)
    attrs: dict[str, Attr] = {
        "axis": node.attr_axis("axis", 0, x.spec.rank),
        "keepdims": bool(node.attr_int("keepdims", 1)),
        "last": bool(node.attr_int("select_last_index", 0)),
    }
    ctx.bind(0, ctx.one("arg_max" if node.op == "ArgMax" else "arg_min", [x], attrs))


@lowers("CumSum")
def lower_cum_sum(ctx: LowerContext, node: NodeView) -> None:
    """`cum_sum`."""
    x = node.value(0)
    attrs: dict[str, Attr] = {
        "axis": node.checked_axis(int(node.array_scalar(1, "axis")), x.spec.rank),
        "exclusive": bool(node.attr_int("exclusive", 0)),
        "reverse": bool(node.attr_int("reverse", 0)),
    }
    ctx.bind(0, ctx.one("cum_sum", [x], attrs))


@lowers("TopK")
def lower_top_k(ctx: LowerContext, node: NodeView) -> None:
    """`top_k`; k is an input from opset 10 on."""
    x = node.value(0)
    k = node.array_scalar(1, "k") if node.input_form("k", 10, 1) else node.attr_int("k")
    axis = node.attr_axis("axis", -1, x.spec.rank)
    node.need(0 <= k <= x.spec.shape[axis], f"k is {k}, axis {axis} has {x.spec.shape[axis]} entries")
    attrs: dict[str, Attr] = {
        "axis": axis,
        "k": int(k),
        "largest": bool(node.attr_int("largest", 1)),
        "sorted": bool(node.attr_int("sorted", 1)),
    }
    ctx.bind_all(ctx.emit("top_k", [x], attrs))


@lowers("NonZero", "NonMaxSuppression", "Unique", "Compress")
def refuse_data_dependent(ctx: LowerContext, node: NodeView) -> None:
    """Refused: the shape of the result depends on data."""
    raise Unsupported("the shape of its result depends on data")
