"""The inner loops of greedy placement, compiled (`jit`).

`fit` keeps one list of the placed buffers by offset and scans it for every buffer. `fit_by_time`, for many buffers,
keeps a list for every stretch of time, so that a buffer of short duration scans only its neighborhood: the lists of its
stretches and the list of the long ones, merged by offset while scanning. A buffer of long duration scans the list of
all. Into the two lists that are long themselves the placed buffers are merged only before a scan.
"""

from __future__ import annotations

import numpy as np

from snplan.arena.jit import inner, kernel
from snplan.arena.problem import Int64

HUGE = 1 << 62
SPAN = 6  # stretches; a buffer over more of them is a long one


@kernel
def fit(start: Int64, end: Int64, size: Int64, order: Int64, offset: Int64, count: int, smallest: bool) -> int:
    """Return the height of first fit (or smallest-gap fit) in this order; the first `count` keep their offsets."""
    n = len(order)
    bottom, top = np.empty(n, np.int64), np.empty(n, np.int64)
    begin, until = np.empty(n, np.int64), np.empty(n, np.int64)
    height = 0
    for placed in range(n):
        i = order[placed]
        if placed >= count:
            offset[i] = _gap(bottom, top, begin, until, placed, start[i], end[i], size[i], smallest)
        at = placed
        while at > 0 and bottom[at - 1] > offset[i]:
            bottom[at], top[at], begin[at], until[at] = bottom[at - 1], top[at - 1], begin[at - 1], until[at - 1]
            at -= 1
        bottom[at], top[at], begin[at], until[at] = offset[i], offset[i] + size[i], start[i], end[i]
        height = max(height, top[at])
    return height


@inner
def _gap(
    bottom: Int64, top: Int64, begin: Int64, until: Int64, count: int, start: int, end: int, size: int, smallest: bool
) -> int:
    current, best, best_gap = 0, -1, HUGE
    for j in range(count):
        if begin[j] < end and until[j] > start:
            gap = bottom[j] - current
            if gap >= size and gap < best_gap:
                best, best_gap = current, gap
                if not smallest:
                    break
            current = max(current, top[j])
    return current if best < 0 else best


@kernel
def fit_by_time(
    start: Int64,
    end: Int64,
    size: Int64,
    order: Int64,
    offset: Int64,
    count: int,
    smallest: bool,
    first: Int64,
    last: Int64,
    stretches: int,
) -> int:
    """Return what `fit` returns, with a list of placed buffers a stretch; `i` is in `first[i] .. last[i] - 1`."""
    n = len(order)
    base = _list_starts(first, last, stretches)
    entry, filled = np.empty(base[stretches + 1], np.int64), base.copy()
    everything, waiting = np.empty(n, np.int64), np.empty(n, np.int64)
    head, lists = np.empty(SPAN + 1, np.int64), np.empty(SPAN + 1, np.int64)
    merged, waits, height = 0, 0, 0
    for placed in range(n):
        i = order[placed]
        is_long = last[i] - first[i] > SPAN
        if placed >= count and is_long:
            _merge(everything, merged, order[merged:placed], offset)
            merged = placed
            offset[i] = _gap_in(everything, merged, start, end, size, offset, i, smallest)
        elif placed >= count:
            _merge(entry[base[stretches] :], filled[stretches] - base[stretches], waiting[:waits], offset)
            filled[stretches] += waits
            waits = 0
            used = last[i] - first[i] + 1
            for k in range(used - 1):
                lists[k] = first[i] + k
            lists[used - 1] = stretches
            offset[i] = _gap_between(entry, base, filled, lists[:used], head, start, end, size, offset, i, smallest)
        if is_long:
            waiting[waits] = i
            waits += 1
        else:
            for stretch in range(first[i], last[i]):
                _insert(entry, base, filled, stretch, offset, i)
        height = max(height, offset[i] + size[i])
    return height


@inner
def _list_starts(first: Int64, last: Int64, stretches: int) -> Int64:
    """Return where the list of each stretch starts in the common room; the list of the long buffers is the last."""
    base = np.zeros(stretches + 2, np.int64)
    for i in range(len(first)):
        if last[i] - first[i] > SPAN:
            base[stretches + 1] += 1
        else:
            for stretch in range(first[i], last[i]):
                base[stretch + 1] += 1
    for k in range(1, len(base)):
        base[k] += base[k - 1]
    return base


@inner
def _insert(entry: Int64, base: Int64, filled: Int64, which: int, offset: Int64, i: int) -> None:
    """Put a buffer into a list at its place by offset."""
    at = filled[which]
    filled[which] += 1
    while at > base[which] and offset[entry[at - 1]] > offset[i]:
        entry[at] = entry[at - 1]
        at -= 1
    entry[at] = i


@inner
def _merge(listed: Int64, merged: int, fresh: Int64, offset: Int64) -> None:
    """Merge buffers into a list whose first `merged` entries are in the order of their offsets."""
    if len(fresh) == 0:
        return
    fresh = fresh.copy()
    _sort(fresh, offset)
    at, old = merged + len(fresh) - 1, merged - 1
    for k in range(len(fresh) - 1, -1, -1):
        while old >= 0 and offset[listed[old]] > offset[fresh[k]]:
            listed[at] = listed[old]
            at, old = at - 1, old - 1
        listed[at] = fresh[k]
        at -= 1


@inner
def _sort(listed: Int64, key: Int64) -> None:
    """Sort by key, in place (Shell's sort: np.argsort takes seconds to compile)."""
    step = len(listed) // 2
    while step > 0:
        for k in range(step, len(listed)):
            i, at = listed[k], k
            while at >= step and key[listed[at - step]] > key[i]:
                listed[at] = listed[at - step]
                at -= step
            listed[at] = i
        step //= 2


@inner
def _gap_in(
    listed: Int64, count: int, start: Int64, end: Int64, size: Int64, offset: Int64, i: int, smallest: bool
) -> int:
    current, best, best_gap = 0, -1, HUGE
    for k in range(count):
        j = listed[k]
        if start[j] < end[i] and end[j] > start[i]:
            gap = offset[j] - current
            if gap >= size[i] and gap < best_gap:
                best, best_gap = current, gap
                if not smallest:
                    break
            current = max(current, offset[j] + size[j])
    return current if best < 0 else best


@inner
def _gap_between(
    entry: Int64,
    base: Int64,
    filled: Int64,
    lists: Int64,
    head: Int64,
    start: Int64,
    end: Int64,
    size: Int64,
    offset: Int64,
    i: int,
    smallest: bool,
) -> int:
    """Return the gap for a buffer of short duration among those in some lists, taken in the order of their offsets."""
    for k in range(len(lists)):
        head[k] = base[lists[k]]
    current, best, best_gap = 0, -1, HUGE
    while True:
        lowest, source = HUGE, -1
        for k in range(len(lists)):
            while head[k] < filled[lists[k]] and not (
                start[entry[head[k]]] < end[i] and end[entry[head[k]]] > start[i]
            ):
                head[k] += 1
            if head[k] < filled[lists[k]] and offset[entry[head[k]]] < lowest:
                lowest, source = offset[entry[head[k]]], k
        if source < 0:
            return current if best < 0 else best
        j = entry[head[source]]
        head[source] += 1
        if lowest - current >= size[i] and lowest - current < best_gap:
            best, best_gap = current, lowest - current
            if not smallest:
                return best
        current = max(current, lowest + size[j])
