"""The inner loops of `wishes`, compiled (`jit`): where a buffer gets most of its wish and costs others least of theirs.

A placed buffer has its addresses for a live interval between its need and its wish. A buffer that is put somewhere
takes from the others there what its need overlaps of their wishes, never of their needs. What a wish lacks is its
*loss*, in units of time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from snplan.arena.jit import inner, kernel
from snplan.arena.problem import Int64

SPAN = 8  # stretches of time; a buffer over more of them is in the one list of long buffers
HUGE = 1 << 62


class Wished(NamedTuple):
    """Buffers: needed live intervals `start .. end`, which the wishes `early .. late` contain."""

    start: Int64
    end: Int64
    early: Int64
    late: Int64
    size: Int64


class Granted(NamedTuple):
    """What `settle` changes: offsets (-1: not placed) and the live intervals that buffers have."""

    offset: Int64
    start: Int64
    end: Int64


class Lists(NamedTuple):
    """Which buffers may be live in which stretch of time: `entry[base[k] : base[k + 1]]`, the long ones last."""

    first: Int64
    last: Int64
    base: Int64
    entry: Int64


@kernel
def list_by_time(first: Int64, last: Int64, stretches: int) -> Lists:
    """Return the lists of buffers that are in the stretches `first[i] .. last[i] - 1`."""
    n = len(first)
    base = np.zeros(stretches + 2, np.int64)
    for i in range(n):
        if last[i] - first[i] > SPAN:
            base[stretches + 1] += 1
        else:
            for k in range(first[i], last[i]):  # NumPy's sums take seconds to compile
                base[k + 1] += 1
    for k in range(1, len(base)):
        base[k] += base[k - 1]
    filled, entry = base.copy(), np.empty(base[stretches + 1], np.int64)
    for i in range(n):
        is_long = last[i] - first[i] > SPAN
        for k in range(stretches if is_long else first[i], stretches + 1 if is_long else last[i]):
            entry[filled[k]] = i
            filled[k] += 1
    return Lists(first, last, base, entry)


@kernel
def extend(wished: Wished, granted: Granted, lists: Lists) -> None:
    """Give every placed buffer all of its wish that is free at its addresses, in the order of the buffers."""
    near = np.empty(len(wished.size), np.int64)
    for i in range(len(wished.size)):
        if granted.offset[i] >= 0 and (wished.early[i] < granted.start[i] or granted.end[i] < wished.late[i]):
            count, _ = _near(wished, granted, lists, i, near)
            _extend(wished, granted, near[:count], i)


@kernel
def settle(wished: Wished, granted: Granted, lists: Lists, order: Int64, capacity: int, room: int) -> int:
    """Put the buffers of this order where they cost least, if that is less than now; return the looks that took.

    Ends after `room` looks.
    """
    near = np.empty(len(wished.size), np.int64)
    work = 0
    for i in order:
        length = wished.late[i] - wished.early[i]
        now = HUGE if granted.offset[i] < 0 else length - (granted.end[i] - granted.start[i])
        if now == 0 or work > room:
            continue
        count, looks = _near(wished, granted, lists, i, near)
        work += looks
        if now < HUGE:  # others may have gone meanwhile
            _extend(wished, granted, near[:count], i)
            now = length - (granted.end[i] - granted.start[i])
        at, looks = _cheapest(wished, granted, near[:count], i, now, capacity)
        work += looks
        if at >= 0:
            granted.offset[i] = at
            _trim(wished, granted, near[:count], i)
            _extend(wished, granted, near[:count], i)
    return work


@inner
def _near(wished: Wished, granted: Granted, lists: Lists, i: int, near: Int64) -> tuple[int, int]:
    """Return how many placed buffers are live within the wish of `i`, now in `near`; and the looks that took.

    Empty buffers are near nothing: they share no bytes.
    """
    stretches = len(lists.base) - 2
    count, looks = 0, 0
    if wished.size[i] == 0:
        return count, looks
    for k in range(lists.first[i], lists.last[i] + 1):
        which = k if k < lists.last[i] else stretches
        for at in range(lists.base[which], lists.base[which + 1]):
            j = lists.entry[at]
            looks += 1
            if (
                j == i
                or wished.size[j] == 0
                or granted.offset[j] < 0
                or (which < stretches and k > lists.first[i] and lists.first[j] < k)
            ):
                continue  # the last: it was in the list before, too
            if granted.start[j] < wished.late[i] and granted.end[j] > wished.early[i]:
                near[count] = j
                count += 1
    return count, looks


@inner
def _cheapest(wished: Wished, granted: Granted, near: Int64, i: int, least: int, capacity: int) -> tuple[int, int]:
    """Return the offset of the least loss, the lowest of them, or -1 where none is below `least`; and the looks.

    Such an offset exists at 0, at the top of another buffer, or with the buffer's top at the bottom of another one.
    """
    size = wished.size[i]
    best, best_at, looks = least, -1, 0
    for c in range(2 * len(near) + 1):
        at = 0
        if c > 0:
            j = near[(c - 1) // 2]
            at = granted.offset[j] + wished.size[j] if c % 2 else granted.offset[j] - size
        if at < 0 or at + size > capacity:
            continue
        loss, seen = _loss(wished, granted, near, i, at, best)
        looks += seen
        if loss < best or (loss == best and best_at > at):
            best, best_at = loss, at
    return best_at, looks


@inner
def _loss(wished: Wished, granted: Granted, near: Int64, i: int, offset: int, most: int) -> tuple[int, int]:
    """Return what all wishes lose with `i` at an offset, HUGE where its need collides (or the loss passes `most`)."""
    top = offset + wished.size[i]
    start, end, need_start, need_end = wished.early[i], wished.late[i], wished.start[i], wished.end[i]
    taken, looks = 0, 0
    for j in near:
        looks += 1
        if granted.offset[j] < top and granted.offset[j] + wished.size[j] > offset:
            if wished.end[j] <= need_start:
                start = max(start, min(granted.end[j], need_start))
                taken += max(0, granted.end[j] - need_start)
            elif wished.start[j] >= need_end:
                end = min(end, max(granted.start[j], need_end))
                taken += max(0, need_end - granted.start[j])
            else:
                return HUGE, looks
            if taken + (start - wished.early[i]) + (wished.late[i] - end) > most:
                return HUGE, looks
    return taken + (start - wished.early[i]) + (wished.late[i] - end), looks


@inner
def _trim(wished: Wished, granted: Granted, near: Int64, i: int) -> None:
    """Take from the others at the addresses of `i` what its need overlaps of their live intervals."""
    offset, top = granted.offset[i], granted.offset[i] + wished.size[i]
    for j in near:
        if granted.offset[j] < top and granted.offset[j] + wished.size[j] > offset:
            if wished.end[j] <= wished.start[i]:
                granted.end[j] = min(granted.end[j], wished.start[i])
            else:
                granted.start[j] = max(granted.start[j], wished.end[i])


@inner
def _extend(wished: Wished, granted: Granted, near: Int64, i: int) -> None:
    """Give `i` all of its wish that is free at its addresses."""
    offset, top = granted.offset[i], granted.offset[i] + wished.size[i]
    start, end = wished.early[i], wished.late[i]
    for j in near:
        if granted.offset[j] < top and granted.offset[j] + wished.size[j] > offset:
            if granted.end[j] <= wished.start[i]:
                start = max(start, granted.end[j])
            else:
                end = min(end, granted.start[j])
    granted.start[i], granted.end[i] = start, end
