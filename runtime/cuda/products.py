"""Matrix products as cuBLASLt takes them: column-major matrices with a leading dimension, and one batch axis.

A row-major `y = op(a) @ op(b)` of M rows and N columns is the column-major product `y^T = op(b)^T @ op(a)^T`, so the
library's first matrix is b, its second a, and its result has N rows. Strides say which of them is read transposed.
Leading axes are folded into the rows where the bytes allow, else the largest becomes the library's batch, and every
index of the others is a product of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from snplan.codegen.operand import Ints, Operand, broadcast
from snplan.errors import RunError


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A column-major matrix as stored: `rows` by `columns`, `ld` elements between columns, `batch` between matrices."""

    rows: int
    columns: int
    ld: int
    transposed: bool = False
    batch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One library call over `count` matrices: `y = first @ second`; `offsets` (elements) are from b, a and y."""

    first: Matrix
    second: Matrix
    result: Matrix
    count: int
    offsets: tuple[int, int, int]


# An axis of the batch: its size, and the strides of a, b and y along it.
Axis = tuple[int, tuple[int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    m: int
    n: int
    k: int
    # Strides of rows and columns of op(a), op(b) and y.
    a: tuple[int, int]
    b: tuple[int, int]
    y: tuple[int, int]


def products(a: Operand, b: Operand, y: Operand, *, trans_a: bool, trans_b: bool) -> list[Product]:
    """The calls that compute `y = op(a) @ op(b)`; none where y is empty.

    Raises RunError (SNP-R055) for a matrix with a gap between elements in both of its axes.
    """
    if y.elements == 0:
        return []
    a, b = (_swapped(x) if flag else x for x, flag in ((a, trans_a), (b, trans_b)))
    lead = y.shape[:-2]
    aligned = [broadcast(x, (*lead, *x.shape[-2:])) for x in (a, b)] + [y]
    axes = [(n, (aligned[0].strides[i], aligned[1].strides[i], y.strides[i])) for i, n in enumerate(lead) if n != 1]
    sizes = _Sizes(m=y.shape[-2], n=y.shape[-1], k=a.shape[-1], a=_last_two(a), b=_last_two(b), y=_last_two(y))
    sizes, axes = _fold(sizes, axes)
    axes = _merge(axes)
    batch = max(range(len(axes)), key=lambda i: axes[i][0], default=None)
    inner = (1, (0, 0, 0)) if batch is None else axes[batch]
    outer = [axis for i, axis in enumerate(axes) if i != batch]
    return [_product(sizes, inner, offsets) for offsets in _offsets(outer)]


def _last_two(x: Operand) -> tuple[int, int]:
    return x.strides[-2], x.strides[-1]


def _swapped(x: Operand) -> Operand:
    *lead, rows, columns = range(x.rank)
    order = (*lead, columns, rows)
    return replace(x, shape=tuple(x.shape[i] for i in order), strides=tuple(x.strides[i] for i in order))


def _fold(sizes: _Sizes, axes: list[Axis]) -> tuple[_Sizes, list[Axis]]:
    """Inner batch axes that b does not have become rows of a and y, where these run on evenly."""
    while axes:
        size, (sa, sb, sy) = axes[-1]
        if sb != 0 or sa != sizes.m * sizes.a[0] or sy != sizes.m * sizes.y[0]:
            break
        sizes, axes = replace(sizes, m=sizes.m * size), axes[:-1]
    return sizes, axes


def _merge(axes: Sequence[Axis]) -> list[Axis]:
    """Neighbouring axes in one where all three operands run on evenly."""
    merged: list[Axis] = []
    for size, strides in axes:
        if merged and merged[-1][1] == tuple(size * stride for stride in strides):
            merged[-1] = (merged[-1][0] * size, strides)
        else:
            merged.append((size, strides))
    return merged


def _offsets(axes: Sequence[Axis]) -> Iterator[tuple[int, int, int]]:
    """Offsets of a, b and y for every index of `axes`."""
    for index in product(*(range(size) for size, _ in axes)):
        sums = [sum(i * strides[k] for i, (_, strides) in zip(index, axes, strict=True)) for k in range(3)]
        yield sums[0], sums[1], sums[2]


def _product(sizes: _Sizes, batch: Axis, offsets: tuple[int, int, int]) -> Product:
    count, (sa, sb, sy) = batch
    first = _matrix(sizes.n, sizes.k, (sizes.b[1], sizes.b[0]), "b")
    second = _matrix(sizes.k, sizes.m, (sizes.a[1], sizes.a[0]), "a")
    result = _matrix(sizes.n, sizes.m, (sizes.y[1], sizes.y[0]), "y")
    if result.transposed:
        raise RunError("SNP-R055", "a matrix product cannot write a result whose rows are not contiguous")
    return Product(
        first=replace(first, batch=sb),
        second=replace(second, batch=sa),
        result=replace(result, batch=sy),
        count=count,
        offsets=(offsets[1], offsets[0], offsets[2]),
    )


def _matrix(rows: int, columns: int, strides: Ints, name: str) -> Matrix:
    """The column-major matrix of `rows` by `columns` with these strides, stored transposed where its rows run on."""
    down, across = strides
    if down == 1 or rows == 1:
        return Matrix(rows=rows, columns=columns, ld=max(across, rows) if columns > 1 else rows)
    if across == 1 or columns == 1:
        return Matrix(rows=columns, columns=rows, ld=max(down, columns), transposed=True)
    raise RunError(
        "SNP-R055", f"{name} of a matrix product has gaps in both axes (strides {down} and {across}): keep it plain"
    )
