"""Live bytes of a plan over its executions, by group: what the memory timeline draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from snplan.plan.model import Alloc, Free, Recompute, Run, StepPlan
from snplan.plan.stays import actions_with_writes
from snplan.plan.timeline import BREAKDOWN, group_of

_GROUPS = {name: number for number, name in enumerate(BREAKDOWN)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Live bytes while an action that executes an op is under way; `groups` in the order of BREAKDOWN."""

    action: int
    op: str
    groups: tuple[int, ...]

    @property
    def live(self) -> int:
        """All live bytes."""
        return sum(self.groups)


def memory_moments(plan: StepPlan) -> list[Moment]:
    """One moment for each execution, in issue order. A buffer counts for what it holds; before its first tensor is
    written, for the one that will be."""
    group = {row.name: _GROUPS[group_of(row.role)] for row in plan.tensors}
    sizes = {row.id: row.bytes for row in plan.buffers}
    ahead = _first_groups(plan, group)
    held: dict[int, int] = {}
    totals = [0] * len(BREAKDOWN)

    def hold(buffer: int, number: int | None) -> None:
        before = held.pop(buffer, None)
        if before is not None:
            totals[before] -= sizes[buffer]
        if number is not None:
            held[buffer] = number
            totals[number] += sizes[buffer]

    for place in plan.resident:
        if place.buffer is not None:
            hold(place.buffer, group[place.tensor])
    moments = []
    for i, (action, writes) in enumerate(actions_with_writes(plan)):
        if isinstance(action, Alloc):
            hold(action.buffer, ahead.get(i, _GROUPS["other"]))
        elif isinstance(action, Free):
            hold(action.buffer, None)
        for buffer, tensor in writes:
            hold(buffer, _number(group, tensor))
        if isinstance(action, Run | Recompute):
            moments.append(Moment(action=i, op=action.op, groups=tuple(totals)))
    return moments


def _first_groups(plan: StepPlan, group: dict[str, int]) -> dict[int, int]:
    """Alloc action -> the group of what is first written to its buffer."""
    waiting: dict[int, int] = {}
    found: dict[int, int] = {}
    for i, (action, writes) in enumerate(actions_with_writes(plan)):
        if isinstance(action, Alloc):
            waiting[action.buffer] = i
        for buffer, tensor in writes:
            if buffer in waiting:
                found[waiting.pop(buffer)] = _number(group, tensor)
    return found


def _number(group: dict[str, int], tensor: str | None) -> int:
    return _GROUPS["workspace"] if tensor is None else group[tensor]


def thinned(moments: Sequence[Moment], most: int) -> list[Moment]:
    """At most `most` moments, evenly spread: of each stretch the one with the most live bytes, so that peaks stay."""
    if len(moments) <= most:
        return list(moments)
    borders = [len(moments) * i // most for i in range(most + 1)]
    return [max(moments[low:high], key=lambda moment: moment.live) for low, high in pairwise(borders)]
