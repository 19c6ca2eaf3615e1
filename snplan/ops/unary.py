"""Elementwise kinds of one input, and their `KIND_grad`."""

from __future__ import annotations

from snplan.ir import Attrs, DType, Spec
from snplan.ops.base import Kind, Specs, register
from snplan.ops.shapes import need_bool, need_count, need_float, need_number

SAVES_Y = ("relu", "tanh", "sigmoid", "exp", "sqrt", "reciprocal")
SAVES_X = (
    *("abs", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
    *("erf", "softplus", "softsign", "mish", "hard_swish", "leaky_relu", "elu", "celu", "selu", "thresholded_relu"),
    *("hard_sigmoid", "gelu", "clip", "shrink", "swish"),
)
GRADIENT_ZERO = ("sign", "floor", "ceil", "round")
_ANY_NUMBER = frozenset({"relu", "abs", "neg", "sign", "clip", "shrink"})


def infer_float(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input's spec; it must be float."""
    need_count(specs, 1)
    need_float(specs[0])
    return (specs[0],)


def infer_number(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input's spec; it must be a real number type."""
    need_count(specs, 1)
    need_number(specs[0])
    return (specs[0],)


def infer_not(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input's spec; it must be bool."""
    need_count(specs, 1)
    need_bool(specs[0])
    return (specs[0],)


def infer_test(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """Bool of the input's shape; the input must be float."""
    need_count(specs, 1)
    need_float(specs[0])
    return (Spec(DType.BOOL, specs[0].shape),)


def _kind(name: str) -> Kind:
    return Kind(name=name, infer=infer_number if name in _ANY_NUMBER else infer_float, inplace=((0, 0),))


register(*map(_kind, (*SAVES_Y, *SAVES_X, "neg", *GRADIENT_ZERO)))
register(
    Kind(name="not", infer=infer_not, inplace=((0, 0),)),
    Kind(name="is_nan", infer=infer_test),
    Kind(name="is_inf", infer=infer_test),
)
