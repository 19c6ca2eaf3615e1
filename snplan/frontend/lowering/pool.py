"""Pooling."""

from __future__ import annotations

import math

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.binary import scaled
from snplan.frontend.lowering.reduce import reduce
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.lowering.windows import window_of
from snplan.frontend.node import NodeView
from snplan.frontend.values import Unsupported, Value
from snplan.ir import Attr


def _attrs(node: NodeView, x: Value) -> dict[str, Attr]:
    """Attributes of `max_pool` and `average_pool`, `sizes` of the result among them."""
    node.need(x.spec.rank >= 3, f"rank {x.spec.rank}; it takes N, C and spatial axes")
    spatial = x.spec.shape[2:]
    kernel = node.attr_ints("kernel_shape")
    if kernel is None:
        raise node.error("attribute kernel_shape is missing")
    window = window_of(node, spatial, kernel)
    ceil = bool(node.attr_int("ceil_mode", 0))
    sizes = [window.count(axis, size, ceil=ceil) for axis, size in enumerate(spatial)]
    node.need(min(sizes) > 0, f"the kernel {kernel} is larger than the padded input {list(spatial)}")
    return {
        "kernel": list(window.kernel),
        "strides": list(window.strides),
        "pads": list(window.pads),
        "dilations": list(window.dilations),
        "sizes": [*sizes],
    }


@lowers("MaxPool")
def lower_max_pool(ctx: LowerContext, node: NodeView) -> None:
    """`max_pool`. ONNX's own indices (flat, of the whole input) are not offered."""
    x = node.value(0)
    ctx.bind(0, ctx.emit("max_pool", [x], _attrs(node, x))[0])
    if node.wants(1):
        ctx.poison("its output Indices is not supported")


@lowers("AveragePool")
def lower_average_pool(ctx: LowerContext, node: NodeView) -> None:
    """`average_pool`."""
    x = node.value(0)
    ctx.bind(0, ctx.one("average_pool", [x], {**_attrs(node, x), "count_include_pad": _counts_pads(node)}))


def _counts_pads(node: NodeView) -> bool:
    return bool(node.attr_int("count_include_pad", 0))


@lowers("LpPool")
def lower_lp_pool(ctx: LowerContext, node: NodeView) -> None:
    """The p-th root of window sums of |x|^p, by way of an average that counts every position."""
    x, p = node.value(0), node.attr_int("p", 2)
    if node.attr_int("ceil_mode", 0):
        raise Unsupported("ceil_mode is not supported")
    attrs = _attrs(node, x)
    powers = ctx.one("pow", [ctx.one("abs", [x])], {"scalar": float(p)})
    mean = ctx.one("average_pool", [powers], {**attrs, "count_include_pad": True})
    total = scaled(ctx, mean, float(math.prod(node.attr_ints("kernel_shape") or [1])))
    ctx.bind(0, ctx.one("pow", [total], {"scalar": 1.0 / p}))


@lowers("GlobalAveragePool", "GlobalMaxPool")
def lower_global_pool(ctx: LowerContext, node: NodeView) -> None:
    """A reduction over the spatial axes."""
    kind = "reduce_mean" if node.op == "GlobalAveragePool" else "reduce_max"
    x = node.value(0)
    ctx.bind(0, reduce(ctx, kind, x, range(2, x.spec.rank), True))


@lowers("GlobalLpPool")
def lower_global_lp_pool(ctx: LowerContext, node: NodeView) -> None:
    """The p-th root of the sum of |x|^p over the spatial axes."""
    x, p = node.value(0), node.attr_int("p", 2)
    powers = ctx.one("pow", [ctx.one("abs", [x])], {"scalar": float(p)})
    total = reduce(ctx, "reduce_sum", powers, range(2, x.spec.rank), True)
    ctx.bind(0, ctx.one("pow", [total], {"scalar": 1.0 / p}))
