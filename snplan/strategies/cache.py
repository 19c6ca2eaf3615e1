"""The LRU tensor cache of SuperNeurons (section 3.3, Algorithm 2), replayed offline over a schedule.

Tensors stay on the device until an allocation does not fit. Then the least recently used tensor that is not locked
leaves, and more of them until there is room. What the present op reads and writes is locked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable

from snplan.analysis.residency import Residency
from snplan.strategies.moves import Send


def replay_cache(residency: Residency, cached: Iterable[int], budget: int) -> tuple[dict[int, Send], int]:
    """Evicts values of `cached` as the cache would within `budget` bytes.

    Returns when each is sent to the host, and the bytes that the most loaded position then needs: more than `budget`
    where no tensor was left to evict.
    """
    schedule, candidates = residency.schedule, set(cached)
    sends: dict[int, Send] = {}
    recent: OrderedDict[int, None] = OrderedDict.fromkeys(v for v in sorted(candidates) if _is_source(residency, v))
    needed = 0
    for position in range(schedule.end):
        touched = (*schedule.reads[position], *schedule.writes[position])
        while residency.live[position] > budget:
            victim = next((v for v in recent if v not in touched), None)
            if victim is None:
                break
            del recent[victim]
            _evict(residency, victim, position, sends)
        needed = max(needed, int(residency.live[position]))
        for value in touched:
            if value in candidates:
                recent.pop(value, None)
                if residency.events[value][-1] > position:
                    recent[value] = None
    return sends, needed


def _is_source(residency: Residency, value: int) -> bool:
    return value < len(residency.schedule.step.sources)


def _evict(residency: Residency, value: int, position: int, sends: dict[int, Send]) -> None:
    """Evict `value` from `position` to its next use; the first time it is copied out, just before `position`."""
    residency.evict(value, bisect_left(residency.events[value], position) - 1)
    sends.setdefault(value, Send(after=position - 1, until=position))
