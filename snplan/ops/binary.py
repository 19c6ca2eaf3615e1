"""Elementwise kinds of two broadcasting inputs (or one and a `scalar`), `where`, `mask`, `prelu`; their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from snplan.ir import Attrs, DType, Op, Spec
from snplan.ops.attributes import get_bool, get_choice
from snplan.ops.base import Backward, GradientRule, Infer, Kind, ShapeError, Specs, register
from snplan.ops.forms import FLAG, INTEGER, SCALAR, choice, optional, takes
from snplan.ops.gradients import pass_through, unbroadcast
from snplan.ops.shapes import (
    broadcast,
    broadcasts_to,
    need,
    need_bool,
    need_count,
    need_float,
    need_number,
    need_same,
    need_same_dtype,
    show,
)

ARITHMETIC = ("add", "sub", "mul", "div", "pow", "max", "min")
COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
LOGIC = ("and", "or", "xor")
_EITHER = ((0, 0), (0, 1))


def _operands(specs: Specs, attrs: Attrs) -> Spec:
    """Common type and broadcast shape of the two operands, or of the one beside `scalar`."""
    if attrs.get("scalar") is not None:
        need_count(specs, 1)
        return specs[0]
    need_count(specs, 2)
    return Spec(need_same_dtype(specs), broadcast(specs[0].shape, specs[1].shape))


def _rule(check: Callable[[Spec], None] | None, result: DType | None = None) -> Infer:
    def infer(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
        spec = _operands(specs, attrs)
        if check is not None:
            check(spec)
        return (spec if result is None else Spec(result, spec.shape),)

    return infer


def infer_where(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The broadcast shape of condition and both values."""
    need_count(specs, 3)
    need_bool(specs[0], "the condition")
    return (Spec(need_same_dtype(specs[1:]), broadcast(*(spec.shape for spec in specs))),)


def infer_mask(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The broadcast shape of condition and value."""
    need_count(specs, 2)
    need_bool(specs[0], "the condition")
    return (Spec(specs[1].dtype, broadcast(specs[0].shape, specs[1].shape)),)


def infer_prelu(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """x's spec; the slope must broadcast to it."""
    need_count(specs, 2)
    need_number(specs[0])
    need_same_dtype(specs)
    if not broadcasts_to(specs[1].shape, specs[0].shape):
        raise ShapeError(f"slope {show(specs[1])} does not broadcast to x {show(specs[0])}")
    return (specs[0],)


def infer_of_result(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """dy's spec, the last input's: of the result's shape; the other inputs must broadcast to it."""
    need_count(specs, 2, 3)
    dy = specs[-1]
    need_float(dy, "dy")
    need_same_dtype(specs)
    for spec in specs[:-1]:
        need(broadcasts_to(spec.shape, dy.shape), f"{show(spec)} does not broadcast to dy {show(dy)}")
    return (dy,)


def infer_extremum_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """dy's spec."""
    get_choice(attrs, "of", ("max", "min"))
    return infer_of_result(specs, attrs)


def infer_of_x(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """x's spec, the first input's, which dy, the last, shares; a slope between them must broadcast to it."""
    need_count(specs, 2, 3)
    need_same(specs[0], specs[-1], "x and dy")
    return infer_of_result(specs, attrs)


Partial: TypeAlias = Callable[[Backward, Op], str]


def broadcasting(*partials: Partial) -> GradientRule:
    """A rule from one partial derivative times dy for each input, of the result's shape, summed where broadcast."""

    def rule(b: Backward, op: Op) -> Mapping[int, str]:
        gradients = {}
        for index, (name, partial) in enumerate(zip(op.inputs, partials, strict=False)):
            if b.wants(index):
                gradients[index] = unbroadcast(b, partial(b, op), name, _LABELS[index])
        return gradients

    return rule


def scalar_or(scalar: GradientRule, both: GradientRule) -> GradientRule:
    """The rule `scalar` for the one-input form, `both` for two inputs."""

    def rule(b: Backward, op: Op) -> Mapping[int, str]:
        return scalar(b, op) if op.attrs.get("scalar") is not None else both(b, op)

    return rule


def _reversed(op: Op) -> bool:
    return get_bool(op.attrs, "reverse")


def _dy(b: Backward, op: Op) -> str:
    return b.dy()


def _minus_dy(b: Backward, op: Op) -> str:
    return b.emit("neg", [b.dy()], label="db")[0]


def _sub_scalar(b: Backward, op: Op) -> Mapping[int, str]:
    return {0: b.emit("neg", [b.dy()])[0] if _reversed(op) else b.dy()}


def _mul_scalar(b: Backward, op: Op) -> Mapping[int, str]:
    return {0: b.emit("mul", [b.dy()], {"scalar": op.attrs["scalar"]})[0]}


def _div_scalar(b: Backward, op: Op) -> Mapping[int, str]:
    attrs = {"scalar": op.attrs["scalar"]}
    if _reversed(op):
        return {0: b.emit("reverse_div_grad", [op.inputs[0], b.dy()], attrs)[0]}
    return {0: b.emit("div", [b.dy()], attrs)[0]}


def _pow_scalar(b: Backward, op: Op) -> Mapping[int, str]:
    attrs = {"scalar": op.attrs["scalar"]}
    if _reversed(op):
        return {0: b.emit("pow_grad_b", [op.outputs[0], b.dy()], attrs)[0]}
    return {0: b.emit("pow_grad_a", [op.inputs[0], b.dy()], attrs)[0]}


def _times(index: int, label: str) -> Partial:
    return lambda b, op: b.emit("mul", [b.dy(), op.inputs[index]], label=label)[0]


def _over_b(b: Backward, op: Op) -> str:
    return b.emit("div", [b.dy(), op.inputs[1]], label="da")[0]


def _div_grad_b(b: Backward, op: Op) -> str:
    return b.emit("div_grad_b", [op.inputs[1], op.outputs[0], b.dy()], label="db")[0]


def _pow_grad_a(b: Backward, op: Op) -> str:
    return b.emit("pow_grad_a", [*op.inputs, b.dy()], label="da")[0]


def _pow_grad_b(b: Backward, op: Op) -> str:
    return b.emit("pow_grad_b", [op.inputs[0], op.outputs[0], b.dy()], label="db")[0]


def _extremum_scalar(b: Backward, op: Op) -> Mapping[int, str]:
    attrs: Attrs = {"scalar": op.attrs["scalar"], "of": op.kind, "input": 0}
    return {0: b.emit("extremum_grad", [op.inputs[0], b.dy()], attrs)[0]}


def _extremum(index: int) -> Partial:
    def partial(b: Backward, op: Op) -> str:
        attrs: Attrs = {"of": op.kind, "input": index}
        return b.emit("extremum_grad", [*op.inputs, b.dy()], attrs, label=_LABELS[index])[0]

    return partial


def _mod_grad_b(b: Backward, op: Op) -> str:
    # y = a - q b with a whole q: db = -q dy = dy (y - a) / b.
    (difference,) = b.emit("sub", [op.outputs[0], op.inputs[0]], label="db_multiple")
    (quotient,) = b.emit("div", [difference, op.inputs[1]], label="db_quotient")
    return b.emit("mul", [b.dy(), quotient], label="db")[0]


def _masked(index: int, keep: bool) -> Partial:
    return lambda b, op: b.emit("mask", [op.inputs[0], b.dy()], {"keep": keep}, label=_LABELS[index])[0]


def gradient_mask(b: Backward, op: Op) -> Mapping[int, str]:
    """dy, masked as x was."""
    return {1: unbroadcast(b, b.emit("mask", [op.inputs[0], b.dy()], op.attrs)[0], op.inputs[1])}


def _prelu_grad_x(b: Backward, op: Op) -> str:
    return b.emit("prelu_grad_x", [*op.inputs, b.dy()])[0]


def _prelu_grad_slope(b: Backward, op: Op) -> str:
    return b.emit("prelu_grad_slope", [op.inputs[0], b.dy()], label="dslope")[0]


_LABELS = ("da", "db", "dc")
_ADD = broadcasting(_dy, _dy)
_EXTREMUM = scalar_or(_extremum_scalar, broadcasting(_extremum(0), _extremum(1)))
_GRADIENTS: Mapping[str, GradientRule] = {
    "add": scalar_or(pass_through, _ADD),
    "sub": scalar_or(_sub_scalar, broadcasting(_dy, _minus_dy)),
    "mul": scalar_or(_mul_scalar, broadcasting(_times(1, "da"), _times(0, "db"))),
    "div": scalar_or(_div_scalar, broadcasting(_over_b, _div_grad_b)),
    "pow": scalar_or(_pow_scalar, broadcasting(_pow_grad_a, _pow_grad_b)),
    "max": _EXTREMUM,
    "min": _EXTREMUM,
    "mod": broadcasting(_dy, _mod_grad_b),
}


def _refuses_mod(attrs: Attrs, outputs: Sequence[bool]) -> str | None:
    reverse = attrs.get("scalar") is not None and get_bool(attrs, "reverse")
    return "the gradient of scalar mod x is not defined" if reverse else None


_OVER_ALL = ((0, 0), (0, 1), (0, 2))

register(
    *(Kind(name=name, infer=_rule(need_number), gradient=_GRADIENTS[name], inplace=_EITHER) for name in ARITHMETIC),
    Kind(
        name="mod",
        infer=_rule(need_number),
        gradient=_GRADIENTS["mod"],
        refuses=_refuses_mod,
        inplace=_EITHER,
    ),
    Kind(name="equal", infer=_rule(None, DType.BOOL)),
    *(Kind(name=name, infer=_rule(need_number, DType.BOOL)) for name in COMPARISONS if name != "equal"),
    *(Kind(name=name, infer=_rule(need_bool), inplace=_EITHER) for name in LOGIC),
    *(Kind(name=name, infer=infer_of_result, inplace=_OVER_ALL) for name in ("div_grad_b", "pow_grad_a", "pow_grad_b")),
    Kind(name="reverse_div_grad", infer=infer_of_x, inplace=_OVER_ALL),
    Kind(name="extremum_grad", infer=infer_extremum_grad, inplace=_OVER_ALL),
    Kind(
        name="where",
        infer=infer_where,
        gradient=broadcasting(_dy, _masked(1, True), _masked(2, False)),
        inplace=((0, 1), (0, 2)),
    ),
    Kind(name="mask", infer=infer_mask, gradient=gradient_mask, inplace=((0, 1),)),
    Kind(name="prelu", infer=infer_prelu, gradient=broadcasting(_prelu_grad_x, _prelu_grad_slope), inplace=((0, 0),)),
    Kind(name="prelu_grad_x", infer=infer_of_x, inplace=_OVER_ALL),
    Kind(name="prelu_grad_slope", infer=infer_of_x, inplace=_OVER_ALL),
)

takes(*ARITHMETIC, *COMPARISONS, *LOGIC, "mod", scalar=SCALAR, reverse=optional(FLAG))
takes("mod", fmod=FLAG)
takes("pow_grad_a", "pow_grad_b", "reverse_div_grad", "extremum_grad", scalar=SCALAR)
takes("extremum_grad", of=choice("max", "min"), input=INTEGER)
takes("mask", keep=FLAG)
