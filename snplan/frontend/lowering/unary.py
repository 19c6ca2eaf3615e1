"""Elementwise operators of one input."""

from __future__ import annotations

import math

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.values import Unsupported, Value
from snplan.ir import Attr

KINDS = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "HardSwish": "hard_swish",
    "IsNaN": "is_nan",
    "Log": "log",
    "Mish": "mish",
    "Neg": "neg",
    "Not": "not",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
"""Operators without attributes."""

SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875

PARAMETERS: dict[str, tuple[str, dict[str, float]]] = {
    "Celu": ("celu", {"alpha": 1.0}),
    "Elu": ("elu", {"alpha": 1.0}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Selu": ("selu", {"alpha": SELU_ALPHA, "gamma": SELU_GAMMA}),
    "Shrink": ("shrink", {"bias": 0.0, "lambd": 0.5}),
    "Swish": ("swish", {"alpha": 1.0}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
}
"""Operators with float attributes, and their defaults."""


@lowers(*KINDS)
def lower_plain(ctx: LowerContext, node: NodeView) -> None:
    """One op of the same meaning."""
    ctx.bind(0, ctx.one(KINDS[node.op], [node.value(0)]))


@lowers(*PARAMETERS)
def lower_with_parameters(ctx: LowerContext, node: NodeView) -> None:
    """One op of the same meaning with the attributes, defaults filled in."""
    kind, defaults = PARAMETERS[node.op]
    attrs: dict[str, Attr] = {name: node.attr_float(name, default) for name, default in defaults.items()}
    ctx.bind(0, ctx.one(kind, [node.value(0)], attrs))


@lowers("Erfc")
def lower_erfc(ctx: LowerContext, node: NodeView) -> None:
    """1 - erf(x); not of the standard, but what TensorFlow's converter writes."""
    ctx.bind(0, ctx.one("sub", [ctx.one("erf", [node.value(0)])], {"scalar": 1.0, "reverse": True}))


@lowers("Gelu", "com.microsoft::Gelu")
def lower_gelu(ctx: LowerContext, node: NodeView) -> None:
    """Gelu in its exact form or the tanh approximation."""
    approximate = node.attr_str("approximate", "none")
    node.need(approximate in ("none", "tanh"), f"approximate is {approximate!r}; it must be 'none' or 'tanh'")
    ctx.bind(0, ctx.one("gelu", [node.value(0)], {"approximate": approximate}))


@lowers("com.microsoft::QuickGelu")
def lower_quick_gelu(ctx: LowerContext, node: NodeView) -> None:
    """x * sigmoid(alpha x)."""
    ctx.bind(0, ctx.one("swish", [node.value(0)], {"alpha": node.attr_float("alpha", 1.702)}))


@lowers("IsInf")
def lower_is_inf(ctx: LowerContext, node: NodeView) -> None:
    """IsInf of either sign; of one sign, a comparison with that infinity."""
    positive, negative = node.attr_int("detect_positive", 1), node.attr_int("detect_negative", 1)
    x = node.value(0)
    if positive and negative:
        ctx.bind(0, ctx.one("is_inf", [x]))
    elif positive or negative:
        ctx.bind(0, ctx.one("equal", [x, ctx.scalar(math.inf if positive else -math.inf, x.spec.dtype)]))
    else:
        raise Unsupported("it detects neither infinity")


@lowers("Clip")
def lower_clip(ctx: LowerContext, node: NodeView) -> None:
    """`clip` for bounds that are known; `max` and `min` for computed ones. Bounds are inputs from opset 11 on."""
    if not node.input_form("min", 11, 1) or not node.input_form("max", 11, 2):
        low = node.attr_float("min", -math.inf) if node.has("min") else None
        high = node.attr_float("max", math.inf) if node.has("max") else None
        ctx.bind(0, _clipped(ctx, node.value(0), low, high))
        return
    x = node.value(0)
    low, x = _bound(ctx, node, 1, "max", x)
    high, x = _bound(ctx, node, 2, "min", x)
    ctx.bind(0, _clipped(ctx, x, low, high))


def _bound(ctx: LowerContext, node: NodeView, index: int, kind: str, x: Value) -> tuple[float | None, Value]:
    """A known bound as a number; a computed one is applied at once."""
    bound = node.optional(index)
    if bound is None:
        return None, x
    array = bound.array()
    if array is None:
        return None, ctx.one(kind, [x, bound])
    node.need(array.size == 1, f"a bound must be one value, it has {array.size}")
    return array.reshape(-1)[0].item(), x


def _clipped(ctx: LowerContext, x: Value, low: float | None, high: float | None) -> Value:
    low = None if low is None or not math.isfinite(low) else low
    high = None if high is None or not math.isfinite(high) else high
    if low is None and high is None:
        return x
    return ctx.one("clip", [x], {"min": low, "max": high})
