"""Kernels of elementwise functions of one input, and of their gradients (docs/ops.md says which value each saves)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import pi, sqrt
from typing import TypeAlias

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs, Context, define
from snplan.runtime.numpy.special import erf

Forward: TypeAlias = Callable[[Array, Attrs], Array]
# Of the saved value (x or y): dx = derivative * dy.
Derivative: TypeAlias = Callable[[Array, Attrs], Array]

_SQRT_HALF = sqrt(0.5)
_SQRT_2_PI = sqrt(2.0 / pi)
_GELU_CUBIC = 0.044715


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow at either end."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def softplus(x: Array) -> Array:
    """log(1 + exp(x)), without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _relu(x: Array, attrs: Attrs) -> Array:
    return np.maximum(x, 0)


def _leaky_relu(x: Array, attrs: Attrs) -> Array:
    return np.where(x >= 0, x, x * attrs["alpha"])


def _elu(x: Array, attrs: Attrs) -> Array:
    return np.where(x >= 0, x, attrs["alpha"] * np.expm1(np.minimum(x, 0)))


def _celu(x: Array, attrs: Attrs) -> Array:
    alpha = attrs["alpha"]
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(np.minimum(x, 0) / alpha), 0)


def _selu(x: Array, attrs: Attrs) -> Array:
    return attrs["gamma"] * np.where(x > 0, x, attrs["alpha"] * np.expm1(np.minimum(x, 0)))


def _thresholded_relu(x: Array, attrs: Attrs) -> Array:
    return np.where(x > attrs["alpha"], x, x.dtype.type(0))


def _hard_sigmoid(x: Array, attrs: Attrs) -> Array:
    return np.clip(attrs["alpha"] * x + attrs["beta"], 0, 1)


def _hard_swish(x: Array, attrs: Attrs) -> Array:
    return x * np.clip(x / 6 + 0.5, 0, 1)


def _mish(x: Array, attrs: Attrs) -> Array:
    return x * np.tanh(softplus(x))


def _gelu(x: Array, attrs: Attrs) -> Array:
    if attrs.get("approximate", "none") == "tanh":
        return 0.5 * x * (1 + np.tanh(_SQRT_2_PI * (x + _GELU_CUBIC * x * x * x)))
    return 0.5 * x * (1 + erf(x * _SQRT_HALF))


def _swish(x: Array, attrs: Attrs) -> Array:
    return x * sigmoid(x * attrs["alpha"])


def _clip(x: Array, attrs: Attrs) -> Array:
    y = x
    if attrs.get("min") is not None:
        y = np.maximum(y, x.dtype.type(attrs["min"]))
    if attrs.get("max") is not None:
        y = np.minimum(y, x.dtype.type(attrs["max"]))
    return y.copy() if y is x else y


def _shrink(x: Array, attrs: Attrs) -> Array:
    bias, lambd = attrs["bias"], attrs["lambd"]
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)).astype(x.dtype)


def _d_gelu(x: Array, attrs: Attrs) -> Array:
    if attrs.get("approximate", "none") == "tanh":
        square = x * x
        t = np.tanh(_SQRT_2_PI * (x + _GELU_CUBIC * x * square))
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _SQRT_2_PI * (1 + 3 * _GELU_CUBIC * square)
    return 0.5 * (1 + erf(x * _SQRT_HALF)) + x * np.exp(-0.5 * x * x) * (1 / sqrt(2 * pi))


def _d_mish(x: Array, attrs: Attrs) -> Array:
    t = np.tanh(softplus(x))
    return t + x * (1 - t * t) * sigmoid(x)


def _d_swish(x: Array, attrs: Attrs) -> Array:
    scaled = x * attrs["alpha"]
    s = sigmoid(scaled)
    return s + scaled * s * (1 - s)


def _d_hard_swish(x: Array, attrs: Attrs) -> Array:
    return np.where(x <= -3, 0, np.where(x >= 3, 1, x / 3 + 0.5)).astype(x.dtype)


def _d_hard_sigmoid(x: Array, attrs: Attrs) -> Array:
    line = attrs["alpha"] * x + attrs["beta"]
    return np.where((line > 0) & (line < 1), x.dtype.type(attrs["alpha"]), x.dtype.type(0))


def _d_clip(x: Array, attrs: Attrs) -> Array:
    inside = np.ones(x.shape, np.bool_)
    if attrs.get("min") is not None:
        inside &= x >= attrs["min"]
    if attrs.get("max") is not None:
        inside &= x <= attrs["max"]
    return inside.astype(x.dtype)


def _d_shrink(x: Array, attrs: Attrs) -> Array:
    return (np.abs(x) > attrs["lambd"]).astype(x.dtype)


FORWARD: Mapping[str, Forward] = {
    "relu": _relu,
    "tanh": lambda x, attrs: np.tanh(x),
    "sigmoid": lambda x, attrs: sigmoid(x),
    "exp": lambda x, attrs: np.exp(x),
    "sqrt": lambda x, attrs: np.sqrt(x),
    "reciprocal": lambda x, attrs: np.reciprocal(x),
    "abs": lambda x, attrs: np.abs(x),
    "log": lambda x, attrs: np.log(x),
    "sin": lambda x, attrs: np.sin(x),
    "cos": lambda x, attrs: np.cos(x),
    "tan": lambda x, attrs: np.tan(x),
    "asin": lambda x, attrs: np.arcsin(x),
    "acos": lambda x, attrs: np.arccos(x),
    "atan": lambda x, attrs: np.arctan(x),
    "sinh": lambda x, attrs: np.sinh(x),
    "cosh": lambda x, attrs: np.cosh(x),
    "asinh": lambda x, attrs: np.arcsinh(x),
    "acosh": lambda x, attrs: np.arccosh(x),
    "atanh": lambda x, attrs: np.arctanh(x),
    "erf": lambda x, attrs: erf(x),
    "softplus": lambda x, attrs: softplus(x),
    "softsign": lambda x, attrs: x / (1 + np.abs(x)),
    "mish": _mish,
    "hard_swish": _hard_swish,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "celu": _celu,
    "selu": _selu,
    "thresholded_relu": _thresholded_relu,
    "hard_sigmoid": _hard_sigmoid,
    "gelu": _gelu,
    "clip": _clip,
    "shrink": _shrink,
    "swish": _swish,
    "neg": lambda x, attrs: np.negative(x),
    "sign": lambda x, attrs: np.sign(x),
    "floor": lambda x, attrs: np.floor(x),
    "ceil": lambda x, attrs: np.ceil(x),
    "round": lambda x, attrs: np.rint(x),
    "not": lambda x, attrs: np.logical_not(x),
    "is_nan": lambda x, attrs: np.isnan(x),
    "is_inf": lambda x, attrs: np.isinf(x),
}

DERIVATIVE_OF_Y: Mapping[str, Derivative] = {
    "relu": lambda y, attrs: (y > 0).astype(y.dtype),
    "tanh": lambda y, attrs: 1 - y * y,
    "sigmoid": lambda y, attrs: y * (1 - y),
    "exp": lambda y, attrs: y,
    "sqrt": lambda y, attrs: 0.5 / y,
    "reciprocal": lambda y, attrs: -y * y,
}

DERIVATIVE_OF_X: Mapping[str, Derivative] = {
    "abs": lambda x, attrs: np.sign(x),
    "log": lambda x, attrs: 1 / x,
    "sin": lambda x, attrs: np.cos(x),
    "cos": lambda x, attrs: -np.sin(x),
    "tan": lambda x, attrs: 1 + np.square(np.tan(x)),
    "asin": lambda x, attrs: 1 / np.sqrt((1 - x) * (1 + x)),
    "acos": lambda x, attrs: -1 / np.sqrt((1 - x) * (1 + x)),
    "atan": lambda x, attrs: 1 / (1 + x * x),
    "sinh": lambda x, attrs: np.cosh(x),
    "cosh": lambda x, attrs: np.sinh(x),
    "asinh": lambda x, attrs: 1 / np.sqrt(x * x + 1),
    "acosh": lambda x, attrs: 1 / np.sqrt((x - 1) * (x + 1)),
    "atanh": lambda x, attrs: 1 / ((1 - x) * (1 + x)),
    "erf": lambda x, attrs: (2 / sqrt(pi)) * np.exp(-x * x),
    "softplus": lambda x, attrs: sigmoid(x),
    "softsign": lambda x, attrs: 1 / np.square(1 + np.abs(x)),
    "mish": _d_mish,
    "hard_swish": _d_hard_swish,
    "leaky_relu": lambda x, attrs: np.where(x >= 0, x.dtype.type(1), x.dtype.type(attrs["alpha"])),
    "elu": lambda x, attrs: np.where(x >= 0, 1, attrs["alpha"] * np.exp(np.minimum(x, 0))),
    "celu": lambda x, attrs: np.exp(np.minimum(x, 0) / attrs["alpha"]),
    "selu": lambda x, attrs: attrs["gamma"] * np.where(x > 0, 1, attrs["alpha"] * np.exp(np.minimum(x, 0))),
    "thresholded_relu": lambda x, attrs: (x > attrs["alpha"]).astype(x.dtype),
    "hard_sigmoid": _d_hard_sigmoid,
    "gelu": _d_gelu,
    "clip": _d_clip,
    "shrink": _d_shrink,
    "swish": _d_swish,
}


def _define_forward(name: str, function: Forward) -> None:
    def body(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
        return function(inputs[0], attrs)

    define(name, body)


def _define_gradient(name: str, derivative: Derivative) -> None:
    def body(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
        saved, dy = inputs
        return dy * derivative(saved, attrs)

    define(f"{name}_grad", body)


for _name, _forward in FORWARD.items():
    _define_forward(_name, _forward)
for _name, _derivative in (*DERIVATIVE_OF_Y.items(), *DERIVATIVE_OF_X.items()):
    _define_gradient(_name, _derivative)
