"""Sequences of known length: they exist only while a graph is lowered."""

from __future__ import annotations

import numpy as np

from snplan.errors import ModelError
from snplan.frontend import codes
from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.movement import concat, split
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.values import Poison, Sequence, Unsupported, Value, constant

MOST_PARTS = 4096
"""Parts that a tensor may be split into."""

MOST_HELD = 1 << 24
"""Elements of all sequences that are made of other ones, and of those that are put together, counted each time."""


@lowers("SplitToSequence")
def lower_split_to_sequence(ctx: LowerContext, node: NodeView) -> None:
    """`split`; without sizes, parts of 1 whose axis goes where keepdims is 0."""
    x = node.value(0)
    axis = node.attr_axis("axis", 0, x.spec.rank)
    size = x.spec.shape[axis]
    keep = node.given(1) or bool(node.attr_int("keepdims", 1))
    sizes = _sizes(node, size)
    node.need(sum(sizes) == size and min(sizes, default=0) >= 0, f"sizes {sizes} do not add up to {size}")
    parts = list(split(ctx, x, axis, sizes))
    if not keep:
        parts = [ctx.view(part, part.spec.shape[:axis] + part.spec.shape[axis + 1 :]) for part in parts]
    ctx.bind(0, Sequence(items=tuple(parts)))


def _sizes(node: NodeView, size: int) -> list[int]:
    """Sizes of the parts: as listed, or all of one size but the last."""
    if node.given(1) and node.value(1).spec.rank:
        return node.array_ints(1, "split")
    part = int(node.array_scalar(1, "split")) if node.given(1) else 1
    node.need(part > 0, "split must be positive")
    if size // part > MOST_PARTS:
        raise Unsupported(f"it makes more than {MOST_PARTS:,} parts")
    return [min(part, size - start) for start in range(0, size, part)]


@lowers("SequenceEmpty", "SequenceConstruct")
def lower_sequence_construct(ctx: LowerContext, node: NodeView) -> None:
    """A sequence of the inputs."""
    ctx.bind(0, Sequence(items=tuple(node.values())))


@lowers("SequenceAt")
def lower_sequence_at(ctx: LowerContext, node: NodeView) -> None:
    """The element at a known position."""
    items = node.sequence(0).items
    ctx.bind(0, items[_position(node, 1, len(items))])


@lowers("SequenceInsert")
def lower_sequence_insert(ctx: LowerContext, node: NodeView) -> None:
    """The sequence with one element more, at the end or at a known position."""
    items: list[Value | Poison] = list(node.sequence(0).items)
    place = _position(node, 2, len(items), extra=1) if node.given(2) else len(items)
    ctx.bind(0, _held(ctx, (*items[:place], node.value(1), *items[place:])))


@lowers("SequenceErase")
def lower_sequence_erase(ctx: LowerContext, node: NodeView) -> None:
    """The sequence without its last element, or the one at a known position."""
    items = list(node.sequence(0).items)
    del items[_position(node, 1, len(items)) if node.given(1) else -1]
    ctx.bind(0, _held(ctx, tuple(items)))


def _held(ctx: LowerContext, items: tuple[Value | Poison, ...]) -> Sequence:
    """A sequence made of another one; raises ModelError (SNP-I004) where all of these hold too much."""
    _count(ctx, items)
    return Sequence(items=items)


def _count(ctx: LowerContext, items: tuple[Value | Poison, ...]) -> None:
    ctx.held += len(items)
    if ctx.held > MOST_HELD:
        raise ModelError(
            codes.TOO_MANY,
            f"nodes that change or join sequences handle more than {MOST_HELD:,} elements; that is too much to plan",
        )


@lowers("SequenceLength")
def lower_sequence_length(ctx: LowerContext, node: NodeView) -> None:
    """The known length."""
    ctx.bind(0, constant(np.array(len(node.sequence(0).items), np.int64)))


@lowers("ConcatFromSequence")
def lower_concat_from_sequence(ctx: LowerContext, node: NodeView) -> None:
    """`concat`, of elements with a new axis where `new_axis` says so."""
    items = node.sequence(0).items
    _count(ctx, items)
    values = [item for item in items if isinstance(item, Value)]
    node.need(bool(items) and len(values) == len(items), "the sequence is empty or has an element that is not known")
    new = bool(node.attr_int("new_axis", 0))
    axis = node.attr_axis("axis", 0, values[0].spec.rank, extra=int(new))
    if new:
        values = [ctx.view(v, (*v.spec.shape[:axis], 1, *v.spec.shape[axis:])) for v in values]
    ctx.bind(0, concat(ctx, values, axis))


def _position(node: NodeView, index: int, length: int, extra: int = 0) -> int:
    place = int(node.array_scalar(index, "the position"))
    node.need(-length <= place < length + extra, f"position {place} is out of range for {length} elements")
    return place + length if place < 0 else place
