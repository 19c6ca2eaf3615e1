"""The LRU tensor cache of SuperNeurons (section 3.3, Algorithm 2), replayed offline over a schedule.

Tensors stay on the device until an allocation does not fit. Then the least recently used tensor that is not locked
leaves, and more of them until there is room. What the present op reads and writes is locked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable

from snplan.analysis.residency import Live, Residency
from snplan.strategies.moves import Send


def replay_cache(residency: Residency, cached: Iterable[int], target: Live) -> dict[int, Send]:
    """Evicts values of `cached` as the cache would with `target` bytes at each position; when each is sent to the host.

    Positions where no tensor is left to evict stay above their target.
    """
    schedule, candidates = residency.schedule, set(cached)
    sends: dict[int, Send] = {}
    sources = range(len(schedule.step.sources))
    recent: OrderedDict[int, None] = OrderedDict.fromkeys(v for v in sources if v in candidates)
    for position in range(schedule.end):
        touched = (*schedule.reads[position], *schedule.writes[position])
        while residency.live[position] > target[position]:
            victim = next((v for v in recent if v not in touched), None)
            if victim is None:
                break
            del recent[victim]
            _evict(residency, victim, position, sends)
        for value in touched:
            if value in candidates:
                recent.pop(value, None)
                if residency.events[value][-1] > position:
                    recent[value] = None
    return sends


def _evict(residency: Residency, value: int, position: int, sends: dict[int, Send]) -> None:
    """Evict `value` from `position` to its next use; the first time it is copied out, just before `position`."""
    residency.evict(value, bisect_left(residency.events[value], position) - 1)
    sends.setdefault(value, Send(after=position - 1, until=position))
