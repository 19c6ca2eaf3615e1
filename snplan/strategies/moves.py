"""Layouts for rules that say when tensors move: copies at the rule's moments, and engines from what stays free.

Functional tensors come first, as in the paper (section 3.5): the fastest engine is chosen from the bytes that tensors
and copies under way leave free.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from snplan.analysis.residency import Residency
from snplan.analysis.schedule import Schedule, start_times
from snplan.errors import InfeasibleError
from snplan.passes.evict import positions_of_ops
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
from snplan.passes.realise import Candidate, finish, place
from snplan.strategies.base import Strategy, Task

TARGETS = (1.0, 0.97, 0.92, 0.85, 0.75, 0.6)
LAST_EFFORT = 1.0


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


def moved_layout(
    residency: Residency, budget: int, copy_us: Callable[[int], int], moves: Moves, *, algorithms: bool = True
) -> Layout:
    """The layout of `residency`, within `budget` live bytes, with copies as `moves` says."""
    layout = Layout(residency=residency, paced=True)
    layout.stays = [residency.stays(value) for value in range(len(residency.events))]
    share_buffers(layout)
    _send(layout, budget, copy_us, moves)
    _fetch(layout, budget, moves.fetch)
    if algorithms:
        upgrade_engines(residency, budget)
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


def settle(strategy: Strategy, task: Task, layout_for: Callable[[int], Layout], least: int = 0) -> Candidate:
    """The first candidate that addresses are found for.

    `layout_for` gives the layout for at most so many live bytes, and raises InfeasibleError where the rule needs more;
    `least` are those that it needs in any case. Fewer live bytes are easier to place, so that where the budget's are
    too scattered the rule is tried with less. Raises InfeasibleError (SNP-P004) when no attempt fits.
    """
    layout: Layout | None = None
    for target in dict.fromkeys(max(least, int(task.budget * part)) for part in TARGETS):
        try:
            layout = layout_for(target)
        except InfeasibleError:
            if layout is None:
                raise
            break
        if (offsets := place(layout, task.budget)) is not None:
            return finish(layout, offsets, task.costs)
    assert layout is not None
    offsets = place(layout, None, LAST_EFFORT)
    assert offsets is not None
    height = max((o + b.size for o, b in zip(offsets, layout.buffers, strict=True)), default=0)
    if height > task.budget:
        raise strategy.refusal(task, height, placed=True)
    return finish(layout, offsets, task.costs)


def fixed(
    strategy: Strategy,
    task: Task,
    schedule: Schedule,
    *,
    evict: Callable[[Residency], Moves] = lambda residency: Moves(),
    algorithms: bool = True,
) -> Candidate:
    """The candidate of a rule that asks nothing of the budget: `evict` evicts gaps and says when their copies are."""

    def layout_for(target: int) -> Layout:
        residency = lean_residency(schedule)
        moves = evict(residency)
        return moved_layout(residency, target, task.costs.copy_us, moves, algorithms=algorithms)

    trial = lean_residency(schedule)
    evict(trial)
    least = peak(trial)
    if least > task.budget:
        raise strategy.refusal(task, least)
    return settle(strategy, task, layout_for, least)
