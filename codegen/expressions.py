"""Elementwise functions of one input, and their derivatives, as CUDA C++ expressions.

An expression is text over operand names; `A` is the type that it computes in, and helpers (`sigmoid`, `largest`, ...)
are in templates/prelude.cu.j2. Expressions are pure text, so chains of ops compose by naming results (`chain.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import pi, sqrt
from typing import Any, TypeAlias

from snplan.codegen.scalars import literal

Attrs: TypeAlias = Mapping[str, Any]
# (attributes, names of the operands) -> expression. Operands are plain names: an expression may use one many times.
Expression: TypeAlias = Callable[[Attrs, Sequence[str]], str]

_GELU_INNER = f"A({sqrt(2.0 / pi)!r}) * ({{x}} + A(0.044715) * {{x}} * {{x}} * {{x}})"


def fixed(text: str, *keys: str) -> Expression:
    """`text` with `{x}`, `{y}`, `{z}` as operands and the attributes `keys` as constants."""

    def expression(attrs: Attrs, names: Sequence[str]) -> str:
        constants = {key: literal(float(attrs[key])) for key in keys}
        return text.format(**dict(zip("xyz", names, strict=False)), **constants)

    return expression


def _gelu(attrs: Attrs, names: Sequence[str]) -> str:
    x = names[0]
    if attrs.get("approximate", "none") == "tanh":
        return f"A(0.5) * {x} * (A(1) + tanh({_GELU_INNER.format(x=x)}))"
    return f"A(0.5) * {x} * (A(1) + erf({x} * A({sqrt(0.5)!r})))"


def _d_gelu(attrs: Attrs, names: Sequence[str]) -> str:
    x = names[0]
    if attrs.get("approximate", "none") != "tanh":
        density = f"exp(A(-0.5) * {x} * {x}) * A({1 / sqrt(2 * pi)!r})"
        return f"A(0.5) * (A(1) + erf({x} * A({sqrt(0.5)!r}))) + {x} * {density}"
    t = f"tanh({_GELU_INNER.format(x=x)})"
    slope = f"A({sqrt(2.0 / pi)!r}) * (A(1) + A({3 * 0.044715!r}) * {x} * {x})"
    return f"A(0.5) * (A(1) + {t}) + A(0.5) * {x} * (A(1) - {t} * {t}) * {slope}"


def _limit(attrs: Attrs, key: str, form: str, x: str) -> str:
    return x if attrs.get(key) is None else form.format(x=x, limit=literal(attrs[key]))


def _clip(attrs: Attrs, names: Sequence[str]) -> str:
    low = _limit(attrs, "min", "largest({x}, A({limit}))", names[0])
    return _limit(attrs, "max", "smallest({x}, A({limit}))", low)


def _d_clip(attrs: Attrs, names: Sequence[str]) -> str:
    tests = [_limit(attrs, "min", "{x} >= {limit}", names[0]), _limit(attrs, "max", "{x} <= {limit}", names[0])]
    found = [test for test in tests if test != names[0]]
    return f"({' && '.join(found)} ? A(1) : A(0))" if found else "A(1)"


FORWARD: Mapping[str, Expression] = {
    "relu": fixed("({x} <= A(0) ? A(0) : {x})"),
    "tanh": fixed("tanh({x})"),
    "sigmoid": fixed("sigmoid({x})"),
    "exp": fixed("exp({x})"),
    "sqrt": fixed("sqrt({x})"),
    "reciprocal": fixed("A(1) / {x}"),
    "abs": fixed("magnitude({x})"),
    "log": fixed("log({x})"),
    "sin": fixed("sin({x})"),
    "cos": fixed("cos({x})"),
    "tan": fixed("tan({x})"),
    "asin": fixed("asin({x})"),
    "acos": fixed("acos({x})"),
    "atan": fixed("atan({x})"),
    "sinh": fixed("sinh({x})"),
    "cosh": fixed("cosh({x})"),
    "asinh": fixed("asinh({x})"),
    "acosh": fixed("acosh({x})"),
    "atanh": fixed("atanh({x})"),
    "erf": fixed("erf({x})"),
    "softplus": fixed("softplus({x})"),
    "softsign": fixed("{x} / (A(1) + magnitude({x}))"),
    "mish": fixed("{x} * tanh(softplus({x}))"),
    "hard_swish": fixed("{x} * smallest(largest({x} / A(6) + A(0.5), A(0)), A(1))"),
    "leaky_relu": fixed("({x} >= A(0) ? {x} : {x} * {alpha})", "alpha"),
    "elu": fixed("({x} >= A(0) ? {x} : {alpha} * expm1({x}))", "alpha"),
    "celu": fixed("(largest({x}, A(0)) + smallest({alpha} * expm1(smallest({x}, A(0)) / {alpha}), A(0)))", "alpha"),
    "selu": fixed("{gamma} * ({x} > A(0) ? {x} : {alpha} * expm1({x}))", "alpha", "gamma"),
    "thresholded_relu": fixed("({x} > {alpha} ? {x} : A(0))", "alpha"),
    "hard_sigmoid": fixed("smallest(largest({alpha} * {x} + {beta}, A(0)), A(1))", "alpha", "beta"),
    "gelu": _gelu,
    "clip": _clip,
    "shrink": fixed("({x} < -{lambd} ? {x} + {bias} : {x} > {lambd} ? {x} - {bias} : A(0))", "bias", "lambd"),
    "swish": fixed("{x} * sigmoid({x} * {alpha})", "alpha"),
    "neg": fixed("A(-{x})"),
    "sign": fixed("sign_of({x})"),
    "floor": fixed("floor({x})"),
    "ceil": fixed("ceil({x})"),
    "round": fixed("rint({x})"),
    "not": fixed("({x} == A(0))"),
    "is_nan": fixed("({x} != {x})"),
    "is_inf": fixed("(magnitude({x}) == A(infinity()))"),
}

# Of y: what the result was.
_OF_Y: Mapping[str, Expression] = {
    "relu": fixed("({x} > A(0) ? A(1) : A(0))"),
    "tanh": fixed("(A(1) - {x} * {x})"),
    "sigmoid": fixed("{x} * (A(1) - {x})"),
    "exp": fixed("{x}"),
    "sqrt": fixed("(A(0.5) / {x})"),
    "reciprocal": fixed("(-{x} * {x})"),
}

# Of x.
_OF_X: Mapping[str, Expression] = {
    "abs": fixed("sign_of({x})"),
    "log": fixed("(A(1) / {x})"),
    "sin": fixed("cos({x})"),
    "cos": fixed("(-sin({x}))"),
    "tan": fixed("(A(1) + tan({x}) * tan({x}))"),
    "asin": fixed("(A(1) / sqrt((A(1) - {x}) * (A(1) + {x})))"),
    "acos": fixed("(A(-1) / sqrt((A(1) - {x}) * (A(1) + {x})))"),
    "atan": fixed("(A(1) / (A(1) + {x} * {x}))"),
    "sinh": fixed("cosh({x})"),
    "cosh": fixed("sinh({x})"),
    "asinh": fixed("(A(1) / sqrt({x} * {x} + A(1)))"),
    "acosh": fixed("(A(1) / sqrt(({x} - A(1)) * ({x} + A(1))))"),
    "atanh": fixed("(A(1) / ((A(1) - {x}) * (A(1) + {x})))"),
    "erf": fixed(f"(A({2 / sqrt(pi)!r}) * exp(-{{x}} * {{x}}))"),
    "softplus": fixed("sigmoid({x})"),
    "softsign": fixed("(A(1) / ((A(1) + magnitude({x})) * (A(1) + magnitude({x}))))"),
    "mish": fixed(
        "(tanh(softplus({x})) + {x} * (A(1) - tanh(softplus({x})) * tanh(softplus({x}))) * sigmoid({x}))",
    ),
    "hard_swish": fixed("({x} <= A(-3) ? A(0) : {x} >= A(3) ? A(1) : {x} / A(3) + A(0.5))"),
    "leaky_relu": fixed("({x} >= A(0) ? A(1) : {alpha})", "alpha"),
    "elu": fixed("({x} >= A(0) ? A(1) : {alpha} * exp({x}))", "alpha"),
    "celu": fixed("exp(smallest({x}, A(0)) / {alpha})", "alpha"),
    "selu": fixed("({gamma} * ({x} > A(0) ? A(1) : {alpha} * exp({x})))", "alpha", "gamma"),
    "thresholded_relu": fixed("({x} > {alpha} ? A(1) : A(0))", "alpha"),
    "hard_sigmoid": fixed(
        "({alpha} * {x} + {beta} > A(0) && {alpha} * {x} + {beta} < A(1) ? {alpha} : A(0))", "alpha", "beta"
    ),
    "gelu": _d_gelu,
    "clip": _d_clip,
    "shrink": fixed("(magnitude({x}) > {lambd} ? A(1) : A(0))", "lambd"),
    "swish": fixed(
        "(sigmoid({x} * {alpha}) * (A(1) + {x} * {alpha} * (A(1) - sigmoid({x} * {alpha}))))",
        "alpha",
    ),
}


def _times_dy(derivative: Expression) -> Expression:
    return lambda attrs, names: f"{names[1]} * ({derivative(attrs, names[:1])})"


GRADIENT: Mapping[str, Expression] = {
    f"{name}_grad": _times_dy(derivative) for name, derivative in (*_OF_Y.items(), *_OF_X.items())
}
