"""Kind `fused`: elementwise ops as one, whose intermediate values never reach memory, with one softmax or sum.

Attributes say all: `parts` lists `[kind, operands, attributes]` of each op in order, `results` the values that are the
outputs. Values are numbered: the inputs first, then what the parts give. Parts work element by
element on one shape, the domain, which inputs are broadcast to; one may be a softmax of the domain, or the last a sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from snplan.ir import Attrs, DType, Op, Spec
from snplan.ops.base import KINDS, Kind, ShapeError, Specs, register
from snplan.ops.binary import ARITHMETIC, COMPARISONS, LOGIC
from snplan.ops.forms import LIST, takes
from snplan.ops.shapes import need, show
from snplan.ops.unary import GRADIENT_ZERO, SAVES_X, SAVES_Y

ELEMENTWISE = frozenset(
    {
        *SAVES_Y,
        *SAVES_X,
        *(f"{name}_grad" for name in (*SAVES_Y, *SAVES_X)),
        *GRADIENT_ZERO,
        *ARITHMETIC,
        *COMPARISONS,
        *LOGIC,
        *("neg", "not", "is_nan", "is_inf", "mod", "where", "mask", "cast"),
        *("prelu", "prelu_grad_x", "prelu_grad_slope"),
        *("div_grad_b", "pow_grad_a", "pow_grad_b", "reverse_div_grad", "extremum_grad", "dropout", "dropout_grad"),
        *("batch_norm_apply", "batch_norm_grad_apply"),
    }
)
"""Kinds whose one output's elements depend on one element of each input, broadcast to the output's shape."""
ROWS = frozenset({"softmax", "log_softmax", "softmax_grad", "log_softmax_grad"})
"""Kinds that read a row before they write any of it; one of them may be among the parts."""
REDUCING = frozenset({"batch_norm_grad_sums", "reduce_sum", "reduce_mean"})
"""Kinds that may end a fused op: sums of what the parts before them give."""

_FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One op inside a fused one; `operands` are numbers of values."""

    kind: str
    operands: tuple[int, ...]
    attrs: Attrs


def parts_of(attrs: Attrs) -> tuple[Part, ...]:
    """The parts of a fused op. Raises ShapeError where attribute `parts` is malformed."""
    rows = attrs.get("parts")
    need(isinstance(rows, list) and bool(rows), "attribute parts must list at least one part")
    return tuple(_part(row) for row in rows) if isinstance(rows, list) else ()


def _part(row: object) -> Part:
    if not isinstance(row, (list, tuple)) or len(row) != 3:
        raise ShapeError(f"a part must be a kind, its operands and its attributes, not {row!r:.80}")
    kind, operands, attrs = row
    if not isinstance(kind, str) or (kind not in ELEMENTWISE and kind not in ROWS and kind not in REDUCING):
        raise ShapeError(f"{kind!r:.80} cannot be part of a fused op")
    if not isinstance(attrs, dict) or not _are_numbers(operands):
        raise ShapeError(f"part {kind} needs numbers of values and attributes, not {operands!r:.80}, {attrs!r:.80}")
    return Part(kind=kind, operands=tuple(operands), attrs=attrs)


def _are_numbers(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(type(item) is int and item >= 0 for item in value)


def results_of(attrs: Attrs) -> tuple[int, ...]:
    """The numbers of the values that a fused op writes. Raises ShapeError."""
    results = attrs.get("results")
    if not isinstance(results, (list, tuple)) or not results or not _are_numbers(results):
        raise ShapeError(f"attribute results must list numbers of values, it is {results!r:.80}")
    return tuple(number for number in results if isinstance(number, int))


def is_reducing(attrs: Attrs) -> bool:
    """Whether the last part of a fused op is a reduction."""
    return parts_of(attrs)[-1].kind in REDUCING


def arithmetic(dtypes: Sequence[DType]) -> str | None:
    """The arithmetic, "float" or "double", of tensors of these types; None where parts cannot share one."""
    numbers = {dtype for dtype in dtypes if dtype is not DType.BOOL}
    if numbers <= {*_FLOATS}:
        return "float"
    return "double" if numbers == {DType.FLOAT64} else None


def _walk(specs: Specs, attrs: Attrs) -> Iterator[tuple[Part, list[Spec], tuple[Spec, ...]]]:
    """Each part with the specs of its operands and of what it gives."""
    values = list(specs)
    for part in parts_of(attrs):
        need(all(number < len(values) for number in part.operands), f"part {part.kind} reads a later value")
        operands = [values[number] for number in part.operands]
        found = KINDS[part.kind].infer(operands, part.attrs)
        yield part, operands, found
        values.extend(found)


def infer_fused(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """What `results` says: of the domain's shape, or all that the last part's reduction gives."""
    walked = list(_walk(specs, attrs))
    values = [*specs, *(spec for _, _, found in walked for spec in found)]
    last, operands, given = walked[-1]
    reducing = last.kind in REDUCING
    elementwise = [found[0] for part, _, found in walked if part.kind not in REDUCING]
    need(len(elementwise) == len(walked) - reducing, "only the last part may be a reduction")
    rows = sum(part.kind in ROWS for part, _, _ in walked)
    need(rows + reducing <= 1, "only one part may be a softmax or a sum")
    domain = operands[0].shape if reducing else given[0].shape
    for spec in elementwise:
        need(spec.shape == domain, f"a part gives {show(spec)}, the op works on {list(domain)}")
    need(arithmetic([spec.dtype for spec in values]) is not None, "values must be of floating-point types, or bool")
    results = results_of(attrs)
    made = range(len(values) - len(given), len(values)) if reducing else range(len(specs), len(values))
    need(all(number in made for number in results), f"results {list(results)} are not what the parts give")
    return tuple(values[number] for number in results)


def overwrites(op: Op) -> tuple[tuple[int, int], ...]:
    """(output, input) pairs: every output may take the bytes of any input of as many; those of a reduction may not."""
    if is_reducing(op.attrs):
        return ()
    return tuple((output, index) for output in range(len(op.outputs)) for index in range(len(op.inputs)))


def fused_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """The operations of all parts."""
    return sum(KINDS[part.kind].flops(operands, found, part.attrs) for part, operands, found in _walk(inputs, attrs))


register(Kind(name="fused", infer=infer_fused, pairs=overwrites, flops=fused_flops))

takes("fused", parts=LIST, results=LIST)
