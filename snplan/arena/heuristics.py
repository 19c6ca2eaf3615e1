"""Greedy placements: first fit and best fit in a priority order, and the orders worth trying."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from snplan.arena.problem import FREE, Int64, Problem, live_profile

FEW = 400  # buffers; up to here vectors over the placed ones are quicker than loading compiled code
COMPILED = "snplan.arena.fitting"
MANY = 4000  # buffers; from here on lists by time are quicker than one list of all
NEAR_PEAK = 0.999  # of the peak of live bytes: a tight time
CROWD = 128  # buffers that start in a stretch of time


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A named rule that gives a priority order: buffer indices, first placed first."""

    name: str
    rank: Callable[[Problem], Int64]


def first_fit(problem: Problem, order: Int64) -> Int64:
    """Return offsets: each buffer, in the given order, goes to the lowest gap between those live with it."""
    return greedy(problem, order, smallest_gap=False)


def best_fit(problem: Problem, order: Int64) -> Int64:
    """Return offsets: each buffer, in the given order, goes to the smallest gap that holds it, else on top."""
    return greedy(problem, order, smallest_gap=True)


def greedy(problem: Problem, order: Int64, *, smallest_gap: bool) -> Int64:
    """Return offsets of first fit, or of smallest-gap fit, in the given order; fixed buffers are there from the start.

    Problems of more than `FEW` buffers go to a compiled kernel, which gives the same offsets, and smaller ones too once
    it is loaded.
    """
    place = place_compiled if len(problem) > FEW or COMPILED in sys.modules else place_interpreted
    return place(problem, order, smallest_gap=smallest_gap)


def by_size(problem: Problem) -> Int64:
    """Return the buffers by size, largest first; ties by duration, longest first."""
    return _descending(problem.size, problem.end - problem.start)


def by_area(problem: Problem) -> Int64:
    """Return the buffers by size times duration, largest first."""
    return _descending(problem.size.astype(np.float64) * (problem.end - problem.start), problem.size)


def by_duration(problem: Problem) -> Int64:
    """Return the buffers by duration, longest first; ties by size, largest first."""
    return _descending(problem.end - problem.start, problem.size)


def by_start(problem: Problem) -> Int64:
    """Return the buffers by start time; together with `best_fit` this is what an allocator at run time does."""
    return np.lexsort((-problem.size, problem.start)).astype(np.int64)


def by_end(problem: Problem) -> Int64:
    """Return the buffers by end time, last first: an allocator that runs the step backwards."""
    return np.lexsort((-problem.size, -problem.end)).astype(np.int64)


def by_conflicts(problem: Problem) -> Int64:
    """Return the buffers by how many others are live with them, most first; ties by size."""
    return _descending(conflicts(problem), problem.size)


def by_contention(problem: Problem) -> Int64:
    """Return the buffers by the highest live bytes of their interval, fullest first; ties by size."""
    return _descending(peak_live(problem), problem.size)


def by_tightness(problem: Problem) -> Int64:
    """Return the buffers by how many of the times at or next to the peak they are live at, most first; ties by size.

    Those that are live at all such times end up at the bottom without gaps, and what takes turns there on top.
    """
    times, live = live_profile(problem)
    tight = np.concatenate([[0], np.cumsum(live >= NEAR_PEAK * live.max(initial=0))])
    covered = tight[np.searchsorted(times, problem.end)] - tight[np.searchsorted(times, problem.start)]
    return _descending(covered, problem.size)


ORDERS = (
    Order(name="size", rank=by_size),
    Order(name="contention", rank=by_contention),
    Order(name="start", rank=by_start),
    Order(name="area", rank=by_area),
    Order(name="conflicts", rank=by_conflicts),
    Order(name="duration", rank=by_duration),
    Order(name="tightness", rank=by_tightness),
    Order(name="end", rank=by_end),
)


def conflicts(problem: Problem) -> Int64:
    """Return, for each buffer, how many others are live at some time of its interval."""
    begun = np.searchsorted(np.sort(problem.start), problem.end, side="left")
    over = np.searchsorted(np.sort(problem.end), problem.start, side="right")
    return (begun - over - 1).astype(np.int64)


def peak_live(problem: Problem) -> Int64:
    """Return, for each buffer, the highest live bytes within its interval (sparse table over the profile)."""
    if len(problem) == 0:
        return np.empty(0, np.int64)
    times, live = live_profile(problem)
    first = np.searchsorted(times, problem.start)
    last = np.searchsorted(times, problem.end)
    tables = [live]
    while 2 << (len(tables) - 1) <= len(live):
        half = 1 << (len(tables) - 1)
        tables.append(np.maximum(tables[-1][:-half], tables[-1][half:]))
    level = np.frexp((last - first).astype(np.float64))[1] - 1
    peak = np.empty(len(problem), np.int64)
    for k, table in enumerate(tables):
        at = np.flatnonzero(level == k)
        peak[at] = np.maximum(table[first[at]], table[last[at] - (1 << k)])
    return peak


def _descending(key: Int64 | np.ndarray, tie: Int64) -> Int64:
    return np.lexsort((-tie, -key)).astype(np.int64)


def place_compiled(problem: Problem, order: Int64, *, smallest_gap: bool) -> Int64:
    """Return the offsets of `greedy` by a compiled kernel, whose first use costs the loading of numba."""
    from snplan.arena import fitting

    fixed = np.flatnonzero(problem.fixed != FREE)
    fixed = fixed[np.argsort(problem.fixed[fixed], kind="stable")]
    whole = np.concatenate([fixed, order[problem.fixed[order] == FREE]])
    offsets = problem.fixed.copy()
    arrays = problem.start.copy(), problem.end.copy(), problem.size.copy()
    if len(problem) <= MANY:
        fitting.fit(*arrays, whole, offsets, len(fixed), smallest_gap)
    else:
        fitting.fit_by_time(*arrays, whole, offsets, len(fixed), smallest_gap, *stretches(problem))
    return offsets


def stretches(problem: Problem) -> tuple[Int64, Int64, int]:
    """Return `(first, last, count)`: buffer `i` is live in the stretches of time `first[i] .. last[i] - 1` of `count`.

    In each of them about `CROWD` buffers start.
    """
    edges = np.append(np.unique(np.sort(problem.start)[::CROWD]), problem.end.max())
    first = np.searchsorted(edges, problem.start, side="right") - 1
    return first, np.searchsorted(edges, problem.end, side="left"), len(edges) - 1


def place_interpreted(problem: Problem, order: Int64, *, smallest_gap: bool) -> Int64:
    """Return the offsets of `greedy`, by vector operations over the placed buffers, kept sorted by offset."""
    offsets = problem.fixed.copy()
    fixed = np.flatnonzero(problem.fixed != FREE)
    fixed = fixed[np.argsort(problem.fixed[fixed], kind="stable")]
    placed = _Placed(len(problem))
    for i in fixed.tolist():
        placed.insert(int(offsets[i]), int(problem.size[i]), int(problem.start[i]), int(problem.end[i]))
    start, end, size = problem.start.tolist(), problem.end.tolist(), problem.size.tolist()
    for i in order.tolist():
        if offsets[i] == FREE:
            offsets[i] = placed.gap(size[i], start[i], end[i], smallest_gap)
            placed.insert(int(offsets[i]), size[i], start[i], end[i])
    return offsets


class _Placed:
    """The placed buffers, sorted by offset."""

    __slots__ = ("bottom", "count", "end", "start", "top")

    def __init__(self, room: int) -> None:
        self.bottom, self.top, self.start, self.end = (np.empty(room, np.int64) for _ in range(4))
        self.count = 0

    def gap(self, size: int, start: int, end: int, smallest: bool) -> int:
        """Return the offset of the lowest (or smallest) gap of at least `size` bytes that is free all of the time."""
        n = self.count
        live = np.flatnonzero((self.start[:n] < end) & (self.end[:n] > start))
        if len(live) == 0:
            return 0
        tops = np.maximum.accumulate(self.top[live])
        gaps = self.bottom[live]
        gaps[1:] -= tops[:-1]
        fits = np.flatnonzero(gaps >= size)
        if len(fits) == 0:
            return int(tops[-1])
        at = int(fits[np.argmin(gaps[fits])] if smallest else fits[0])
        return int(tops[at - 1]) if at else 0

    def insert(self, offset: int, size: int, start: int, end: int) -> None:
        """Add a buffer at its place by offset."""
        n = self.count
        at = int(np.searchsorted(self.bottom[:n], offset, side="right"))
        for row, value in ((self.bottom, offset), (self.top, offset + size), (self.start, start), (self.end, end)):
            row[at + 1 : n + 1] = row[at:n]
            row[at] = value
        self.count = n + 1
