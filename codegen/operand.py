"""Tensors as kernels see them: element type, logical shape, and where each element is (strides in elements).

Two physical orders exist: "plain" is row-major; "channels_last" puts axis 1 innermost (NHWC, NDHWC). Strides express
both, and everything a view or a broadcast makes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import Literal, TypeAlias

from snplan.errors import RunError
from snplan.ir import DType, Spec

Order: TypeAlias = Literal["plain", "channels_last"]
Ints: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A tensor in device memory: element [0, ..., 0] is `offset` elements after its address."""

    dtype: DType
    shape: Ints
    strides: Ints
    offset: int = 0

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def plain(self) -> bool:
        """Whether it is row-major without gaps."""
        return self.follows(row_major(self.shape))

    @property
    def channels_last(self) -> bool:
        """Whether axis 1 is innermost and the others are row-major, without gaps."""
        return self.rank >= 2 and self.follows(strides_of(self.shape, "channels_last"))

    def follows(self, strides: Ints) -> bool:
        """Whether its strides are `strides`; those of axes of one element do not count."""
        rows = zip(self.shape, self.strides, strides, strict=True)
        return self.elements == 0 or (self.offset == 0 and all(n == 1 or a == b for n, a, b in rows))

    def extent(self) -> int:
        """Largest distance, in elements, of any element from the address."""
        reach = sum(abs(stride) * (size - 1) for size, stride in zip(self.shape, self.strides, strict=True))
        return abs(self.offset) + max(reach, 0)


def row_major(shape: Sequence[int]) -> Ints:
    """Strides of a row-major tensor."""
    return tuple(accumulate(reversed(shape[1:]), lambda a, b: a * b, initial=1))[::-1] if shape else ()


def strides_of(shape: Sequence[int], order: Order) -> Ints:
    """Strides of a tensor of `shape` in a physical order; below rank 3 both orders are the same."""
    if order == "plain" or len(shape) < 3:
        return row_major(shape)
    batch, *space, channel = row_major((shape[0], *shape[2:], shape[1]))
    return (batch, channel, *space)


def operand(spec: Spec, order: Order = "plain", view: Sequence[int] | None = None) -> Operand:
    """A whole tensor, read under the shape `view` where one is given.

    Raises RunError (SNP-R040) where the physical order cannot be read under that shape without a copy.
    """
    whole = Operand(dtype=spec.dtype, shape=spec.shape, strides=strides_of(spec.shape, order))
    if view is None or tuple(view) == spec.shape:
        return whole
    strides = viewed_strides(whole, tuple(view))
    if strides is None:
        message = f"{spec.dtype}{list(spec.shape)} in channels-last order cannot be read as {list(view)}"
        raise RunError("SNP-R040", f"{message}; keep the tensor plain")
    return replace(whole, shape=tuple(view), strides=strides)


def viewed_strides(x: Operand, shape: Ints) -> Ints | None:
    """Strides under which the elements of `x`, in logical order, have `shape`; None where there are none."""
    if x.elements == 0 or x.plain:
        return row_major(shape)
    runs = _runs([(n, s) for n, s in zip(x.shape, x.strides, strict=True) if n != 1])
    strides: list[int] = []
    run, left = 0, runs[0][0]
    for size in shape:
        if size == 1:
            strides.append(0)
            continue
        if left == 1:
            run += 1
            left = runs[run][0]
        if left % size:
            return None
        left //= size
        strides.append(runs[run][1] * left)
    return tuple(strides)


def _runs(axes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """(size, stride) of axes, neighbours merged where together they are one evenly spaced line."""
    merged: list[tuple[int, int]] = []
    for size, stride in axes:
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return merged


def broadcast(x: Operand, shape: Ints) -> Operand:
    """`x` repeated to `shape` by NumPy's rules: stride 0 along what repeats."""
    lead = len(shape) - x.rank
    repeated = tuple(
        0 if i < lead or x.shape[i - lead] != size else x.strides[i - lead] for i, size in enumerate(shape)
    )
    return replace(x, shape=shape, strides=repeated)


def transposed(x: Operand, perm: Sequence[int]) -> Operand:
    """`x` with its axes in the order `perm`."""
    return replace(x, shape=tuple(x.shape[i] for i in perm), strides=tuple(x.strides[i] for i in perm))


def sliced(x: Operand, starts: Sequence[int], steps: Sequence[int], sizes: Sequence[int]) -> Operand:
    """The elements `starts + i * steps` of `x`."""
    offset = x.offset + sum(start * stride for start, stride in zip(starts, x.strides, strict=True))
    strides = tuple(step * stride for step, stride in zip(steps, x.strides, strict=True))
    return replace(x, shape=tuple(sizes), strides=strides, offset=offset)


def part(x: Operand, axis: int, start: int, size: int) -> Operand:
    """`size` entries of `x` from `start` along an axis."""
    starts = [start if i == axis else 0 for i in range(x.rank)]
    sizes = [size if i == axis else n for i, n in enumerate(x.shape)]
    return sliced(x, starts, [1] * x.rank, sizes)


def without(x: Operand, axes: Sequence[int]) -> Operand:
    """`x` at entry 0 of `axes`, which are left out."""
    left = [i for i in range(x.rank) if i not in axes]
    return replace(x, shape=tuple(x.shape[i] for i in left), strides=tuple(x.strides[i] for i in left))


def with_ones(x: Operand, axes: Sequence[int], rank: int) -> Operand:
    """`x` with axes of one element put in at `axes`, so that it has `rank`; itself where it has that already."""
    if x.rank == rank:
        return x
    pairs = iter(zip(x.shape, x.strides, strict=True))
    rows = [(1, 0) if i in axes else next(pairs) for i in range(rank)]
    return replace(x, shape=tuple(n for n, _ in rows), strides=tuple(s for _, s in rows))


def only(x: Operand, axes: Sequence[int]) -> Operand:
    """The axes `axes` of `x` alone, at entry 0 of the others."""
    return without(x, [i for i in range(x.rank) if i not in axes])
