"""The address problem as plain data: buffers with live intervals and sizes, offsets, and an independent check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int64 = NDArray[np.int64]

FREE = -1  # the `fixed` entry of a buffer whose offset is to be chosen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Buffers to place: live interval `[start, end)` in integer time, `size` in bytes, and a fixed offset or `FREE`.

    Arrays are copied, made read-only, and all of one length. Raises ValueError for arrays that are no such problem.
    """

    start: Int64
    end: Int64
    size: Int64
    fixed: Int64 = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        fixed = self.fixed if len(self.fixed) else np.full(len(self.start), FREE, np.int64)
        for name, values in (("start", self.start), ("end", self.end), ("size", self.size), ("fixed", fixed)):
            object.__setattr__(self, name, _frozen(values))
        message = _malformed(self)
        if message is not None:
            raise ValueError(message)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def has_fixed(self) -> bool:
        """Whether any buffer has a fixed offset."""
        return bool((self.fixed != FREE).any())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """An offset for every buffer, in the problem's order, and the extent used (bytes)."""

    offsets: Int64
    height: int
    bound: int

    @property
    def optimal(self) -> bool:
        """Whether the height is known to be the lowest possible, because it equals the lower bound."""
        return self.height == self.bound


def make_problem(
    intervals: Sequence[tuple[int, int]], sizes: Sequence[int], fixed: Sequence[int] | None = None
) -> Problem:
    """Return the problem of these `(start, end)` intervals, sizes in bytes and fixed offsets (`FREE` = to choose)."""
    start = np.array([interval[0] for interval in intervals], np.int64)
    end = np.array([interval[1] for interval in intervals], np.int64)
    offsets = np.array([] if fixed is None else fixed, np.int64)
    return Problem(start=start, end=end, size=np.array(sizes, np.int64), fixed=offsets)


def subproblem(problem: Problem, part: Int64) -> Problem:
    """Return the problem of the buffers at these indices only, in this order."""
    return Problem(start=problem.start[part], end=problem.end[part], size=problem.size[part], fixed=problem.fixed[part])


def overlaps(problem: Problem, some: NDArray[np.bool_], start: Int64, end: Int64) -> NDArray[np.bool_]:
    """Return whether each interval `start .. end`, if not empty, overlaps the live interval of any of some buffers."""
    begun = np.searchsorted(np.sort(problem.start[some]), end, side="left")
    done = np.searchsorted(np.sort(problem.end[some]), start, side="right")
    return (begun > done) & (start < end)


def live_profile(problem: Problem) -> tuple[Int64, Int64]:
    """Return `(times, live)`: from `times[i]` until `times[i + 1]` the buffers alive hold `live[i]` bytes."""
    times, index = np.unique(np.concatenate([problem.start, problem.end]), return_inverse=True)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, index, np.concatenate([problem.size, -problem.size]))
    return times.astype(np.int64), np.cumsum(change)


def lower_bound(problem: Problem) -> int:
    """Return a height in bytes that no placement can beat: the peak of live bytes, or the top of a fixed buffer."""
    if len(problem) == 0:
        return 0
    tops = np.where(problem.fixed == FREE, 0, problem.fixed + problem.size)
    return max(int(live_profile(problem)[1].max()), int(tops.max()))


def height_of(problem: Problem, offsets: Int64) -> int:
    """Return the extent in bytes that these offsets use."""
    return int((offsets + problem.size).max()) if len(problem) else 0


def validate(problem: Problem, offsets: ArrayLike) -> str | None:
    """Return which rule the offsets break, with the buffers' indices and bytes, or None when they are a placement.

    Shares nothing with the searches: it walks time in order and compares every newly live buffer with all live ones.
    """
    values = [int(offset) for offset in np.asarray(offsets).tolist()]
    if len(values) != len(problem):
        return f"count: {len(values)} offsets for {len(problem)} buffers"
    for i, offset in enumerate(values):
        if offset < 0:
            return f"negative: buffer {i} is at offset {offset}"
        if problem.fixed[i] != FREE and offset != problem.fixed[i]:
            return f"fixed: buffer {i} is at offset {offset}, not at its fixed offset {problem.fixed[i]}"
    return _first_overlap(problem.start.tolist(), problem.end.tolist(), problem.size.tolist(), values)


def _first_overlap(start: list[int], end: list[int], size: list[int], offset: list[int]) -> str | None:
    live: list[int] = []
    for i in sorted(range(len(start)), key=start.__getitem__):
        live = [j for j in live if end[j] > start[i]]
        for j in live:
            if max(offset[i], offset[j]) < min(offset[i] + size[i], offset[j] + size[j]):
                return (
                    f"overlap: buffers {min(i, j)} and {max(i, j)} are live together at time {start[i]} and share "
                    f"bytes from {max(offset[i], offset[j])} to {min(offset[i] + size[i], offset[j] + size[j])}"
                )
        live.append(i)
    return None


def _frozen(values: Int64) -> Int64:
    array = np.array(values, np.int64)
    array.setflags(write=False)
    return array


def _malformed(problem: Problem) -> str | None:
    counts = {len(problem.start), len(problem.end), len(problem.size), len(problem.fixed)}
    if len(counts) != 1:
        return f"start, end, size and fixed have different lengths: {sorted(counts)}"
    for i in np.flatnonzero(problem.start >= problem.end)[:1]:
        return f"buffer {i} has an empty live interval [{problem.start[i]}, {problem.end[i]})"
    for i in np.flatnonzero(problem.size < 0)[:1]:
        return f"buffer {i} has a negative size of {problem.size[i]} bytes"
    for i in np.flatnonzero(problem.fixed < FREE)[:1]:
        return f"buffer {i} has a negative fixed offset of {problem.fixed[i]} bytes"
    return None
