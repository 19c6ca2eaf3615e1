"""Kernels of elementwise functions of two inputs (or one and a scalar), of choices, and of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs, Context, define, kernel

Function: TypeAlias = Callable[[Array, Array, Attrs], Array]


def operands(inputs: Sequence[Array], attrs: Attrs) -> tuple[Array, Array]:
    """Both operands; in the one-input form `scalar` is the second, or with `reverse` the first."""
    if len(inputs) == 2:
        return inputs[0], inputs[1]
    x, scalar = inputs[0], np.asarray(attrs["scalar"])
    # A whole number beside floats, or any number beside integers of another kind, takes the array's type.
    constant = scalar.astype(x.dtype) if x.dtype.kind != "b" else scalar
    return (constant, x) if attrs.get("reverse") else (x, constant)


def divide(a: Array, b: Array, attrs: Attrs) -> Array:
    """a / b; integers truncate towards zero (0 where b is 0)."""
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    quotient, remainder = np.divmod(a, b)
    return quotient + ((remainder != 0) & ((a < 0) != (b < 0))).astype(quotient.dtype)


def power(a: Array, b: Array, attrs: Attrs) -> Array:
    """a^b in a's type; integers go through float64 where an exponent is negative or not an integer."""
    if a.dtype.kind == "f" and b.ndim == 0:
        return _power_scalar(a, float(b))
    if a.dtype.kind == "f" or (b.dtype.kind in "iu" and not np.any(b < 0)):
        return np.power(a, b).astype(a.dtype, copy=False)
    return np.power(a.astype(np.float64), b).astype(a.dtype)


def _power_scalar(a: Array, b: float) -> Array:
    if b == 1:
        return a.copy()
    if b == 2:
        return a * a
    if b == 3:
        return a * a * a
    if b == 0.5:
        return np.sqrt(a)
    return np.power(a, a.dtype.type(b))


def _mod(a: Array, b: Array, attrs: Attrs) -> Array:
    return np.fmod(a, b) if attrs.get("fmod") else np.mod(a, b)


FUNCTIONS: Mapping[str, Function] = {
    "add": lambda a, b, attrs: np.add(a, b),
    "sub": lambda a, b, attrs: np.subtract(a, b),
    "mul": lambda a, b, attrs: np.multiply(a, b),
    "div": divide,
    "pow": power,
    "max": lambda a, b, attrs: np.maximum(a, b),
    "min": lambda a, b, attrs: np.minimum(a, b),
    "mod": _mod,
    "equal": lambda a, b, attrs: np.equal(a, b),
    "less": lambda a, b, attrs: np.less(a, b),
    "less_equal": lambda a, b, attrs: np.less_equal(a, b),
    "greater": lambda a, b, attrs: np.greater(a, b),
    "greater_equal": lambda a, b, attrs: np.greater_equal(a, b),
    "and": lambda a, b, attrs: np.logical_and(a, b),
    "or": lambda a, b, attrs: np.logical_or(a, b),
    "xor": lambda a, b, attrs: np.logical_xor(a, b),
}


def _define(name: str, function: Function) -> None:
    def body(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
        a, b = operands(inputs, attrs)
        return function(a, b, attrs)

    define(name, body)


for _name, _function in FUNCTIONS.items():
    _define(_name, _function)


@kernel("div_grad_b")
def div_grad_b(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """-dy * y / b."""
    b, y, dy = inputs
    return -dy * y / b


@kernel("reverse_div_grad")
def reverse_div_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Gradient of scalar / x: -dy * scalar / x^2."""
    x, dy = inputs
    return -dy * x.dtype.type(attrs["scalar"]) / (x * x)


@kernel("pow_grad_a")
def pow_grad_a(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy * b * a^(b - 1); 0 where b is 0, also at a = 0."""
    dy = inputs[-1]
    a, b = operands(inputs[:-1], attrs)
    slope = b.astype(a.dtype) * power(a, b.astype(a.dtype) - a.dtype.type(1), attrs)
    return dy * np.where(b == 0, a.dtype.type(0), slope)


@kernel("pow_grad_b")
def pow_grad_b(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy * y * log(a); 0 where a <= 0. The base is the first input, or `scalar`."""
    y, dy = inputs[-2:]
    a = inputs[0] if len(inputs) == 3 else np.asarray(attrs["scalar"], y.dtype)
    return dy * np.where(a > 0, y * np.log(np.where(a > 0, a, a.dtype.type(1))), y.dtype.type(0))


@kernel("extremum_grad")
def extremum_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy where the named input won, dy / 2 on ties."""
    dy = inputs[-1]
    a, b = operands(inputs[:-1], attrs)
    mine, other = (a, b) if attrs.get("input", 0) == 0 else (b, a)
    won = mine > other if attrs["of"] == "max" else mine < other
    return np.where(won, dy, np.where(mine == other, dy * dy.dtype.type(0.5), dy.dtype.type(0)))


@kernel("where", widen=False)
def where(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """a where c, else b."""
    c, a, b = inputs
    return np.where(c, a, b)


@kernel("mask", widen=False)
def mask(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """x where c equals `keep`, else 0."""
    c, x = inputs
    zero = x.dtype.type(0)
    return np.where(c, x, zero) if attrs["keep"] else np.where(c, zero, x)


@kernel("prelu")
def prelu(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """x where x >= 0, else slope * x."""
    x, slope = inputs
    return np.where(x >= 0, x, x * slope)


@kernel("prelu_grad_x")
def prelu_grad_x(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy where x >= 0, else slope * dy."""
    x, slope, dy = inputs
    return np.where(x >= 0, dy, dy * slope)


@kernel("prelu_grad_slope")
def prelu_grad_slope(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy * x where x < 0, else 0: of x's shape, summed by a following op."""
    x, dy = inputs
    return np.where(x < 0, dy * x, x.dtype.type(0))
