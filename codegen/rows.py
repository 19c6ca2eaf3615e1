"""Launches of kernels that reduce along a row, use the totals in the same row again, and write it: softmax, layer norm.

A group of threads holds a row: a warp for short rows, a block for long ones, one thread where rows do not lie along
memory (neighbouring threads then have neighbouring rows). Rows that fit into registers are read once; longer ones are
read again in each stage. All of a row is read before any of it is written, so outputs may overwrite inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from snplan.codegen.call import Access
from snplan.codegen.launch import Argument, Launch, Param, Scalar, source
from snplan.codegen.operand import Operand, only, without
from snplan.codegen.scalars import item_bytes, quotient
from snplan.codegen.space import Space, in_vectors, index_type, space_of

_BLOCK = 256
# Most elements of a row that one thread keeps in registers.
_HELD = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One total over the row: `values` are added to the monoid, the total is `t0`, `t1`, ...; then `after` follows."""

    monoid: str
    values: tuple[str, ...]
    start: str = ""
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBody:
    """What happens to a row, as C++.

    Inputs are `a0`, ... in stages and results, those that only results use `l0`, ...; inputs of one value a row are
    `b0`, ..., `column` is the element's number in the row, `first` tells one thread of the row. Rows that do not fit
    into registers are read once for each of `long_stages`, where there are any: fewer reads for more arithmetic.
    Statements: `lines` for each element, before it is used in a stage or result, `late_lines` before results only,
    `prepare` once for `V` neighbours, where `e0_at` is the row-major number of the first. `limit` is the most of them.
    """

    compute: str
    stages: tuple[Stage, ...]
    long_stages: tuple[Stage, ...] = ()
    results: tuple[str, ...] = ()
    row_results: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    extra: tuple[tuple[str, Argument], ...] = ()
    lines: tuple[str, ...] = ()
    late_lines: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    limit: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """The operands of a row kernel: whole tensors of one shape, and tensors of the shape without the row's axes.

    `numbers` has no memory: its strides make `e0_at` of an element's position, and `e0` its own.
    """

    inputs: tuple[Access, ...]
    outputs: tuple[Access, ...] = ()
    late: tuple[Access, ...] = ()
    row_inputs: tuple[Access, ...] = ()
    row_outputs: tuple[Access, ...] = ()
    numbers: Operand | None = None

    @property
    def seen(self) -> list[Operand]:
        """What is placed along the row: the whole tensors, then the numbers."""
        return [*(x.operand for x in self.whole), *([] if self.numbers is None else [self.numbers])]

    @property
    def whole(self) -> tuple[Access, ...]:
        """Operands that move along the row."""
        return (*self.inputs, *self.late, *self.outputs)

    @property
    def all(self) -> tuple[Access, ...]:
        """All operands, in the order of the parameters."""
        return (*self.whole, *self.row_inputs, *self.row_outputs)

    @property
    def names(self) -> list[str]:
        """Names of all operands."""
        groups = zip("aloby", (self.inputs, self.late, self.outputs, self.row_inputs, self.row_outputs), strict=True)
        return [f"{letter}{k}" for letter, group in groups for k in range(len(group))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    group: int
    width: int
    items: int


def rows(stem: str, tensors: Tensors, axes: Sequence[int], body: RowBody) -> tuple[Launch, ...]:
    """The launch over all rows along `axes`; none without rows."""
    kept = space_of(
        [
            *(without(x, axes) for x in tensors.seen),
            *(x.operand for x in (*tensors.row_inputs, *tensors.row_outputs)),
        ]
    )
    along = space_of([only(x, axes) for x in tensors.seen])
    if kept.count == 0:
        return ()
    shape = _shape(tensors, kept, along, body.limit)
    kind = index_type([x.operand for x in tensors.all])
    block = max(shape.group, _BLOCK)
    length = along.count // shape.width
    return (
        Launch(
            source=source("rows", stem, **_text(tensors, body, kept, along, shape, kind), block=block),
            grid=(quotient(kept.count, block // shape.group), 1, 1),
            block=(block, 1, 1),
            arguments=(
                *(x.argument for x in tensors.all),
                Scalar("int64", kept.count),
                Scalar("int64", length),
                *(argument for _, argument in body.extra),
            ),
        ),
    )


def _shape(tensors: Tensors, kept: Space, along: Space, limit: int) -> _Shape:
    inner = abs(along.strides[0][-1]) if along.sizes else 0
    outer = min((abs(s) for s in kept.strides[0]), default=2**63)
    if inner > outer and kept.count > 1:
        return _Shape(group=1, width=1, items=0)
    width = _width(tensors, kept, along, limit)
    length = along.count // width
    group = next((g for g in (32, 256) if length * width <= g * _HELD), 1024)
    items = 1 << max(quotient(length, group) - 1, 0).bit_length()
    return _Shape(group=group, width=width, items=items if items * width <= _HELD else 0)


def _width(tensors: Tensors, kept: Space, along: Space, limit: int) -> int:
    limit = max(1, min(limit, 16 // item_bytes(tensors.inputs[0].operand.dtype)))
    count = len(tensors.seen)
    if not along.sizes or any(along.strides[k][-1] not in (0, 1) for k in range(count)):
        return 1
    bound = gcd(limit, along.sizes[-1])
    for k in range(count):
        if along.strides[k][-1] == 1:
            bound = gcd(bound, along.offsets[k], *along.strides[k][:-1], *kept.strides[k])
    return bound


def _placed(tensors: Tensors) -> list[str]:
    """Names of the operands of the kept space."""
    names, whole = tensors.names, len(tensors.whole)
    return [*names[:whole], *([] if tensors.numbers is None else ["e0"]), *names[whole:]]


def _numbered(tensors: Tensors, moving: Space, kind: str) -> tuple[str, ...]:
    """Lines that declare `e0_at`, the number of the first of `V` neighbours, where elements are numbered."""
    if tensors.numbers is None:
        return ()
    lines = moving.pick([len(tensors.whole)]).code("r", ["e0_along"], kind)
    return (*lines, "const i64 e0_at = (i64)(e0_kept + e0_along);")


def _number(tensors: Tensors, along: Space) -> tuple[str, ...]:
    """The line that declares `e0`, the number of the element."""
    if tensors.numbers is None:
        return ()
    moves = bool(along.sizes) and along.strides[len(tensors.whole)][-1] != 0
    return (f"const i64 e0 = e0_at{' + j' if moves else ''};",)


def _text(tensors: Tensors, body: RowBody, kept: Space, along: Space, shape: _Shape, kind: str) -> dict[str, Param]:
    names, whole = tensors.names, len(tensors.whole)
    writable = {f"o{k}" for k in range(len(tensors.outputs))} | {f"y{k}" for k in range(len(tensors.row_outputs))}
    pointers = [
        f"{'' if name in writable else 'const '}{x.type}* p_{name}" for name, x in zip(names, tensors.all, strict=True)
    ]
    vectors = in_vectors(along, shape.width)
    moving = Space(sizes=vectors.sizes, strides=vectors.strides, offsets=(0,) * len(vectors.strides))
    moves = [bool(along.sizes) and along.strides[k][-1] != 0 for k in range(whole)]
    stages = body.stages if shape.items or not body.long_stages else body.long_stages
    first, second = len(tensors.inputs), len(tensors.inputs) + len(tensors.late)
    described = [(name, x.type, moves[k]) for k, (name, x) in enumerate(zip(names, tensors.whole, strict=False))]
    return {
        "compute": body.compute,
        "kind": kind,
        "width": shape.width,
        "group": shape.group,
        "items": shape.items,
        "parameters": ", ".join([*pointers, "i64 rows", "i64 length", *(text for text, _ in body.extra)]),
        "kept": tuple(kept.code("o", [f"{name}_kept" for name in _placed(tensors)], kind)),
        "along": tuple(
            tuple(moving.pick(range(*span)).code("r", [f"{n}_at" for n in names[slice(*span)]], kind))
            for span in ((0, first), (first, second), (second, whole))
        ),
        "numbered": _numbered(tensors, moving, kind),
        "prepare": body.prepare,
        "lines": (*_number(tensors, along), *body.lines),
        "late_lines": body.late_lines,
        "inputs": tuple(described[:first]),
        "late": tuple(described[first:second]),
        "outputs": tuple((*d[:2], r) for d, r in zip(described[second:], body.results, strict=True)),
        "row_inputs": tuple(f"b{k}" for k in range(len(tensors.row_inputs))),
        "row_outputs": tuple(
            (f"y{k}", x.type, r) for k, (x, r) in enumerate(zip(tensors.row_outputs, body.row_results, strict=True))
        ),
        "stages": tuple((s.monoid, s.start, ", ".join(s.values), s.after) for s in stages),
        "before": body.before,
    }
