"""Layouts for rules that say when tensors move: copies at the rule's moments, and engines from what stays free.

Functional tensors come first, as in the paper (section 3.5): the fastest engine is chosen from the bytes that tensors
and copies under way leave free.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from snplan.analysis.residency import Live, Residency
from snplan.analysis.schedule import Schedule, start_times
from snplan.passes.layout import (
    Copy,
    Layout,
    add_workspaces,
    fetched_stays,
    hold,
    reach_back,
    share_buffers,
    upgrade_engines,
)
from snplan.passes.realise import PLACE_EFFORT, Candidate, finish, placed
from snplan.passes.workspaces import positions_of_ops
from snplan.strategies.base import Strategy, Task

ATTEMPTS = 4
PARTS = (0.85, 0.7, 0.5, 0.0)  # of the budget, for all positions, when single ones were lowered in vain
LAST_EFFORT = 1.0
LEAST_CUT = 200  # part of the budget by which a position's bytes are lowered at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """When a value's copy to the host is issued: after the op at `after`; its buffer is there before position `until`.

    `until` None: until the copy is expected to be done, as far as memory allows.
    """

    after: int
    until: int | None = None


@dataclass(frozen=True, kw_only=True)
class Moves:
    """When a rule's copies are issued.

    sends        by value that is copied out
    fetch        by position, where the prefetch of what that position reads is issued; memory may make it later
    synchronous  each op after an offload's own waits for it
    """

    sends: Mapping[int, Send] = field(default_factory=dict)
    fetch: Sequence[int] = ()
    synchronous: bool = False


Rule: TypeAlias = Callable[[Residency, Live], Moves]
"""Evicts gaps, where it has a choice so that positions have at most so many live bytes; says when copies are issued."""


def lean_residency(schedule: Schedule) -> Residency:
    """The residency of `schedule` with the smallest workspaces."""
    residency = Residency(schedule)
    for op, positions in positions_of_ops(residency).items():
        residency.set_engine(op, 0, positions)
    return residency


def peak(residency: Residency) -> int:
    """The most live bytes of any position."""
    return int(residency.live.max()) if residency.live.size else 0


def boundary_gap(residency: Residency, value: int) -> int | None:
    """The gap of `value` between its last event of the forward pass and its first one of the backward pass."""
    events = residency.events[value]
    index = bisect_left(events, residency.schedule.step.backward)
    return index - 1 if 0 < index < len(events) else None


def first_values(schedule: Schedule, tensors: Iterable[int]) -> list[int]:
    """The values that these tensors have in the forward pass, ascending."""
    wanted = set(tensors)
    return [
        v for v, value in enumerate(schedule.values) if value.tensor in wanted and value.birth < schedule.step.backward
    ]


def moved_layout(residency: Residency, target: Live, task: Task, moves: Moves, *, algorithms: bool = True) -> Layout:
    """The layout of `residency` with copies as `moves` says.

    Copies under way and workspaces may fill each position up to `target` bytes; tensors may need more than that.
    """
    layout = Layout(residency=residency, paced=True)
    layout.stays = residency.all_stays()
    share_buffers(layout)
    residency.live += np.maximum(task.budget - np.maximum(target, residency.live), 0)  # what nothing else may take
    _send(layout, task.budget, task.costs.copy_us, moves)
    _fetch(layout, task.budget, moves.fetch)
    if algorithms:
        upgrade_engines(residency, task.budget)
    add_workspaces(layout)
    return layout


def _send(layout: Layout, budget: int, copy_us: Callable[[int], int], moves: Moves) -> None:
    """Add the offloads."""
    residency = layout.residency
    time = start_times(residency.schedule)
    wanted = [v for v in range(len(residency.events)) if layout.is_offloaded(v)]
    sends = {v: moves.sends.get(v, Send(after=max(residency.events[v][0], 0))) for v in wanted}
    free_at = 0
    for value in sorted(wanted, key=lambda v: (sends[v].after, v)):
        send, buffer = sends[value], layout.stay_buffer[value][0]
        size = residency.size[residency.schedule.values[value].tensor]
        free_at = max(time[send.after + 1], free_at) + copy_us(size)
        until = bisect_left(time, free_at) if send.until is None else send.until
        if layout.buffers[buffer].stop == layout.stays[value][0].stop + 1:
            hold(layout, buffer, until, residency.live, budget)
        position = min(send.after, layout.buffers[buffer].stop - 1)
        layout.offloads.append(Copy(value=value, buffer=buffer, position=position))
        if moves.synchronous:
            layout.waits.setdefault(position + 2, []).append(value)
    layout.offloads.sort(key=lambda copy: copy.position)


def _fetch(layout: Layout, budget: int, fetch: Sequence[int]) -> None:
    """Add the prefetches."""
    wanted = sorted(fetched_stays(layout))
    for start, value, index in wanted:
        buffer = layout.stay_buffer[value][index]
        earliest = layout.buffers[layout.stay_buffer[value][index - 1]].stop if index else 0
        position = max(earliest, fetch[start] if fetch else start)
        position = reach_back(layout, buffer, position, layout.residency.live, budget)
        layout.prefetches.append(Copy(value=value, buffer=buffer, position=position))
    layout.prefetches.sort(key=lambda copy: copy.position)


def follow(
    strategy: Strategy, task: Task, schedule: Schedule, evict: Rule | None = None, *, algorithms: bool = True
) -> Candidate:
    """The candidate of a rule that evicts gaps of `schedule` (None: nothing moves). Raises InfeasibleError (SNP-P004).

    With `algorithms` each convolution has the fastest engine that fits the free bytes, else the one without workspace.
    """

    def layout_for(target: Live) -> Layout:
        residency = lean_residency(schedule)
        moves = Moves() if evict is None else evict(residency, target)
        if peak(residency) > task.budget:
            raise strategy.refusal(task, peak(residency))
        return moved_layout(residency, target, task, moves, algorithms=algorithms)

    return settle(strategy, task, schedule.end, layout_for)


def settle(strategy: Strategy, task: Task, end: int, layout_for: Callable[[Live], Layout]) -> Candidate:
    """The first candidate that addresses are found for.

    `layout_for` gives the layout that fills each of `end` positions up to so many bytes where the rule has a choice.
    Where buffers do not fit side by side their positions get less, then all positions. Raises InfeasibleError
    (SNP-P004) when no attempt fits.
    """
    target = np.full(end, task.budget, np.int64)
    for part in (*[None] * ATTEMPTS, *PARTS):
        if part is not None:
            target = np.full(end, int(task.budget * part), np.int64)
        layout = layout_for(target)
        offsets = placed(layout, task.budget, PLACE_EFFORT if part != PARTS[-1] else LAST_EFFORT)
        tops = [offset + buffer.size for offset, buffer in zip(offsets, layout.buffers, strict=True)]
        if max(tops, default=0) <= task.budget:
            return finish(layout, offsets, task.costs)
        _lower(target, layout, tops, task.budget)
    raise strategy.refusal(task, max(tops), placed=True)


def _lower(target: Live, layout: Layout, tops: Sequence[int], budget: int) -> None:
    """Lower `target` where buffers end above the budget (`tops`), by the most that one of them misses there."""
    live = np.zeros(target.size + 1, np.int64)
    for buffer in layout.buffers:
        live[buffer.start] += buffer.size
        live[buffer.stop] -= buffer.size
    cuts = np.zeros(target.size, np.int64)
    for buffer, top in zip(layout.buffers, tops, strict=True):
        if top > budget:
            where = slice(buffer.start, buffer.stop)
            cuts[where] = np.maximum(cuts[where], max(top - budget, budget // LEAST_CUT))
    target[:] = np.where(cuts > 0, np.minimum(target, np.cumsum(live)[:-1]) - cuts, target)
