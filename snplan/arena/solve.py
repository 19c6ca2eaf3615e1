"""Offsets for a problem: the portfolio of greedy orders, then the searches that close the gap."""

from __future__ import annotations

from collections.abc import Callable

from snplan.arena.heuristics import ORDERS, best_fit, first_fit
from snplan.arena.problem import Int64, Problem, Solution, height_of, lower_bound

Clock = Callable[[], float]


def assign(
    problem: Problem,
    *,
    capacity: int | None = None,
    time_limit: float = 1.0,
    seed: int = 0,
    clock: Clock | None = None,
) -> Solution:
    """Return the lowest placement found; stops at the lower bound, or at `capacity` bytes when one is given."""
    if len(problem) == 0:
        return Solution(offsets=problem.fixed, height=0, bound=0)
    bound = lower_bound(problem)
    goal = bound if capacity is None else max(bound, capacity)
    best: Int64 | None = None
    height = 0
    for order in ORDERS:
        for fit in (first_fit, best_fit):
            offsets = fit(problem, order.rank(problem))
            found = height_of(problem, offsets)
            if best is None or found < height:
                best, height = offsets, found
            if height <= goal:
                return Solution(offsets=best, height=height, bound=bound)
    assert best is not None
    return Solution(offsets=best, height=height, bound=bound)
