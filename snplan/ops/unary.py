"""Elementwise kinds of one input, and their `KIND_grad`."""

from __future__ import annotations

from snplan.ir import Attrs, DType, Spec
from snplan.ops.base import GradientRule, Kind, Specs, register
from snplan.ops.forms import NUMBER, choice, or_null, takes
from snplan.ops.gradients import linear_gradient, saved_gradient
from snplan.ops.shapes import need_bool, need_count, need_float, need_number, need_same

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


def infer_gradient(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """dx as the saved value and dy, which are alike."""
    need_count(specs, 2)
    need_float(specs[0], "the saved value")
    need_same(specs[0], specs[1], "the saved value and dy")
    return (specs[0],)


def _kind(name: str, gradient: GradientRule) -> Kind:
    infer = infer_number if name in _ANY_NUMBER else infer_float
    return Kind(name=name, infer=infer, gradient=gradient, inplace=((0, 0),))


def _flat(name: str) -> Kind:
    # A gradient of zero everywhere is no path from a parameter to the loss.
    infer = infer_number if name in _ANY_NUMBER else infer_float
    return Kind(name=name, infer=infer, differentiable=(), inplace=((0, 0),))


register(
    *(_kind(name, saved_gradient(f"{name}_grad", from_output=True)) for name in SAVES_Y),
    *(_kind(name, saved_gradient(f"{name}_grad", from_output=False)) for name in SAVES_X),
    *(Kind(name=f"{name}_grad", infer=infer_gradient, inplace=((0, 1), (0, 0))) for name in (*SAVES_Y, *SAVES_X)),
    _kind("neg", linear_gradient("neg")),
    *map(_flat, GRADIENT_ZERO),
    Kind(name="not", infer=infer_not, inplace=((0, 0),)),
    Kind(name="is_nan", infer=infer_test),
    Kind(name="is_inf", infer=infer_test),
)

for _name in ("", "_grad"):
    takes(*(f"{kind}{_name}" for kind in ("leaky_relu", "elu", "celu", "thresholded_relu", "swish")), alpha=NUMBER)
    takes(f"selu{_name}", alpha=NUMBER, gamma=NUMBER)
    takes(f"hard_sigmoid{_name}", alpha=NUMBER, beta=NUMBER)
    takes(f"gelu{_name}", approximate=choice("none", "tanh"))
    takes(f"clip{_name}", min=or_null(NUMBER), max=or_null(NUMBER))
    takes(f"shrink{_name}", bias=NUMBER, lambd=NUMBER)
