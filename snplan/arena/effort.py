"""Effort: the work that a search may still do, in estimated nanoseconds: results must not depend on measured time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from snplan.arena.heuristics import CROWD, FEW, MANY, conflicts
from snplan.arena.problem import Problem

Clock = Callable[[], float]

GUARD = 4.0  # a clock, where one is given, ends a search after this many time limits


@dataclass(slots=True, kw_only=True)
class Effort:
    """Work that may still be done, in estimated nanoseconds, and the clock that ends it when estimates are far off."""

    left: float
    clock: Clock | None = None
    deadline: float = 0.0

    def spend(self, work: float) -> None:
        """Count work as done."""
        self.left -= work

    def over(self) -> bool:
        """Return whether the search has to end."""
        return self.left <= 0 or (self.clock is not None and self.clock() > self.deadline)

    def lend(self, share: float) -> Effort:
        """Return an effort of this share of what is left, taken from here."""
        part = Effort(left=max(self.left, 0.0) * share, clock=self.clock, deadline=self.deadline)
        self.left -= part.left
        return part

    def take_back(self, part: Effort) -> None:
        """Add what a lent effort has left over."""
        self.left += max(part.left, 0.0)


def effort_of(time_limit: float, clock: Clock | None) -> Effort:
    """Return the effort that takes about `time_limit` seconds."""
    return Effort(left=time_limit * 1e9, clock=clock, deadline=clock() + GUARD * time_limit if clock else 0.0)


def greedy_work(problem: Problem) -> float:
    """Return the estimated nanoseconds of one greedy placement: 10 us a buffer interpreted, 3 ns a look compiled."""
    count = len(problem)
    if count <= FEW:
        return 1e4 * count
    looks = np.full(count, count / 2)
    if count > MANY:
        looks = np.minimum(looks, 2.0 * conflicts(problem) + 2.0 * CROWD)
    return 200.0 * count + 3.0 * float(looks.sum())
