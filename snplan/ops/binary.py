"""Elementwise kinds of two broadcasting inputs (or one and a `scalar`), `where`, `mask`, `prelu`; their gradients."""

from __future__ import annotations

from collections.abc import Callable

from snplan.ir import Attrs, DType, Spec
from snplan.ops.base import Infer, Kind, ShapeError, Specs, register
from snplan.ops.shapes import broadcast, broadcasts_to, need_bool, need_count, need_number, need_same_dtype, show

ARITHMETIC = ("add", "sub", "mul", "div", "pow", "max", "min", "mod")
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


register(
    *(Kind(name=name, infer=_rule(need_number), inplace=_EITHER) for name in ARITHMETIC),
    Kind(name="equal", infer=_rule(None, DType.BOOL)),
    *(Kind(name=name, infer=_rule(need_number, DType.BOOL)) for name in COMPARISONS if name != "equal"),
    *(Kind(name=name, infer=_rule(need_bool), inplace=_EITHER) for name in LOGIC),
    Kind(name="where", infer=infer_where, inplace=((0, 1), (0, 2))),
    Kind(name="mask", infer=infer_mask, inplace=((0, 1),)),
    Kind(name="prelu", infer=infer_prelu, inplace=((0, 0),)),
)
