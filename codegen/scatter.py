"""Builders of writes at indices held in a tensor: gradients of gathers, and scatters.

Updates go to *rows* of the result: an index tuple names a row, an update is a row's worth of columns. A block owns a
tile of rows and columns, keeps it in shared memory, walks through all updates in order and takes those for its rows.
So every sum runs in index order, whatever the device, without atomics; and of equal rows the last update wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from snplan.codegen.call import Access, Call, builds, reads, writes
from snplan.codegen.fold import Fold, fold
from snplan.codegen.gather import REPORT
from snplan.codegen.launch import Launch, Scalar, source
from snplan.codegen.operand import Operand, only, row_major, transposed
from snplan.codegen.reduce import WORK, scratch, with_scratch
from snplan.codegen.scalars import SIZES, accumulator, quotient
from snplan.codegen.space import logical_space

_BLOCK = 256
# Bytes of the tile in shared memory: several blocks fit on a multiprocessor.
_TILE_BYTES = 16384
_ENOUGH_BLOCKS = 132
_MOST_SPLITS = 64
# Updates that a block should have before they are split between blocks.
_SHARE = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A scatter as rows and columns.

    result, updates   (row axes, column axes) of each: update axes count updates
    row               statements that declare `row` (-1: none) of update `i`
    reduction         "add", "none", "mul", "max" or "min"; `initial` says whether the result starts as input 0
    """

    result: tuple[Sequence[int], Sequence[int]]
    updates: tuple[Sequence[int], Sequence[int]]
    row: tuple[str, ...]
    reduction: str
    initial: bool


_COMBINED = {
    "add": "old + update",
    "none": "update",
    "mul": "old * update",
    "max": "largest(old, update)",
    "min": "smallest(old, update)",
}


def _index(name: str, value: str, size: int) -> tuple[str, ...]:
    return (
        f"i64 {name} = (i64)({value});",
        f"{name} += {name} < 0 ? {size} : 0;",
        f"valid = valid && {name} >= 0 && {name} < {size};",
    )


def _declared(lines: Sequence[str], number: str) -> tuple[str, ...]:
    """`lines`, then `row` as `number`, or -1 and a report where an index is out of range."""
    return ("bool valid = true;", *lines, f"const i64 row = valid ? {number} : -1;", "if (!valid) report(control, op);")


def scatter(call: Call, indices: Access, updates: Access, rows: Rows) -> Sequence[Launch]:
    """The launch, or two where few tiles make it worth to split the updates and add partial sums."""
    y = call.outputs[0]
    compute = accumulator(y.dtype)
    row_axes, column_axes = rows.result
    row_count, width = (prod(y.shape[i] for i in axes) for axes in rows.result)
    count = prod(updates.operand.shape[i] for i in rows.updates[0])
    if y.elements == 0:
        return ()
    columns = min(_BLOCK, 1 << max(width - 1, 0).bit_length())
    lines = max(1, min(_TILE_BYTES // (columns * SIZES[compute]), 1 << max(row_count - 1, 0).bit_length()))
    tiles = quotient(row_count, lines) * quotient(width, columns)
    splits = 1
    if rows.reduction == "add" and not rows.initial and tiles < _ENOUGH_BLOCKS:
        splits = max(1, min(quotient(2 * _ENOUGH_BLOCKS, tiles), count // _SHARE, _MOST_SPLITS))
    target = writes(call)
    if splits > 1:
        shape = tuple(y.shape[i] for i in (*row_axes, *column_axes))
        whole = scratch(WORK[compute], (splits, *shape))
        piece = Operand(dtype=WORK[compute], shape=shape, strides=row_major(shape))
        target = replace(whole, operand=transposed(piece, _inverse((*row_axes, *column_axes))))
    launch = _launch(call, indices, updates, target, rows, compute, (lines, columns, splits), (row_count, width, count))
    if splits == 1:
        return (launch,)
    joined = transposed(y, [*row_axes, *column_axes])
    body = Fold(compute=compute, monoid=f"Sum<{compute}>", size=SIZES[compute], values=("a0",), results=("t.v",))
    held = splits * y.elements * SIZES[compute]
    return with_scratch(held, [launch], fold("scatter_total", [whole], [0], [writes(call, 0, joined)], body, held))


def _inverse(perm: Sequence[int]) -> list[int]:
    return [perm.index(i) for i in range(len(perm))]


def _launch(
    call: Call,
    indices: Access,
    updates: Access,
    target: Access,
    rows: Rows,
    compute: str,
    tile: tuple[int, int, int],
    counts: tuple[int, int, int],
) -> Launch:
    lines, columns, splits = tile
    row_count, width, count = counts
    results = [target.operand, *([call.inputs[0]] if rows.initial else [])]
    names = ["y", "x"][: len(results)]
    along = [only(x, rows.result[0]) for x in results], [only(x, rows.result[1]) for x in results]
    flat = [replace(x, offset=0) for x in along[1]]
    pieces = [only(updates.operand, axes) for axes in rows.updates]
    text = source(
        "scatter",
        call.kind,
        compute=compute,
        result=target.type,
        update=updates.type,
        index=indices.type,
        initial=rows.initial,
        lines=lines,
        columns=columns,
        row=rows.row,
        row_at=tuple(
            logical_space([replace(x, offset=k.offset) for x, k in zip(along[0], results, strict=True)]).code(
                "r", [f"{n}_row" for n in names], "i64"
            )
        ),
        column_at=tuple(logical_space(flat).code("c", [f"{n}_column" for n in names], "i64")),
        update_row=tuple(
            logical_space([replace(pieces[0], offset=updates.operand.offset)]).code("i", ["u_row"], "i64")
        ),
        update_column=tuple(logical_space([replace(pieces[1], offset=0)]).code("c", ["u_column"], "i64")),
        combined=_COMBINED[rows.reduction],
    )
    arguments = [
        target.argument,
        *([reads(call, 0).argument] if rows.initial else []),
        indices.argument,
        updates.argument,
    ]
    numbers = [row_count, width, count, quotient(count, splits), target.operand.elements if splits > 1 else 0]
    grid = (quotient(row_count, lines) * quotient(width, columns), splits, 1)
    return Launch(
        source=text,
        grid=grid,
        block=(_BLOCK, 1, 1),
        arguments=(*arguments, *(Scalar("int64", n) for n in numbers), *(argument for _, argument in REPORT)),
    )


def _rest(rank: int, axes: Sequence[int]) -> list[int]:
    return [i for i in range(rank) if i not in axes]


def _flat_index(indices: Operand) -> tuple[str, ...]:
    """Statements that declare `at`, where index number `i` is."""
    return tuple(logical_space([indices]).code("i", ["at"], "i64"))


@builds("gather_grad")
def gather_grad(call: Call) -> Sequence[Launch]:
    """dy summed where its entries were read."""
    indices, axis = call.inputs[0], call.attrs["axis"]
    y = call.outputs[0]
    counted = list(range(axis, axis + indices.rank))
    lines = (*_flat_index(indices), *_index("found", "p_i[at]", y.shape[axis]))
    rows = Rows(
        result=([axis], _rest(y.rank, [axis])),
        updates=(counted, _rest(call.inputs[1].rank, counted)),
        row=_declared(lines, "found"),
        reduction="add",
        initial=False,
    )
    return scatter(call, reads(call, 0), reads(call, 1), rows)


def _tuple_rows(call: Call, first: int, batch: int, reduction: str, *, initial: bool) -> Sequence[Launch]:
    """Index tuples, as GatherND reads them; input `first` holds them, the next one the updates."""
    indices, updates, y = call.inputs[first], call.inputs[first + 1], call.outputs[0]
    depth, lead = indices.shape[-1], batch + indices.shape[-1]
    shape = indices.shape[:-1]
    positions = [only(indices, range(indices.rank - 1))]
    numbers = [
        replace(positions[0], strides=tuple(int(i == k) for i in range(len(shape))), offset=0) for k in range(batch)
    ]
    names = ["at", *(f"batch{k}" for k in range(batch))]
    lines = list(logical_space([replace(positions[0], offset=indices.offset), *numbers]).code("i", names, "i64"))
    number = "0"
    for k in range(batch):
        number = f"({number} * {y.shape[k]} + batch{k})"
    for k in range(depth):
        lines += _index(f"found{k}", f"p_i[at + {k * indices.strides[-1]}]", y.shape[batch + k])
        number = f"({number} * {y.shape[batch + k]} + found{k})"
    counted = list(range(len(shape)))
    rows = Rows(
        result=(list(range(lead)), list(range(lead, y.rank))),
        updates=(counted, _rest(updates.rank, counted)),
        row=_declared(lines, number),
        reduction=reduction,
        initial=initial,
    )
    return scatter(call, reads(call, first), reads(call, first + 1), rows)


@builds("gather_nd_grad")
def gather_nd_grad(call: Call) -> Sequence[Launch]:
    """dy summed where its slices were read."""
    return _tuple_rows(call, 0, call.attrs["batch_dims"], "add", initial=False)


@builds("scatter_nd")
def scatter_nd(call: Call) -> Sequence[Launch]:
    """ONNX ScatterND."""
    return _tuple_rows(call, 1, 0, call.attrs.get("reduction", "none"), initial=True)


def _element_rows(call: Call, first: int, reduction: str, *, initial: bool) -> Sequence[Launch]:
    """Single elements at GatherElements' positions; input `first` holds the indices, the next one the updates."""
    indices, y, axis = call.inputs[first], call.outputs[0], call.attrs["axis"]
    strides = row_major(y.shape)
    base = replace(indices, strides=tuple(0 if i == axis else s for i, s in enumerate(strides)), offset=0)
    lines = (
        *logical_space([indices, base]).code("i", ["at", "base"], "i64"),
        *_index("found", "p_i[at]", y.shape[axis]),
    )
    every = list(range(y.rank))
    rows = Rows(
        result=(every, []),
        updates=(every, []),
        row=_declared(lines, f"base + found * {strides[axis]}"),
        reduction=reduction,
        initial=initial,
    )
    return scatter(call, reads(call, first), reads(call, first + 1), rows)


@builds("scatter_add")
def scatter_add(call: Call) -> Sequence[Launch]:
    """Zeros, with dy added at GatherElements' positions."""
    return _element_rows(call, 0, "add", initial=False)


@builds("scatter_elements")
def scatter_elements(call: Call) -> Sequence[Launch]:
    """ONNX ScatterElements."""
    return _element_rows(call, 1, call.attrs.get("reduction", "none"), initial=True)
