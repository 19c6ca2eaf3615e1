"""The device arena of a plan as SVG: which bytes each buffer has over the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from snplan.plan.model import Alloc, Free, StepPlan
from snplan.plan.stays import actions_with_writes
from snplan.plan.timeline import BREAKDOWN, group_of
from snplan.report.chart import (
    BOTTOM,
    COLORS,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Scale,
    clean,
    document,
    legend,
    ticks,
    x_axis,
    y_axis,
)
from snplan.units import GIB

MOST = 6000
"""Buffers that are drawn one by one, each with its name; the tail of small ones is one shape a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A live interval of a buffer, in actions: its first tensor (None: a workspace), bytes and place."""

    start: int
    end: int
    offset: int
    bytes: int
    tensor: str | None
    group: int


def blocks(plan: StepPlan) -> list[Block]:
    """Every live interval of every buffer, in order of its start."""
    rows = {row.id: row for row in plan.buffers}
    group = {row.name: BREAKDOWN.index(group_of(row.role)) for row in plan.tensors}
    workspace, other = BREAKDOWN.index("workspace"), BREAKDOWN.index("other")
    born: dict[int, int] = {}
    first: dict[int, str | None] = {}
    found: list[Block] = []

    def close(buffer: int, end: int) -> None:
        tensor = first.pop(buffer, "")
        number = workspace if tensor is None else group.get(tensor, other)
        row, start = rows[buffer], born.pop(buffer)
        found.append(Block(start=start, end=end, offset=row.offset, bytes=row.bytes, tensor=tensor, group=number))

    for place in plan.resident:
        if place.buffer is not None:
            born[place.buffer], first[place.buffer] = -1, place.tensor
    for i, (action, writes) in enumerate(actions_with_writes(plan)):
        if isinstance(action, Alloc):
            born[action.buffer] = i
        elif isinstance(action, Free):
            close(action.buffer, i)
        for buffer, tensor in writes:
            first.setdefault(buffer, tensor)
    for buffer in list(born):
        close(buffer, len(plan.actions))
    return sorted(found, key=lambda block: (block.start, block.offset))


def address_chart(plan: StepPlan) -> str:
    """An SVG: actions in issue order against addresses in GiB, the groups of buffers in colour."""
    found = blocks(plan)
    x_ticks, y_ticks = ticks(0, max(1, len(plan.actions))), ticks(0, plan.arena_bytes / GIB)
    x = Scale(low=0, high=x_ticks[-1], start=LEFT, stop=WIDTH - RIGHT)
    y = Scale(low=0, high=y_ticks[-1], start=HEIGHT - BOTTOM, stop=TOP)
    ranked = sorted(found, key=lambda block: -block.bytes * (block.end - block.start))
    body = [*y_axis(y, y_ticks, "address, GiB"), *x_axis(x, x_ticks, "action")]
    body += _tail(ranked[MOST:], x, y)
    body += (_named(block, x, y) for block in ranked[:MOST])
    return document(f"{plan.model.name}: the arena over one training step", [*body, *legend(BREAKDOWN)])


def _named(block: Block, x: Scale, y: Scale) -> str:
    name = "workspace" if block.tensor is None else block.tensor or "nothing is written"
    told = escape(clean(f"{name}: {block.bytes:,} B at {block.offset:,}, actions {block.start} to {block.end}"))
    fill = COLORS[block.group % len(COLORS)]
    edge = ' stroke="#fff" stroke-width=".3"' if y(0) - y(block.bytes / GIB) > 2 else ""
    return f'<path d="{_path(block, x, y)}" fill="{fill}"{edge}><title>{told}</title></path>'


def _tail(tail: Sequence[Block], x: Scale, y: Scale) -> Iterator[str]:
    """The small blocks of each group as one shape, in whole pixels, those that look alike once."""
    for number, name in enumerate(BREAKDOWN):
        paths = dict.fromkeys(_path(block, x, y, digits=0) for block in tail if block.group == number)
        if paths:
            told = f"{sum(block.group == number for block in tail):,} small buffers: {name}"
            yield f'<path d="{"".join(paths)}" fill="{COLORS[number % len(COLORS)]}"><title>{told}</title></path>'


def _path(block: Block, x: Scale, y: Scale, digits: int = 1) -> str:
    left, right = x(max(block.start, 0)), x(block.end)
    low, high = y(block.offset / GIB), y((block.offset + block.bytes) / GIB)
    return f"M{left:.{digits}f} {low:.{digits}f}H{right:.{digits}f}V{high:.{digits}f}H{left:.{digits}f}Z"
