"""Operators that move data: Transpose, Concat, Split, Slice, Pad, Expand, Tile, DepthToSpace, Trilu, ..."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.shapes import slice_spec
from snplan.frontend.values import Unsupported, Value


def transpose(ctx: LowerContext, x: Value, perm: Sequence[int]) -> Value:
    """`x` with its axes permuted; where only axes of size 1 move, a view."""
    moved = [axis for axis in perm if x.spec.shape[axis] != 1]
    if moved == sorted(moved):
        return ctx.view(x, [x.spec.shape[axis] for axis in perm])
    return ctx.one("transpose", [x], {"perm": list(perm)})


@lowers("Transpose")
def lower_transpose(ctx: LowerContext, node: NodeView) -> None:
    """`transpose`; the default permutation reverses the axes."""
    x = node.value(0)
    perm = node.attr_ints("perm") or list(range(x.spec.rank))[::-1]
    node.need(sorted(perm) == list(range(x.spec.rank)), f"perm {perm} does not fit rank {x.spec.rank}")
    ctx.bind(0, transpose(ctx, x, perm))


@lowers("Concat")
def lower_concat(ctx: LowerContext, node: NodeView) -> None:
    """`concat`."""
    values = node.values()
    node.need(bool(values), "it has no input")
    axis = node.attr_axis("axis", 1, values[0].spec.rank)
    ctx.bind(0, concat(ctx, values, axis))


def concat(ctx: LowerContext, values: Sequence[Value], axis: int) -> Value:
    """The values behind one another along `axis`."""
    return values[0] if len(values) == 1 else ctx.one("concat", values, {"axis": axis})


@lowers("Split")
def lower_split(ctx: LowerContext, node: NodeView) -> None:
    """`split`; sizes are an input from opset 13 on, and default to equal parts (the last may be smaller from 18 on)."""
    x = node.value(0)
    axis = node.attr_axis("axis", 0, x.spec.rank)
    if node.input_form("split", 13, 1):
        sizes = node.array_ints(1, "split") if node.given(1) else None
    else:
        sizes = node.attr_ints("split")
    if sizes is None:
        sizes = _equal_parts(node, x.spec.shape[axis])
    node.need(sum(sizes) == x.spec.shape[axis] and min(sizes, default=0) >= 0, f"sizes {sizes} do not add up")
    ctx.bind_all(split(ctx, x, axis, sizes))


def split(ctx: LowerContext, x: Value, axis: int, sizes: Sequence[int]) -> Sequence[Value]:
    """Parts of `x` of these sizes along `axis`."""
    return (x,) if len(sizes) == 1 else ctx.emit("split", [x], {"axis": axis, "sizes": list(sizes)})


def _equal_parts(node: NodeView, size: int) -> list[int]:
    count = node.attr_int("num_outputs", len(node.proto.output))
    node.need(0 < count == len(node.proto.output), f"{count} parts for {len(node.proto.output)} outputs")
    if size % count and node.version < 18:
        raise node.error(f"an axis of size {size} cannot be split into {count} equal parts")
    part = -(-size // count)
    return [max(min(part, size - part * index), 0) for index in range(count)]


@lowers("Slice")
def lower_slice(ctx: LowerContext, node: NodeView) -> None:
    """`slice`; starts, ends, axes and steps are inputs from opset 10 on."""
    x = node.value(0)
    if node.input_form("starts", 10, 1):
        lists = [node.array_ints(i, what) if node.given(i) else None for i, what in _SLICE_INPUTS]
    else:
        lists = [node.attr_ints("starts"), node.attr_ints("ends"), node.attr_ints("axes"), None]
    starts, sizes, steps = slice_spec(node, x.spec.shape, lists[0] or [], lists[1] or [], lists[2], lists[3])
    ctx.bind(0, sliced(ctx, x, starts, sizes, steps))


_SLICE_INPUTS = ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps"))


def sliced(ctx: LowerContext, x: Value, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> Value:
    """`x[starts + i * steps]` of `sizes`; `x` itself where that is all of it."""
    if tuple(sizes) == x.spec.shape and all(step > 0 for step in steps):
        return x
    return ctx.one("slice", [x], {"starts": list(starts), "steps": list(steps), "sizes": list(sizes)})


@lowers("Pad")
def lower_pad(ctx: LowerContext, node: NodeView) -> None:
    """`pad`; pads and the value are inputs from opset 11 on."""
    x = node.value(0)
    rank = x.spec.rank
    if node.input_form("pads", 11, 1):
        pads = node.array_ints(1, "pads")
        value = float(node.array_scalar(2, "the padding value")) if node.given(2) else 0.0
    else:
        pads = node.attr_ints("pads") or node.attr_ints("paddings") or []
        value = node.attr_float("value", 0.0)
    axes = node.array_ints(3, "axes") if node.given(3) else list(range(rank))
    node.need(len(pads) == 2 * len(axes), f"{len(pads)} pads for {len(axes)} axes")
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        axis = node.checked_axis(axis, rank)
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    mode = node.attr_str("mode", "constant")
    node.need(mode in ("constant", "reflect", "edge", "wrap"), f"mode {mode!r} is unknown")
    ctx.bind(0, padded(ctx, x, before, after, mode, value))


def padded(
    ctx: LowerContext,
    x: Value,
    before: Sequence[int],
    after: Sequence[int],
    mode: str = "constant",
    value: float = 0.0,
) -> Value:
    """`x` with so many elements more (or, where negative, less) at both ends of each axis."""
    if not any(before) and not any(after):
        return x
    if not math.isfinite(value):
        raise Unsupported(f"it pads with {value}")
    return ctx.one("pad", [x], {"before": list(before), "after": list(after), "mode": mode, "value": value})


@lowers("Expand")
def lower_expand(ctx: LowerContext, node: NodeView) -> None:
    """`expand` to the shape that input and target broadcast to."""
    x = node.value(0)
    shape = np.broadcast_shapes(x.spec.shape, tuple(node.array_ints(1, "its target shape")))
    ctx.bind(0, expand(ctx, x, shape))


def expand(ctx: LowerContext, x: Value, shape: Sequence[int]) -> Value:
    """`x` broadcast to `shape`; a view where no element is repeated."""
    if math.prod(shape) == x.spec.elements:
        return ctx.view(x, shape)
    return ctx.one("expand", [x], {"shape": list(shape)})


@lowers("Tile")
def lower_tile(ctx: LowerContext, node: NodeView) -> None:
    """`tile`; along axes of size 1 it is `expand`."""
    x = node.value(0)
    repeats = node.array_ints(1, "repeats")
    node.need(len(repeats) == x.spec.rank, f"{len(repeats)} repeats for rank {x.spec.rank}")
    node.need(min(repeats, default=0) >= 0, f"repeats {repeats} are negative")
    if all(count == 1 or size == 1 for count, size in zip(repeats, x.spec.shape, strict=True)):
        ctx.bind(0, expand(ctx, x, [size * count for size, count in zip(x.spec.shape, repeats, strict=True)]))
    else:
        ctx.bind(0, ctx.one("tile", [x], {"repeats": [*repeats]}))


@lowers("DepthToSpace", "SpaceToDepth")
def lower_depth_to_space(ctx: LowerContext, node: NodeView) -> None:
    """A transpose between two views."""
    x = node.value(0)
    block = node.attr_int("blocksize")
    node.need(x.spec.rank == 4 and block > 0, "it takes a tensor of rank 4 and a positive block size")
    n, c, h, w = x.spec.shape
    if node.op == "SpaceToDepth":
        node.need(h % block == 0 and w % block == 0, f"{h} x {w} is not a multiple of the block size {block}")
        parts = ctx.view(x, (n, c, h // block, block, w // block, block))
        moved = transpose(ctx, parts, (0, 3, 5, 1, 2, 4))
        ctx.bind(0, ctx.view(moved, (n, c * block * block, h // block, w // block)))
        return
    node.need(c % (block * block) == 0, f"{c} channels are not a multiple of {block} squared")
    out = c // (block * block)
    if node.attr_str("mode", "DCR") == "CRD":
        moved = transpose(ctx, ctx.view(x, (n, out, block, block, h, w)), (0, 1, 4, 2, 5, 3))
    else:
        moved = transpose(ctx, ctx.view(x, (n, block, block, out, h, w)), (0, 3, 4, 1, 5, 2))
    ctx.bind(0, ctx.view(moved, (n, out, h * block, w * block)))


@lowers("Trilu")
def lower_trilu(ctx: LowerContext, node: NodeView) -> None:
    """`trilu`."""
    k = int(node.array_scalar(1, "k")) if node.given(1) else 0
    ctx.bind(0, ctx.one("trilu", [node.value(0)], {"upper": bool(node.attr_int("upper", 1)), "k": k}))
