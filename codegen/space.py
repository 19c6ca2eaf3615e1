"""Index spaces: one number counts through axes, and C++ code turns it into an offset for each operand.

Axes are sorted as they lie in memory and merged where every operand runs on evenly, so that the usual case is one axis
without any arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from snplan.codegen.launch import Param
from snplan.codegen.operand import Ints, Operand

_SAFE = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Axes from outer to inner: sizes, and for each operand its strides; `offsets` are the operands' own."""

    sizes: Ints
    strides: tuple[Ints, ...]
    offsets: Ints

    @property
    def count(self) -> int:
        """Number of index tuples."""
        return prod(self.sizes)

    @property
    def params(self) -> tuple[Param, ...]:
        """What code rendered from this space depends on: all but the outermost size, which bounds the count alone."""
        return (len(self.sizes), self.sizes[1:], self.strides, self.offsets)

    def pick(self, operands: Sequence[int]) -> Space:
        """The space of some operands alone."""
        return Space(
            sizes=self.sizes,
            strides=tuple(self.strides[k] for k in operands),
            offsets=tuple(self.offsets[k] for k in operands),
        )

    def code(self, index: str, names: Sequence[str], kind: str) -> list[str]:
        """Lines that declare `names[k]`, the offset of operand k at `index`, in the integer type `kind`."""
        lines, coordinates = _coordinates(index, self.sizes, kind, names[0] if names else index)
        for name, strides, offset in zip(names, self.strides, self.offsets, strict=True):
            lines.append(f"const {kind} {name} = {linear(coordinates, strides, offset, kind)};")
        return lines


def _coordinates(index: str, sizes: Ints, kind: str, prefix: str) -> tuple[list[str], list[str]]:
    """Lines that split `index`, and the expression of each coordinate."""
    if len(sizes) < 2:
        return [], [index] * len(sizes)
    lines, rest = [], index
    names = [f"{prefix}_c{axis}" for axis in range(len(sizes))]
    for axis in range(len(sizes) - 1, 0, -1):
        lines.append(f"const {kind} {prefix}_q{axis} = {rest} / {sizes[axis]};")
        lines.append(f"const {kind} {names[axis]} = {rest} - {prefix}_q{axis} * {sizes[axis]};")
        rest = f"{prefix}_q{axis}"
    lines.append(f"const {kind} {names[0]} = {rest};")
    return lines, names


def linear(names: Sequence[str], strides: Sequence[int], offset: int = 0, kind: str = "i64") -> str:
    """The expression of `offset + sum(names * strides)`."""
    terms = [
        name if stride == 1 else f"{name} * {stride}" for name, stride in zip(names, strides, strict=True) if stride
    ]
    if offset or not terms:
        terms.append(str(offset))
    return f"({kind})({' + '.join(terms)})" if len(terms) > 1 or kind != "i64" else terms[0]


def space_of(operands: Sequence[Operand], lead: int = 0) -> Space:
    """The space of operands of one shape, its axes in the physical order of operand `lead`, merged."""
    shape = operands[lead].shape
    order = sorted((i for i, n in enumerate(shape) if n != 1), key=lambda i: (-abs(operands[lead].strides[i]), i))
    axes = _merged([(shape[i], tuple(x.strides[i] for x in operands)) for i in order])
    return Space(
        sizes=tuple(size for size, _ in axes),
        strides=tuple(tuple(strides[k] for _, strides in axes) for k in range(len(operands))),
        offsets=tuple(x.offset for x in operands),
    )


def logical_space(operands: Sequence[Operand]) -> Space:
    """The space of operands of one shape in logical, row-major order: an index is an element's number."""
    shape = operands[0].shape
    axes = _merged([(n, tuple(x.strides[i] for x in operands)) for i, n in enumerate(shape) if n != 1])
    return Space(
        sizes=tuple(size for size, _ in axes),
        strides=tuple(tuple(strides[k] for _, strides in axes) for k in range(len(operands))),
        offsets=tuple(x.offset for x in operands),
    )


def _merged(axes: Sequence[tuple[int, Ints]]) -> list[tuple[int, Ints]]:
    """Neighbouring axes in one where for all operands the outer stride is the inner axis's whole length."""
    merged: list[tuple[int, Ints]] = []
    for size, strides in axes:
        if merged and merged[-1][1] == tuple(size * stride for stride in strides):
            merged[-1] = (merged[-1][0] * size, strides)
        else:
            merged.append((size, strides))
    return merged


def vector_width(space: Space, limit: int) -> int:
    """How many neighbours (a power of two up to `limit`) every operand can read or write at once.

    Along the innermost axis each must run with stride 1, or stay; all other strides and offsets must keep alignment.
    An axis alone needs no even length: the kernel guards its tail.
    """
    if not space.sizes or any(strides[-1] not in (0, 1) for strides in space.strides):
        return 1
    bound = limit
    if len(space.sizes) > 1:
        bound = gcd(bound, space.sizes[-1])
    for strides, offset in zip(space.strides, space.offsets, strict=True):
        if strides[-1] == 1:
            bound = gcd(bound, offset, *strides[:-1])
    return bound


def in_vectors(space: Space, width: int) -> Space:
    """`space` with `width` neighbours counted as one index; strides stay in elements."""
    if width == 1:
        return space
    return Space(
        sizes=(*space.sizes[:-1], -(-space.sizes[-1] // width)),
        strides=tuple((*strides[:-1], strides[-1] * width) for strides in space.strides),
        offsets=space.offsets,
    )


def index_type(operands: Sequence[Operand], *counts: int) -> str:
    """The integer type for offsets: 32 bits where every operand and count is small enough, else 64."""
    reach = [x.extent() for x in operands]
    return "int" if max((*reach, *counts), default=0) < _SAFE - 4096 else "i64"


def coordinate_code(x: Operand, width: int, kind: str, index: str = "i") -> list[str]:
    """Lines that declare `c0`, `c1`, ..., the logical coordinates of element `index` of `x` in its physical order.

    With `width`, `index` counts groups of that many neighbours along the innermost axis; coordinates are the first's.
    """
    order = sorted(range(x.rank), key=lambda i: (x.shape[i] != 1, -abs(x.strides[i]), i))
    sizes = [x.shape[i] for i in order]
    if sizes:
        sizes[-1] //= width
    lines, rest = [], index
    for place in range(len(order) - 1, 0, -1):
        lines.append(f"const {kind} q{place} = {rest} / {sizes[place]};")
        lines.append(
            f"const {kind} c{order[place]} = {scaled(f'{rest} - q{place} * {sizes[place]}', place, order, width)};"
        )
        rest = f"q{place}"
    if order:
        lines.append(f"const {kind} c{order[0]} = {scaled(rest, 0, order, width)};")
    return lines


def scaled(expression: str, place: int, order: Sequence[int], width: int) -> str:
    """`expression`, times the width where it counts groups: along the innermost axis."""
    return f"({expression}) * {width}" if place == len(order) - 1 and width > 1 else expression


def channel_width(operands: Sequence[Operand], limit: int) -> int:
    """How many neighbouring channels (axis 1) of every operand can be read or written at once."""
    bound = gcd(limit, operands[0].shape[1])
    for x in operands:
        if x.strides[1] != 1:
            return 1
        bound = gcd(
            bound, x.offset, *(s for i, (n, s) in enumerate(zip(x.shape, x.strides, strict=True)) if i != 1 and n > 1)
        )
    return bound
