"""Choose which gaps go to host memory so that every position fits a target; what still does not fit is isolated.

Belady's rule in time: the gap with the longest time until the next use goes first, activations before optimiser state,
gradients and parameters (the future is known, so this is the offline optimum for equal sizes; Belady, IBM Systems
Journal 5(2), 1966). Afterwards gaps that turned out not to be needed are restored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from snplan.analysis.residency import Gap, Residency, role_class
from snplan.analysis.schedule import SOURCE_BIRTH, start_times

SMALL_BYTES = 64 << 10  # copies below this are latency alone: they come last


def fit(residency: Residency, target: int) -> bool:
    """Evict and isolate until every position's live bytes are at most `target`; False when a working set is larger."""
    if residency.live.size == 0 or int(residency.live.max()) <= target:
        return True
    taken = _evict(residency, target)
    _shrink_workspaces(residency, target)
    over = np.flatnonzero(residency.live > target)
    if over.size:
        residency.isolate(over.tolist())
    _restore(residency, taken, target)
    return int(residency.live.max()) <= target


def _evict(residency: Residency, target: int) -> list[Gap]:
    """Evict gaps in order while positions they span are over `target`; the gaps taken, in that order."""
    taken: list[Gap] = []
    live = residency.live
    for gap in _candidates(residency):
        if gap.index in residency.evicted[gap.value] or int(live[gap.start : gap.stop].max()) <= target:
            continue
        residency.evict(gap.value, gap.index)
        taken.append(gap)
    return taken


def positions_of_ops(residency: Residency) -> dict[int, list[int]]:
    """Positions of every execution of the ops that have engines."""
    engines = residency.schedule.step.engines
    found: dict[int, list[int]] = {}
    for position, op in enumerate(residency.schedule.runs):
        if engines[op]:
            found.setdefault(op, []).append(position)
    return found


def _shrink_workspaces(residency: Residency, target: int) -> None:
    """Smaller workspaces (slower engines) where positions are still over `target`."""
    for op, positions in positions_of_ops(residency).items():
        while residency.engine[op] > 0 and max(int(residency.live[p]) for p in positions) > target:
            residency.set_engine(op, residency.engine[op] - 1, positions)


def _candidates(residency: Residency) -> list[Gap]:
    """All gaps, best to evict first: by role class, small ones last, then by time until the next use."""
    schedule, size = residency.schedule, residency.size
    time = start_times(schedule)

    def key(gap: Gap) -> tuple[int, int, int, int]:
        tensor = schedule.values[gap.value].tensor
        group = role_class(schedule.step.role(tensor)) + (10 if size[tensor] < SMALL_BYTES else 0)
        return (group, -_idle_time(gap, time, residency.is_persistent(gap.value)), gap.value, gap.index)

    return sorted(residency.gaps(), key=key)


def _idle_time(gap: Gap, time: Sequence[int], persistent: bool) -> int:
    """Microseconds that the gap lasts; a persistent value's gap costs transfers at both ends of the step."""
    idle = time[gap.stop] - time[gap.start]
    return idle // 2 if persistent else idle


def _restore(residency: Residency, taken: list[Gap], target: int) -> None:
    """Keep again, last taken first, what fits after all (values that touch isolated positions stay as they are)."""
    if residency.isolated:
        return
    for gap in reversed(taken):
        if residency.is_persistent(gap.value) or residency.events[gap.value][0] == SOURCE_BIRTH:
            continue
        amount = residency.size[residency.schedule.values[gap.value].tensor]
        if int(residency.live[gap.start : gap.stop].max()) + amount <= target:
            residency.restore(gap.value, gap.index)
