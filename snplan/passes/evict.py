"""Choose which gaps go to host memory so that every position fits a target; what still does not fit is isolated.

Belady's rule in time: the gap with the longest time until the next use goes first, activations before optimiser state,
gradients and parameters (the future is known, so this is the offline optimum for equal sizes; Belady, IBM Systems
Journal 5(2), 1966). Afterwards gaps that turned out not to be needed are restored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from snplan.analysis.excess import Excess
from snplan.analysis.floor import working_set
from snplan.analysis.residency import Gap, Live, Residency, role_class
from snplan.analysis.schedule import start_times
from snplan.passes.workspaces import positions_of_ops, shrink_workspaces, trade_engines

SMALL_BYTES = 64 << 10  # copies below this are latency alone: they come last


def fit(
    residency: Residency, budget: int, target: Live | None = None, copy_us: Callable[[int], int] | None = None
) -> bool:
    """Evict and isolate until every position's live bytes are at most `budget`; False when a working set is larger.

    `target` gives a lower aim for each position, which isolation may miss where an op needs more. With `copy_us`, the
    microseconds of a copy of so many bytes, engines do not wait for copies where slower ones end earlier.
    """
    limit = np.full(residency.live.size, budget, np.int64) if target is None else target
    if bool((residency.live <= limit).all()):
        return True
    _lower_hopeless(residency, budget)
    taken = _evict(residency, limit)
    shrink_workspaces(residency, limit)
    over = np.flatnonzero(residency.live > limit)
    if over.size:
        residency.isolate(over.tolist())
    _restore(residency, taken, limit)
    if copy_us is not None and not residency.isolated and trade_engines(residency, limit, copy_us):
        _restore(residency, taken, limit)
    return int(residency.live.max()) <= budget


def _lower_hopeless(residency: Residency, budget: int) -> None:
    """Give up engines whose workspace does not fit beside what their op reads and writes."""
    step = residency.schedule.step
    for op, positions in positions_of_ops(residency).items():
        room = budget - working_set(step, op) + step.engines[op][0].workspace
        allowed = step.engines[op][: residency.engine[op] + 1]
        fitting = max((i for i, choice in enumerate(allowed) if choice.workspace <= room), default=0)
        residency.set_engine(op, fitting, positions)


def _evict(residency: Residency, limit: Live) -> list[Gap]:
    """Evict gaps in order while positions they span are over their limit; the gaps taken, in that order."""
    taken: list[Gap] = []
    excess = Excess(residency.live - limit)
    size, values = residency.size, residency.schedule.values
    with residency.at_once():
        for gap in _candidates(residency, residency.live > limit):
            if gap.index in residency.evicted[gap.value] or excess.most(gap.start, gap.stop) <= 0:
                continue
            for freed in residency.evict(gap.value, gap.index):
                excess.add(freed.start, freed.stop, -size[values[freed.value].tensor])
            taken.append(gap)
            if excess.most(0, limit.size) <= 0:
                break
    return taken


def _candidates(residency: Residency, over: npt.NDArray[np.bool_]) -> Iterator[Gap]:
    """Gaps that span a position of `over`, best to evict first: by role class, small ones last, then by idle time."""
    schedule, size = residency.schedule, residency.size
    time = start_times(schedule)
    before = [0, *np.cumsum(over).tolist()]
    groups: defaultdict[int, list[tuple[int, Gap]]] = defaultdict(list)
    for value, events in enumerate(residency.events):
        if before[min(events[-1], schedule.end)] == before[events[0] + 1]:
            continue
        tensor, persistent = schedule.values[value].tensor, residency.is_persistent(value)
        group = groups[role_class(schedule.step.role(tensor)) + (10 if size[tensor] < SMALL_BYTES else 0)]
        for index in range(len(events) - 1):
            gap = residency.gap(value, index)
            if gap.stop > gap.start and before[gap.stop] > before[gap.start]:
                group.append((-_idle_time(gap, time, persistent), gap))
    for last in sorted(groups):
        for _, gap in sorted(groups[last]):
            yield gap


def _idle_time(gap: Gap, time: Sequence[int], persistent: bool) -> int:
    """Microseconds that the gap lasts; a persistent value's gap costs transfers at both ends of the step."""
    idle = time[gap.stop] - time[gap.start]
    return idle // 2 if persistent else idle


def _restore(residency: Residency, taken: list[Gap], limit: Live) -> None:
    """Keep again, last taken first, what fits after all (values that touch isolated positions stay as they are)."""
    if residency.isolated:
        return
    excess = Excess(residency.live - limit)
    with residency.at_once():
        for gap in reversed(taken):
            if residency.is_persistent(gap.value) or gap.index not in residency.evicted[gap.value]:
                continue
            amount = residency.size[residency.schedule.values[gap.value].tensor]
            if excess.most(gap.start, gap.stop) + amount <= 0:
                residency.restore(gap.value, gap.index)
                excess.add(gap.start, gap.stop, amount)
