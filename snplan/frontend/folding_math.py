"""Evaluators of arithmetic, comparisons and reductions on values known at compile time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snplan.frontend.node import NodeView
from snplan.frontend.tensors import MOST_ELEMENTS, Array

Evaluate = Callable[[NodeView, Sequence[Array]], Array | Sequence[Array] | None]


def _unary(function: Callable[[Array], Any]) -> Evaluate:
    def evaluate(view: NodeView, arrays: Sequence[Array]) -> Array:
        return np.asarray(function(arrays[0]), arrays[0].dtype)

    return evaluate


def _binary(function: Callable[[Array, Array], Any]) -> Evaluate:
    def evaluate(view: NodeView, arrays: Sequence[Array]) -> Array | None:
        if view.version < 7 and view.has("axis"):
            return None
        a, b = arrays
        if math.prod(np.broadcast_shapes(a.shape, b.shape)) > MOST_ELEMENTS:
            return None
        return np.asarray(function(a, b))

    return evaluate


def _variadic(function: Callable[[Array, Array], Any]) -> Evaluate:
    def evaluate(view: NodeView, arrays: Sequence[Array]) -> Array | None:
        if math.prod(np.broadcast_shapes(*(array.shape for array in arrays))) > MOST_ELEMENTS:
            return None
        total = arrays[0]
        for array in arrays[1:]:
            total = np.asarray(function(total, array))
        return total

    return evaluate


def _divide(a: Array, b: Array) -> Array:
    """ONNX Div: of integers, the quotient is truncated towards zero."""
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.abs(a) // np.abs(safe) * np.sign(a) * np.sign(safe) if a.dtype.kind == "i" else a // safe
    return np.asarray(quotient, a.dtype)


def _modulo(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    function = np.fmod if view.attr_int("fmod", 0) else np.mod
    return _binary(function)(view, arrays)  # type: ignore[return-value]


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":
        return np.asarray(np.power(a.astype(np.float64), b)).astype(a.dtype)
    return np.asarray(np.power(a, b.astype(a.dtype)))


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


def _reduced(function: Callable[..., Any], inputs_since: int) -> Evaluate:
    def evaluate(view: NodeView, arrays: Sequence[Array]) -> Array | None:
        x = arrays[0]
        axes = view.attr_ints("axes")
        if view.version >= inputs_since and len(arrays) > 1:
            axes = [int(axis) for axis in arrays[1].reshape(-1)]
        if not axes and view.attr_int("noop_with_empty_axes", 0):
            return None
        over = tuple(view.checked_axes(axes, x.ndim)) if axes else None
        return np.asarray(function(x, axis=over, keepdims=bool(view.attr_int("keepdims", 1)))).astype(x.dtype)

    return evaluate


def _where(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    if math.prod(np.broadcast_shapes(*(array.shape for array in arrays))) > MOST_ELEMENTS:
        return None
    return np.where(arrays[0], arrays[1], arrays[2])


def _clip(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    if view.version < 11 or len(arrays) != 3:
        return None
    return np.asarray(np.minimum(np.maximum(arrays[0], arrays[1]), arrays[2]))


def _cum_sum(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    x = arrays[0]
    axis = view.checked_axis(int(arrays[1].reshape(())), x.ndim)
    if view.attr_int("exclusive", 0) or view.attr_int("reverse", 0):
        return None
    return np.asarray(np.cumsum(x, axis=axis, dtype=x.dtype))


def _arg(function: Callable[..., Any]) -> Evaluate:
    def evaluate(view: NodeView, arrays: Sequence[Array]) -> Array | None:
        if view.attr_int("select_last_index", 0):
            return None
        axis = view.attr_axis("axis", 0, arrays[0].ndim)
        return np.asarray(function(arrays[0], axis=axis, keepdims=bool(view.attr_int("keepdims", 1)))).astype(np.int64)

    return evaluate


ARITHMETIC: dict[str, Evaluate] = {
    "Abs": _unary(np.abs),
    "Add": _binary(np.add),
    "And": _binary(np.logical_and),
    "ArgMax": _arg(np.argmax),
    "ArgMin": _arg(np.argmin),
    "Ceil": _unary(np.ceil),
    "Clip": _clip,
    "Cos": _unary(np.cos),
    "CumSum": _cum_sum,
    "Div": _binary(_divide),
    "Equal": _binary(np.equal),
    "Erf": _unary(_erf),
    "Exp": _unary(np.exp),
    "Floor": _unary(np.floor),
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Log": _unary(np.log),
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Mod": _modulo,
    "Mul": _binary(np.multiply),
    "Neg": _unary(np.negative),
    "Not": _unary(np.logical_not),
    "Or": _binary(np.logical_or),
    "Pow": _binary(_power),
    "Reciprocal": _unary(lambda x: 1 / x),
    "ReduceMax": _reduced(np.max, 18),
    "ReduceMean": _reduced(np.mean, 18),
    "ReduceMin": _reduced(np.min, 18),
    "ReduceProd": _reduced(np.prod, 18),
    "ReduceSum": _reduced(np.sum, 13),
    "Round": _unary(np.round),
    "Sign": _unary(np.sign),
    "Sin": _unary(np.sin),
    "Sqrt": _unary(np.sqrt),
    "Sub": _binary(np.subtract),
    "Sum": _variadic(np.add),
    "Where": _where,
    "Xor": _binary(np.logical_xor),
}
"""Evaluators by operator."""
