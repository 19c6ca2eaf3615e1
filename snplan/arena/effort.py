"""Effort: the work that a search may still do, in estimated nanoseconds: results must not depend on measured time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from snplan.arena.heuristics import FEW

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


def effort_of(time_limit: float, clock: Clock | None) -> Effort:
    """Return the effort that takes about `time_limit` seconds."""
    return Effort(left=time_limit * 1e9, clock=clock, deadline=clock() + GUARD * time_limit if clock else 0.0)


def greedy_work(count: int) -> float:
    """Return the estimated nanoseconds of one greedy placement of so many buffers."""
    return 1e4 * count if count <= FEW else 0.7 * count * count + 200 * count


def node_work(count: int) -> float:
    """Return the estimated nanoseconds of one node of the exact search."""
    return 40.0 * count
