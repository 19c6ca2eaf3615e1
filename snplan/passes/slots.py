"""Host slots: which values share host memory over time, in which pool, and their addresses in the pinned arena."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

import numpy as np

from snplan.arena.problem import make_problem
from snplan.arena.solve import assign
from snplan.cost.pools import Pool, by_speed
from snplan.passes.emit import Slot
from snplan.passes.layout import Layout
from snplan.units import round_up

Span = tuple[int, int, int]


def make_slots(layout: Layout, pools: Sequence[Pool] = ()) -> tuple[list[Slot], dict[int, int]]:
    """Slots with offsets in the pinned arena, and the slot of each value that is in host memory at some time.

    A persistent tensor and its next value share one slot for the whole step; other slots reuse bytes. With `pools` each
    has a part of the arena. The fastest is filled first, with what is copied most often; what finds no room in any is
    placed above all the room that they have together, where no limit on the arena accepts it.
    """
    spans, slot_key = _spans(layout)
    if pools:
        placed = _in_pools(spans, _copies(layout, slot_key), pools)
    else:
        placed = {key: (offset, None) for key, offset in zip(spans, _offsets(spans.values()), strict=True)}
    slots = [
        Slot(offset=placed[key][0], size=size, start=start, stop=stop, pool=placed[key][1])
        for key, (start, stop, size) in spans.items()
    ]
    index = {key: i for i, key in enumerate(spans)}
    return slots, {value: index[key] for value, key in slot_key.items()}


def _offsets(spans: Collection[Span]) -> list[int]:
    problem = make_problem([span[:2] for span in spans], [span[2] for span in spans])
    found: list[int] = assign(problem).offsets.tolist()
    return found


def _copies(layout: Layout, slot_key: Mapping[int, int]) -> Counter[int]:
    """How often each slot is copied to or from."""
    return Counter(slot_key[copy.value] for copy in (*layout.offloads, *layout.prefetches))


def _in_pools(
    spans: Mapping[int, Span], copies: Mapping[int, int], pools: Sequence[Pool]
) -> dict[int, tuple[int, str | None]]:
    """Offset and pool of each slot: one pool after another, the slots that are copied most often first."""
    rest = sorted(spans, key=lambda key: (-copies.get(key, 0), spans[key][0], key))
    placed: dict[int, tuple[int, str | None]] = {}
    base = 0
    for pool in by_speed(pools):
        offsets, rest = _filled(spans, rest, pool.bytes)
        placed.update({key: (base + offset, pool.name) for key, offset in offsets.items()})
        base += max((offset + spans[key][2] for key, offset in offsets.items()), default=0)
    room = sum(pool.bytes for pool in pools)
    above = round_up(max(base, room))
    beyond = zip(rest, _offsets([spans[key] for key in rest]), strict=True)
    return {**placed, **{key: (above + offset, pools[-1].name) for key, offset in beyond}}


def _filled(spans: Mapping[int, Span], keys: Sequence[int], room: int) -> tuple[dict[int, int], list[int]]:
    """Offsets within `room` bytes of as many of the slots as it holds, in order of `keys`, and the others."""
    live = np.zeros(max((spans[key][1] for key in keys), default=0), np.int64)
    taken, rest = [], []
    for key in keys:
        start, stop, size = spans[key]
        if live[start:stop].max(initial=0) + size <= room:
            live[start:stop] += size
            taken.append(key)
        else:
            rest.append(key)
    while taken:
        offsets = _offsets([spans[key] for key in taken])
        high = [key for key, offset in zip(taken, offsets, strict=True) if offset + spans[key][2] > room]
        if not high:
            return dict(zip(taken, offsets, strict=True)), rest
        rest = [*high, *rest]  # live bytes fit, side by side they do not
        taken = [key for key in taken if key not in set(high)]
    return {}, rest


def slot_bytes(layout: Layout) -> int:
    """Pinned host memory that the layout needs at least, in bytes."""
    end = layout.residency.schedule.end
    change = [0] * (end + 2)
    for start, stop, size in _spans(layout)[0].values():
        change[start] += size
        change[stop] -= size
    return max(accumulate(change), default=0)


def host_excess(layout: Layout, limit: int | None) -> int:
    """Bytes of pinned host memory that the layout needs above `limit` (None: there is none), negative where it fits."""
    return 0 if limit is None else slot_bytes(layout) - limit


def _spans(layout: Layout) -> tuple[dict[int, Span], dict[int, int]]:
    """(start, stop, bytes) of each slot by the value that it is named after, and that name for each value."""
    spans: dict[int, Span] = {}
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
