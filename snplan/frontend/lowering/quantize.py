"""QuantizeLinear and DequantizeLinear in elementwise ops."""

from __future__ import annotations

import numpy as np

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.binary import binary
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.lowering.shape import cast
from snplan.frontend.node import NodeView
from snplan.frontend.tensors import DTYPES, numpy_dtype
from snplan.frontend.values import Unsupported, Value
from snplan.ir import DType


@lowers("DequantizeLinear")
def lower_dequantize(ctx: LowerContext, node: NodeView) -> None:
    """(x - zero point) * scale, in the scale's element type."""
    x, zero = node.value(0), node.optional(2)
    scale = _along(ctx, node, node.value(1), x)
    y = cast(ctx, x, scale.spec.dtype)
    if zero is not None and not _is_zero(zero):
        y = binary(ctx, "sub", y, cast(ctx, _along(ctx, node, zero, x), scale.spec.dtype))
    ctx.bind(0, binary(ctx, "mul", y, scale))


@lowers("QuantizeLinear")
def lower_quantize(ctx: LowerContext, node: NodeView) -> None:
    """round(x / scale) + zero point, brought into range and cast."""
    x, zero = node.value(0), node.optional(2)
    dtype = zero.spec.dtype if zero is not None else DTYPES.get(node.attr_int("output_dtype", 0) or 2)  # type: ignore[call-overload]
    if dtype is None or dtype.value.startswith("float"):
        raise Unsupported(f"it quantizes to {dtype}")
    y = binary(ctx, "div", cast(ctx, x, DType.FLOAT32), cast(ctx, _along(ctx, node, node.value(1), x), DType.FLOAT32))
    y = ctx.one("round", [y])
    if zero is not None and not _is_zero(zero):
        y = binary(ctx, "add", y, cast(ctx, _along(ctx, node, zero, x), DType.FLOAT32))
    low, high = _range(dtype)
    ctx.bind(0, cast(ctx, ctx.one("clip", [y], {"min": low, "max": high}), dtype))


def _range(dtype: DType) -> tuple[float, float]:
    if dtype in (DType.INT4, DType.UINT4):
        return (-8.0, 7.0) if dtype is DType.INT4 else (0.0, 15.0)
    info = np.iinfo(numpy_dtype(dtype))
    return float(info.min), float(info.max)


def _is_zero(value: Value) -> bool:
    array = value.array()
    return array is not None and not np.any(array)


def _along(ctx: LowerContext, node: NodeView, value: Value, x: Value) -> Value:
    """A scale or zero point of the whole tensor, or of each entry of an axis, in the shape that broadcasts to x."""
    if node.attr_int("block_size", 0):
        raise Unsupported("blocks are not supported")
    if value.spec.elements == 1:
        return ctx.view(value, ())
    axis = node.attr_axis("axis", 1, x.spec.rank)
    node.need(
        value.spec.shape == (x.spec.shape[axis],), f"{value.spec.shape} does not fit axis {axis} of {x.spec.shape}"
    )
    return ctx.view(value, value.spec.shape + (1,) * (x.spec.rank - axis - 1))
