"""Elementwise operators of two and more inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from snplan.frontend.context import LowerContext, json_number
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.values import Value
from snplan.ir import Attr, Spec

KINDS = {
    "Add": "add",
    "And": "and",
    "Div": "div",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Mul": "mul",
    "Or": "or",
    "Sub": "sub",
    "Xor": "xor",
}
"""Operators without attributes."""

_SYMMETRIC = frozenset({"add", "mul", "max", "min", "equal", "and", "or", "xor"})

NARY = {"Max": "max", "Min": "min", "Sum": "add", "Mean": "add"}


def binary(ctx: LowerContext, kind: str, a: Value, b: Value, attrs: dict[str, Attr] | None = None) -> Value:
    """`a OP b`; a known single value becomes the attribute `scalar`."""
    attrs = attrs or {}
    scalar = scalar_of(b, a.spec)
    if scalar is not None:
        return ctx.one(kind, [a], {**attrs, "scalar": scalar})
    scalar = scalar_of(a, b.spec)
    if scalar is not None:
        side: dict[str, Attr] = {} if kind in _SYMMETRIC else {"reverse": True}
        return ctx.one(kind, [b], {**attrs, "scalar": scalar, **side})
    return ctx.one(kind, unexpanded(ctx, [a, b]), attrs)


def unexpanded(ctx: LowerContext, values: Sequence[Value]) -> list[Value]:
    """The operands without an `expand` before them where they broadcast to the same shape without it."""
    found = list(values)
    for place, value in enumerate(values):
        record = ctx.producer(value)
        if record is None or record.kind != "expand":
            continue
        found[place] = ctx.existing(record.inputs[0])
        if _broadcast(found) != _broadcast(values):
            found[place] = value
    return found


def _broadcast(values: Sequence[Value]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(value.spec.shape for value in values))


def scalar_of(value: Value, other: Spec) -> Attr:
    """The single finite value of a constant that broadcasts to `other`; None for anything else."""
    if value.spec.elements != 1 or value.spec.rank > other.rank or value.spec.dtype is not other.dtype:
        return None
    if not value.fixed:
        return None
    array = value.array()
    assert array is not None
    number = json_number(array.reshape(-1)[0])
    return None if isinstance(number, str) else number


def scaled(ctx: LowerContext, x: Value, factor: float) -> Value:
    """`x * factor`."""
    return x if factor == 1 else ctx.one("mul", [x], {"scalar": factor})


def operands(ctx: LowerContext, node: NodeView) -> tuple[Value, Value]:
    """Both inputs; before opset 7, the second one placed as attributes `broadcast` and `axis` say."""
    a, b = node.value(0), node.value(1)
    if node.version >= 7:
        if node.has("broadcast") or node.has("axis"):
            node.wrong_form("attributes broadcast and axis ended with opset 6")
        return a, b
    if not node.attr_int("broadcast", 0):
        node.need(a.spec.shape == b.spec.shape, f"shapes {a.spec.shape} and {b.spec.shape} differ without broadcast")
        return a, b
    return a, ctx.view(b, _placed(node, a.spec.rank, b.spec.shape))


def _placed(node: NodeView, rank: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    if not node.has("axis"):
        return shape
    after = rank - node.attr_axis("axis", 0, rank) - len(shape)
    node.need(after >= 0, f"axis does not fit ranks {rank} and {len(shape)}")
    return shape + (1,) * after


@lowers(*KINDS)
def lower_binary(ctx: LowerContext, node: NodeView) -> None:
    """One op of the same meaning."""
    ctx.bind(0, binary(ctx, KINDS[node.op], *operands(ctx, node)))


@lowers("Pow")
def lower_pow(ctx: LowerContext, node: NodeView) -> None:
    """`pow` in the base's element type. An exponent that is one known value is fixed, also as an initializer."""
    base, exponent = operands(ctx, node)
    known = exponent.array() if exponent.spec.elements == 1 and exponent.spec.rank <= base.spec.rank else None
    if known is not None and math.isfinite(float(known.reshape(-1)[0])):
        number = known.reshape(-1)[0].astype(known.dtype)
        scalar = json_number(number)
        if base.spec.dtype.is_float:
            scalar = float(str(scalar))
        ctx.bind(0, base if scalar == 1 else ctx.one("pow", [base], {"scalar": scalar}))
        return
    if exponent.spec.dtype is not base.spec.dtype:
        exponent = ctx.one("cast", [exponent], {"to": str(base.spec.dtype)})
    ctx.bind(0, binary(ctx, "pow", base, exponent))


@lowers("Mod")
def lower_mod(ctx: LowerContext, node: NodeView) -> None:
    """`mod`: the sign follows the divisor, or with `fmod` the dividend."""
    ctx.bind(0, binary(ctx, "mod", node.value(0), node.value(1), {"fmod": bool(node.attr_int("fmod", 0))}))


@lowers(*NARY)
def lower_nary(ctx: LowerContext, node: NodeView) -> None:
    """A chain of binary ops, from left to right."""
    values = node.values()
    node.need(bool(values), "it has no input")
    total = values[0]
    for value in values[1:]:
        total = binary(ctx, NARY[node.op], total, value)
    ctx.bind(0, scaled(ctx, total, 1 / len(values)) if node.op == "Mean" else total)


@lowers("Where")
def lower_where(ctx: LowerContext, node: NodeView) -> None:
    """`where`."""
    ctx.bind(0, ctx.one("where", unexpanded(ctx, [node.value(0), node.value(1), node.value(2)])))


@lowers("PRelu")
def lower_prelu(ctx: LowerContext, node: NodeView) -> None:
    """`prelu`; before opset 7 a slope of rank 1 counts channels."""
    x, slope = node.value(0), node.value(1)
    if node.version < 7 and slope.spec.rank == 1 and x.spec.rank > 1 and slope.spec.elements > 1:
        slope = ctx.view(slope, (slope.spec.elements,) + (1,) * (x.spec.rank - 2))
    ctx.bind(0, ctx.one("prelu", [x, slope]))


@lowers("com.microsoft::BiasGelu", "com.microsoft::FastGelu")
def lower_bias_gelu(ctx: LowerContext, node: NodeView) -> None:
    """gelu(x + bias); FastGelu is the tanh approximation and its bias may be left out."""
    x, bias = node.value(0), node.optional(1)
    total = x if bias is None else binary(ctx, "add", x, bias)
    ctx.bind(0, ctx.one("gelu", [total], {"approximate": "tanh" if node.op == "FastGelu" else "none"}))
