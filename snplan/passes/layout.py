"""Buffers and transfers from a residency: which stays share a buffer, when copies are issued, how long they are held.

A value is copied out once, right after its birth (values never change, so the earliest time hides best); its first
buffer is held until the copy is expected to be done, as far as memory allows. A prefetch is issued as early as the copy
stream needs it to be, and as late as memory wants it: the time to start is found backwards from the uses.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from snplan.analysis.residency import Live, Residency, Stay
from snplan.passes.workspaces import positions_of_ops


@dataclass(slots=True)
class Buffer:
    """A device buffer: live at positions [start, stop), holding one value after another in place.

    `need` is the part of [start, stop) in which its values are used; the rest is there to hide copies.
    """

    size: int
    start: int
    stop: int
    resident: int | None = None  # the value that it holds when the step starts
    need: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A transfer of `value` between `buffer` and host memory, issued after (offload) or before `position`."""

    value: int
    buffer: int
    position: int


@dataclass(kw_only=True)
class Layout:
    """Buffers without addresses, transfers, and which buffer each stay uses.

    `workspace` gives the workspace buffer of positions that have one; `buffer_at` the buffer of a value at a position
    where it is read or written; `offloads` and `prefetches` are in issue order by position.

    A strategy that copies at fixed moments says so: `waits` gives positions whose op waits for offloads of values, and
    with `paced` no copy starts before the op ahead of it in issue order has ended.
    """

    residency: Residency
    buffers: list[Buffer] = field(default_factory=list)
    offloads: list[Copy] = field(default_factory=list)
    prefetches: list[Copy] = field(default_factory=list)
    stays: list[list[Stay]] = field(default_factory=list)
    stay_buffer: list[list[int]] = field(default_factory=list)
    workspace: dict[int, int] = field(default_factory=dict)
    waits: dict[int, list[int]] = field(default_factory=dict)
    paced: bool = False

    def buffer_at(self, value: int, position: int) -> int:
        """Buffer that holds `value` at `position`."""
        stays = self.stays[value]
        if len(stays) == 1:
            return self.stay_buffer[value][0]
        index = bisect_right(stays, position, key=lambda stay: stay.start) - 1
        return self.stay_buffer[value][index]

    def tied(self) -> list[tuple[int, int]]:
        """(first, last) buffers of persistent tensors that leave the device and return to the same bytes of it."""
        residency = self.residency
        ends = [pair for pair in dict.fromkeys(residency.partner.values()) if residency.returning.issuperset(pair)]
        pairs = [(self.stay_buffer[a][0], self.stay_buffer[b][-1]) for a, b in ends if a not in residency.in_host]
        return [(first, last) for first, last in pairs if first != last]

    def moving(self) -> list[int]:
        """Values that may be in host memory at some time, ascending: all that are, and few others."""
        residency = self.residency
        return [v for v, gaps in enumerate(residency.evicted) if gaps or v in residency.in_host]

    def needs_slot(self, value: int) -> bool:
        """Whether `value` is in host memory at some time."""
        return self.residency.starts_in_host(value) or self.is_offloaded(value)

    def is_offloaded(self, value: int) -> bool:
        """Whether `value` is copied out in this step."""
        residency = self.residency
        if residency.starts_in_host(value) or not self.stays[value]:
            return False
        return len(self.stays[value]) > 1 or residency.ends_in_host(value)


def make_layout(residency: Residency, budget: int, copy_us: Callable[[int], int]) -> Layout:
    """The layout of `residency` whose live bytes never exceed `budget` (which `residency.live` must meet already).

    `copy_us` gives microseconds of a copy of so many bytes.
    """
    layout = Layout(residency=residency)
    layout.stays = residency.all_stays()
    share_buffers(layout)
    upgrade_engines(residency, budget)
    add_workspaces(layout)
    for buffer in layout.buffers:
        buffer.need = (buffer.start, buffer.stop)
    live = residency.live.copy()
    _plan_offloads(layout, live, budget, copy_us)
    _plan_prefetches(layout, live, budget, copy_us)
    return layout


def op_times(layout: Layout) -> list[int]:
    """Microseconds of each position with the engines that the layout chose."""
    residency = layout.residency
    step = residency.schedule.step
    chosen = [choices[residency.engine[op]].us if choices else step.cost[op] for op, choices in enumerate(step.engines)]
    return [chosen[op] for op in residency.schedule.runs]


def start_times(layout: Layout) -> list[int]:
    """Microsecond at which each position starts when nothing stalls; one more entry for the end."""
    return list(accumulate(op_times(layout), initial=0))


def share_buffers(layout: Layout) -> None:
    """Give every stay a buffer; in-place pairs of stays share one."""
    residency, buffers, stays = layout.residency, layout.buffers, layout.stays
    size, values, events = residency.size, residency.schedule.values, residency.events
    source_of = {written: (read, p) for p, pairs in enumerate(residency.joins) for written, read in pairs}
    layout.stay_buffer = [[-1] * len(some) for some in stays]
    for start, value, index in sorted(
        [(stay.start, v, k) for v, some in enumerate(stays) for k, stay in enumerate(some)]
    ):
        stay = stays[value][index]
        inherited = source_of.get(value) if index == 0 else None
        if inherited is not None:
            buffer = layout.buffer_at(*inherited)
            if stay.stop >= buffers[buffer].stop:
                buffers[buffer].stop = stay.stop + 1
        else:
            buffer = len(buffers)
            at_start = events[value][stay.first_event] < 0
            buffers.append(Buffer(size[values[value].tensor], start, stay.stop + 1, value if at_start else None))
        layout.stay_buffer[value][index] = buffer


def upgrade_engines(residency: Residency, budget: int) -> None:
    """The fastest engine of each op, up to its ceiling, whose workspace fits the free bytes of all its executions."""
    engines = residency.schedule.step.engines
    for op, positions in positions_of_ops(residency).items():
        free = budget - max(int(residency.live[p]) for p in positions)
        held = engines[op][residency.engine[op]].workspace
        allowed = engines[op][: residency.ceiling[op] + 1]
        now = residency.engine[op]
        best = max(i for i, choice in enumerate(allowed) if i <= now or choice.workspace - held <= free)
        if best != now:
            residency.set_engine(op, best, positions)


def add_workspaces(layout: Layout) -> None:
    """A buffer for the workspace of each execution that has one."""
    residency = layout.residency
    held = residency.workspaces()
    for position, op in enumerate(residency.schedule.runs):
        size = held[op]
        if size:
            layout.workspace[position] = len(layout.buffers)
            layout.buffers.append(Buffer(size, position, position + 1))


def _plan_offloads(layout: Layout, live: Live, budget: int, copy_us: Callable[[int], int]) -> None:
    """Offloads in order of birth; first buffers are held until the copies are expected to be done."""
    residency = layout.residency
    time = start_times(layout)
    wanted = [v for v in layout.moving() if layout.is_offloaded(v)]
    free_at = 0
    for value in sorted(wanted, key=lambda v: (residency.events[v][0], v)):
        birth = max(residency.events[value][0], 0)
        size = residency.size[residency.schedule.values[value].tensor]
        born = time[birth + 1] if residency.events[value][0] >= 0 else 0
        free_at = max(born, free_at) + copy_us(size)
        buffer = layout.stay_buffer[value][0]
        layout.offloads.append(Copy(value=value, buffer=buffer, position=birth))
        if layout.buffers[buffer].stop == layout.stays[value][0].stop + 1:
            hold(layout, buffer, bisect_left(time, free_at), live, budget)


def hold(layout: Layout, buffer: int, until: int, live: Live, budget: int) -> None:
    """Keep `buffer` live up to position `until` (exclusive) as far as memory allows."""
    held = layout.buffers[buffer]
    until = min(until, layout.residency.schedule.end)
    if until <= held.stop:
        return
    until = min(until, _next_isolated(layout, held.stop))
    room = live[held.stop : until] + held.size <= budget
    stop = until if room.all() else held.stop + int(np.argmin(room))
    live[held.stop : stop] += held.size
    held.stop = stop


def _next_isolated(layout: Layout, position: int) -> int:
    """The first isolated position at or after `position` (the end of the schedule when there is none)."""
    isolated = layout.residency.isolated_sorted()
    index = bisect_left(isolated, position)
    return isolated[index] if index < len(isolated) else layout.residency.schedule.end


def _plan_prefetches(layout: Layout, live: Live, budget: int, copy_us: Callable[[int], int]) -> None:
    """Prefetches: each starts when the copy stream must start it for its use, if memory allows.

    Memory is given to what is used first. What is used after something that found no room until later does not keep the
    link from that: it goes ahead only if it is done by then.
    """
    residency, time = layout.residency, start_times(layout)
    wanted = _latest(layout, copy_us)
    blocked = free_at = 0
    for (_, value, index), latest in sorted(wanted.items()):
        buffer = layout.stay_buffer[value][index]
        begin = _reached(layout, buffer, latest, live, budget)
        done = max(free_at, time[begin]) + copy_us(residency.size[residency.schedule.values[value].tensor])
        if done <= time[blocked]:
            free_at = done
        else:
            begin = _reached(layout, buffer, max(latest, blocked), live, budget)
            blocked = begin if begin > latest else blocked
        begin = reach_back(layout, buffer, begin, live, budget)
        layout.prefetches.append(Copy(value=value, buffer=buffer, position=begin))
    # of those issued together the one that is used first goes first
    layout.prefetches.sort(key=lambda copy: copy.position)


def _latest(layout: Layout, copy_us: Callable[[int], int]) -> dict[tuple[int, int, int], int]:
    """For each stay that begins with a prefetch the last position at which the link can begin with it."""
    residency = layout.residency
    time = start_times(layout)
    deadline = time[-1]
    found: dict[tuple[int, int, int], int] = {}
    for start, value, index in sorted(fetched_stays(layout), reverse=True):
        deadline = min(deadline, time[start]) - copy_us(residency.size[residency.schedule.values[value].tensor])
        position = bisect_right(time, deadline, hi=start + 1) - 1
        found[start, value, index] = max(position, _earliest(layout, value, index), 0)
    return found


def fetched_stays(layout: Layout) -> list[tuple[int, int, int]]:
    """(start, value, index) of the stays that begin with a prefetch."""
    found = []
    for value in layout.moving():
        for index, stay in enumerate(layout.stays[value]):
            if index > 0 or layout.residency.starts_in_host(value):
                found.append((stay.start, value, index))
    return found


def by_position(copies: Sequence[Copy]) -> defaultdict[int, list[Copy]]:
    """The copies of each position, in their order."""
    found: defaultdict[int, list[Copy]] = defaultdict(list)
    for copy in copies:
        found[copy.position].append(copy)
    return found


def _earliest(layout: Layout, value: int, index: int) -> int:
    """The first position at which a prefetch makes sense: after the value's previous buffer is gone."""
    if index == 0:
        return 0
    return layout.buffers[layout.stay_buffer[value][index - 1]].stop


def reach_back(layout: Layout, buffer: int, position: int, live: Live, budget: int) -> int:
    """Begin `buffer` at `position` or as soon after it as memory allows; the position where it now begins."""
    fetched = layout.buffers[buffer]
    begin = _reached(layout, buffer, position, live, budget)
    live[begin : fetched.start] += fetched.size
    fetched.start = begin
    return begin


def _reached(layout: Layout, buffer: int, position: int, live: Live, budget: int) -> int:
    """The first position from `position` on from which memory has room for `buffer`, at the latest where it begins."""
    fetched = layout.buffers[buffer]
    if position >= fetched.start:
        return fetched.start
    isolated = layout.residency.isolated_sorted()
    barrier = bisect_left(isolated, fetched.start)
    if barrier > 0:
        position = max(position, isolated[barrier - 1] + 1)
    blocked = np.flatnonzero(live[position : fetched.start] + fetched.size > budget)
    return position + int(blocked[-1]) + 1 if blocked.size else position
