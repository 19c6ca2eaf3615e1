"""Host slots: which values share host memory over time, and their addresses in the pinned arena."""

from __future__ import annotations

from itertools import accumulate

from snplan.arena.problem import make_problem
from snplan.arena.solve import assign
from snplan.passes.emit import Slot
from snplan.passes.layout import Layout


def make_slots(layout: Layout) -> tuple[list[Slot], dict[int, int]]:
    """Slots with offsets in the pinned arena, and the slot of each value that is in host memory at some time.

    A persistent tensor and its next value share one slot for the whole step; other slots reuse bytes.
    """
    spans, slot_key = _spans(layout)
    keys = list(spans)
    problem = make_problem([spans[k][:2] for k in keys], [spans[k][2] for k in keys])
    offsets = assign(problem).offsets.tolist()
    slots = [
        Slot(offset=o, size=spans[k][2], start=spans[k][0], stop=spans[k][1])
        for o, k in zip(offsets, keys, strict=True)
    ]
    index = {key: i for i, key in enumerate(keys)}
    return slots, {value: index[key] for value, key in slot_key.items()}


def slot_bytes(layout: Layout) -> int:
    """Pinned host memory that the layout needs at least, in bytes."""
    end = layout.residency.schedule.end
    change = [0] * (end + 2)
    for start, stop, size in _spans(layout)[0].values():
        change[start] += size
        change[stop] -= size
    return max(accumulate(change), default=0)


def _spans(layout: Layout) -> tuple[dict[int, tuple[int, int, int]], dict[int, int]]:
    """(start, stop, bytes) of each slot by the value that it is named after, and that name for each value."""
    spans: dict[int, tuple[int, int, int]] = {}
    slot_key: dict[int, int] = {}
    residency, end = layout.residency, layout.residency.schedule.end
    last_fetch: dict[int, int] = {}
    for copy in layout.prefetches:
        last_fetch[copy.value] = max(last_fetch.get(copy.value, 0), copy.position + 1)
    for value in range(len(residency.events)):
        if not layout.needs_slot(value):
            continue
        size = residency.size[residency.schedule.values[value].tensor]
        key = residency.partner[value][0] if value in residency.partner else value
        slot_key[value] = key
        start = max(residency.events[value][0], 0)
        stop = end if residency.ends_in_host(value) else max(last_fetch.get(value, 0), start + 1)
        spans[key] = (0, end, size) if value in residency.partner else (start, stop, size)
    return spans, slot_key
