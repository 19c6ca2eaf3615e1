"""Builders of ops that move elements by position: copies under other strides, joins and splits, pads, triangles."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from snplan.codegen.call import Access, Call, builds, reads, writes
from snplan.codegen.launch import Argument, Launch, Scalar, source
from snplan.codegen.operand import Operand, broadcast, part, sliced, transposed
from snplan.codegen.pointwise import Body, pointwise
from snplan.codegen.scalars import c_type, item_bytes, quotient
from snplan.codegen.space import Space, space_of

_BLOCK = 256
_TILE = 32
# Below this many elements along either axis a tile would be mostly empty.
_SMALL_SIDE = 8
_MOST_PARTS = 64


def moved(stem: str, origin: Access, target: Access) -> tuple[Launch, ...]:
    """A kernel that copies `origin` to `target` (of one shape), bits untouched; by tiles where it turns two axes."""
    space = space_of([target.operand, origin.operand])
    turned = _turned_axis(space)
    if turned is not None:
        return _by_tiles(stem, origin, target, space, turned)
    return pointwise(stem, [origin], [target], Body(compute="int", results=("a0",), raw=True))


def _turned_axis(space: Space) -> int | None:
    """The axis along which the origin's neighbours lie, where that is not the target's innermost axis."""
    if len(space.sizes) < 2 or space.strides[1][-1] == 1 or space.strides[0][-1] != 1 or space.count >= 2**31:
        return None
    lines = [k for k, stride in enumerate(space.strides[1][:-1]) if stride == 1 and space.sizes[k] >= _SMALL_SIDE]
    return lines[0] if lines and space.sizes[-1] >= _SMALL_SIDE else None


def _by_tiles(stem: str, origin: Access, target: Access, space: Space, turned: int) -> tuple[Launch, ...]:
    """Tiles of 32 x 32 through shared memory: both sides read and write along memory."""
    last = len(space.sizes) - 1
    rest = [k for k in range(last) if k != turned]
    tiles = [quotient(space.sizes[k], _TILE) for k in (last, turned)]
    batch = Space(
        sizes=tuple(space.sizes[k] for k in rest),
        strides=tuple(tuple(strides[k] for k in rest) for strides in space.strides),
        offsets=space.offsets,
    )
    text = source(
        "tiles",
        stem,
        type=origin.type,
        columns=space.sizes[last],
        lines=space.sizes[turned],
        tiles=tuple(tiles),
        target_stride=space.strides[0][turned],
        origin_stride=space.strides[1][last],
        batch=tuple(batch.code("b", ["o", "a"], "i64")),
    )
    blocks = prod(tiles) * batch.count
    arguments = (target.argument, origin.argument)
    return (Launch(source=text, grid=(blocks, 1, 1), block=(_BLOCK, 1, 1), arguments=arguments),)


@builds("copy")
def copy(call: Call) -> Sequence[Launch]:
    """The same values, also into another physical order."""
    return moved("copy", reads(call, 0, raw=True), writes(call, raw=True))


@builds("transpose")
def transpose(call: Call) -> Sequence[Launch]:
    """Axes in the order of `perm`."""
    seen = transposed(call.inputs[0], call.attrs["perm"])
    return moved("transpose", reads(call, 0, seen, raw=True), writes(call, raw=True))


@builds("slice")
def slice_(call: Call) -> Sequence[Launch]:
    """`y[i] = x[starts + i * steps]`: strides and an offset."""
    seen = sliced(call.inputs[0], call.attrs["starts"], call.attrs["steps"], call.attrs["sizes"])
    return moved("slice", reads(call, 0, seen, raw=True), writes(call, raw=True))


@builds("slice_grad")
def slice_grad(call: Call) -> Sequence[Launch]:
    """Zeros, then dy where it was taken from."""
    dy, dx = call.inputs[0], call.outputs[0]
    seen = sliced(dx, call.attrs["starts"], call.attrs["steps"], dy.shape)
    zeros = pointwise("zeros", [], [writes(call, raw=True)], Body(compute="int", results=("0",), raw=True))
    return (*zeros, *moved("slice_grad", reads(call, 0, raw=True), writes(call, 0, seen, raw=True)))


@builds("expand")
def expand(call: Call) -> Sequence[Launch]:
    """Broadcast: strides of zero."""
    seen = broadcast(call.inputs[0], call.outputs[0].shape)
    return moved("expand", reads(call, 0, seen, raw=True), writes(call, raw=True))


@builds("tile")
def tile(call: Call) -> Sequence[Launch]:
    """Repeats as axes of their own, of stride zero in x."""
    x, y = call.inputs[0], call.outputs[0]
    shape = tuple(n for pair in zip(call.attrs["repeats"], x.shape, strict=True) for n in pair)
    read = tuple(s for stride in x.strides for s in (0, stride))
    written = tuple(s for n, stride in zip(x.shape, y.strides, strict=True) for s in (n * stride, stride))
    seen = Operand(dtype=x.dtype, shape=shape, strides=read, offset=x.offset)
    target = Operand(dtype=y.dtype, shape=shape, strides=written, offset=y.offset)
    return moved("tile", reads(call, 0, seen, raw=True), writes(call, 0, target, raw=True))


@builds("trilu")
def trilu(call: Call) -> Sequence[Launch]:
    """Elements on one side of diagonal k, zeros on the other; `e0` is column - row."""
    x = call.inputs[0]
    diagonal = (*(0,) * (x.rank - 2), -1, 1)
    test = f"e0 {'>=' if call.attrs['upper'] else '<='} {int(call.attrs['k'])}"
    body = Body(compute="int", results=(f"({test} ? a0 : decltype(a0)())",), raw=True, numbers=(diagonal,))
    return pointwise("trilu", [reads(call, 0, raw=True)], [writes(call, raw=True)], body)


@builds("one_hot")
def one_hot(call: Call) -> Sequence[Launch]:
    """`values` is [off, on]; `e0` is the class of the element."""
    indices, values, y = *call.inputs, call.outputs[0]
    axis, depth = call.attrs["axis"], call.attrs["depth"]
    strides = (*indices.strides[:axis], 0, *indices.strides[axis:])
    seen = Operand(dtype=indices.dtype, shape=y.shape, strides=strides, offset=indices.offset)
    number = Access(argument=reads(call, 0).argument, operand=seen, type=c_type(indices.dtype))
    off, on = (
        reads(call, 1, Operand(dtype=values.dtype, shape=y.shape, strides=(0,) * y.rank, offset=k), raw=True)
        for k in (0, 1)
    )
    classes = tuple(int(i == axis) for i in range(y.rank))
    wanted = f"(a0 < 0 ? (i64)a0 + {depth} : (i64)a0)"
    body = Body(compute="int", results=(f"({wanted} == e0 ? a2 : a1)",), raw=True, numbers=(classes,))
    return pointwise("one_hot", [number, off, on], [writes(call, raw=True)], body)


@builds("concat")
def concat(call: Call) -> Sequence[Launch]:
    """One kernel over the result where all lie alike, else one a part."""
    whole, parts = call.outputs[0], call.inputs
    accesses = [reads(call, k, raw=True) for k in range(len(parts))]
    joined = _join(call, writes(call, raw=True), accesses, split=False)
    if joined is not None:
        return joined
    seen = _pieces(whole, [x.shape[call.attrs["axis"]] for x in parts], call.attrs["axis"])
    return [
        launch
        for access, piece in zip(accesses, seen, strict=True)
        for launch in moved("concat", access, writes(call, 0, piece, raw=True))
    ]


@builds("split")
def split(call: Call) -> Sequence[Launch]:
    """One kernel over the input where all lie alike, else one a part."""
    accesses = [writes(call, k, raw=True) for k in range(len(call.outputs))]
    joined = _join(call, reads(call, 0, raw=True), accesses, split=True)
    if joined is not None:
        return joined
    seen = _pieces(call.inputs[0], call.attrs["sizes"], call.attrs["axis"])
    return [
        launch
        for access, piece in zip(accesses, seen, strict=True)
        for launch in moved("split", reads(call, 0, piece, raw=True), access)
    ]


def _pieces(whole: Operand, sizes: Sequence[int], axis: int) -> list[Operand]:
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    return [part(whole, axis, start, size) for start, size in zip(starts, sizes, strict=True)]


def _join(call: Call, whole: Access, parts: Sequence[Access], *, split: bool) -> tuple[Launch, ...] | None:
    """One launch that walks the whole tensor and finds each group of neighbours' part; None where that cannot be."""
    axis, operands = call.attrs["axis"], [whole.operand, *(p.operand for p in parts)]
    if len(parts) > _MOST_PARTS or whole.operand.elements >= 2**31:
        return None
    plain, last = (all(getattr(x, name) for x in operands) for name in ("plain", "channels_last"))
    if not plain and not last:
        return None
    if whole.operand.elements == 0:
        return ()
    after = whole.operand.shape[axis + 1 :] if plain else () if axis == 1 else whole.operand.shape[max(axis, 1) + 1 :]
    inner = prod(after) * (whole.operand.shape[1] if not plain and axis != 1 else 1)
    if not plain and axis == 0:
        inner = whole.operand.elements // whole.operand.shape[0]
    runs = [p.operand.shape[axis] * inner for p in parts]
    width = gcd(16 // item_bytes(whole.operand.dtype), *runs)
    return (_join_launch(whole, parts, [run // width for run in runs], width, split=split),)


def _join_launch(whole: Access, parts: Sequence[Access], runs: Sequence[int], width: int, *, split: bool) -> Launch:
    vectors = whole.operand.elements // width
    ends = [sum(runs[: k + 1]) for k in range(len(runs))]
    numbers = [*(Scalar("int32", end) for end in ends), Scalar("int32", vectors)]
    arguments: tuple[Argument, ...] = (whole.argument, *(p.argument for p in parts), *numbers)
    text = source(
        "join",
        "split" if split else "concat",
        type=whole.type,
        width=width,
        parts=len(parts),
        split=split,
        choose=_choose(0, len(parts)),
    )
    grid = (quotient(vectors, _BLOCK), 1, 1)
    return Launch(source=text, grid=grid, block=(_BLOCK, 1, 1), arguments=arguments)


def _choose(low: int, high: int) -> str:
    """Nested ifs that set `part`, `start` and `run` to those of the part, of `low` to `high`, that holds `column`."""
    if high - low == 1:
        start = f"end{low - 1}" if low else "0"
        return f"{{ part = part{low}; start = {start}; run = end{low} - {start}; }}"
    middle = (low + high) // 2
    return f"if (column < end{middle - 1}) {_choose(low, middle)} else {_choose(middle, high)}"
