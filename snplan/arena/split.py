"""Splitting a problem into parts that can be placed on their own, without losing the lowest height.

Two facts, used in turn until neither applies: where no buffer spans a time, what is before and what is after may use
the same addresses; and a buffer that is live together with every other one can go to the bottom, since whatever lies
below it can move up past it as a whole. Resident buffers and nested lifetimes of a training step peel off this way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snplan.arena.heuristics import conflicts
from snplan.arena.problem import Int64, Problem, lower_bound, subproblem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Buffers to place from `base` bytes up, with no regard to other parts: their indices and their problem."""

    indices: Int64
    base: int
    problem: Problem

    @property
    def bound(self) -> int:
        """The height in bytes, from 0 up, that no placement of this part can beat."""
        return self.base + lower_bound(self.problem)


def split(problem: Problem) -> tuple[Int64, list[Part]]:
    """Return offsets, right for all buffers that are in no part (0 for the others), and the parts.

    Empty buffers are in no part. Where a buffer is fixed nothing goes to the bottom.
    """
    offsets = np.maximum(problem.fixed, 0)
    parts: list[Part] = []
    waiting = [Part(indices=indices, base=0, problem=subproblem(problem, indices)) for indices in components(problem)]
    while waiting:
        part = waiting.pop()
        peel = conflicts(part.problem) == len(part.problem) - 1
        if part.problem.has_fixed or not peel.any():
            parts.append(part)
            continue
        size = part.problem.size[peel]
        offsets[part.indices[peel]] = part.base + np.cumsum(size) - size
        rest = part.indices[~peel]
        for inner in components(subproblem(problem, rest)):
            indices = rest[inner]
            waiting.append(
                Part(indices=indices, base=part.base + int(size.sum()), problem=subproblem(problem, indices))
            )
    return offsets, parts


def components(problem: Problem) -> list[Int64]:
    """Return the groups of buffers (of any size but 0) between the times that no buffer spans, in time order."""
    some = np.flatnonzero(problem.size)
    if len(some) == 0:
        return []
    some = some[np.argsort(problem.start[some], kind="stable")]
    reached = np.maximum.accumulate(problem.end[some])
    return np.split(some, 1 + np.flatnonzero(problem.start[some][1:] >= reached[:-1]))
