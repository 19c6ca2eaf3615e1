"""Operators that give a tensor another shape or type without computing: Reshape, Flatten, Squeeze, Cast, ..."""

from __future__ import annotations

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.shapes import flatten_shape, reshape_shape, squeeze_shape, unsqueeze_shape
from snplan.frontend.tensors import DTYPES, type_name
from snplan.frontend.values import Unsupported, Value
from snplan.ir import DType


@lowers("Identity")
def lower_identity(ctx: LowerContext, node: NodeView) -> None:
    """The input itself, which may be a sequence."""
    item = node.items[0] if node.items else None
    ctx.bind(0, item if item is not None else node.value(0))


@lowers("Reshape")
def lower_reshape(ctx: LowerContext, node: NodeView) -> None:
    """A view."""
    x = node.value(0)
    target = node.array_ints(1, "its target shape")
    ctx.bind(0, ctx.view(x, reshape_shape(node, x.spec.shape, target)))


@lowers("Flatten")
def lower_flatten(ctx: LowerContext, node: NodeView) -> None:
    """A view of rank 2."""
    x = node.value(0)
    ctx.bind(0, ctx.view(x, flatten_shape(node, x.spec.shape)))


@lowers("Squeeze", "Unsqueeze")
def lower_squeeze(ctx: LowerContext, node: NodeView) -> None:
    """A view without, or with more, dimensions of 1."""
    x = node.value(0)
    axes = node.array_ints(1, "axes") if node.given(1) else None
    shape = (squeeze_shape if node.op == "Squeeze" else unsqueeze_shape)(node, x.spec.shape, axes)
    ctx.bind(0, ctx.view(x, shape))


@lowers("Cast")
def lower_cast(ctx: LowerContext, node: NodeView) -> None:
    """`cast`; nothing where the type is the same."""
    to = node.attr_int("to") if node.version >= 6 else _type_number(node.attr_str("to"))
    dtype = DTYPES.get(to)  # type: ignore[call-overload]
    if dtype is None:
        raise Unsupported(f"it casts to {type_name(to)}")
    ctx.bind(0, cast(ctx, node.value(0), dtype))


def _type_number(name: str) -> int:
    numbers = {type_name(number): int(number) for number in DTYPES}
    return numbers.get(name.lower(), 0)


@lowers("CastLike")
def lower_cast_like(ctx: LowerContext, node: NodeView) -> None:
    """`cast` to the second input's element type."""
    ctx.bind(0, cast(ctx, node.value(0), node.value(1).spec.dtype))


def cast(ctx: LowerContext, x: Value, dtype: DType) -> Value:
    """`x` as `dtype`."""
    return x if x.spec.dtype is dtype else ctx.one("cast", [x], {"to": str(dtype)})
