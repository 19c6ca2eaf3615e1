"""Offsets for a problem: a portfolio of greedy orders, then local search, then the exact search, within an effort.

Every stage stops at the goal: the lower bound, or the capacity that the caller gives. The effort is counted, not
measured, so that the same call gives the same offsets on every machine.
"""

from __future__ import annotations

import numpy as np

from snplan.arena.effort import Clock, Effort, effort_of
from snplan.arena.portfolio import Placement, local_search, portfolio
from snplan.arena.problem import FREE, Problem, Solution, height_of, lower_bound, subproblem, validate
from snplan.arena.split import split

SLACK = 0.002  # of a capacity: fragmentation that is not worth more work


def assign(
    problem: Problem,
    *,
    capacity: int | None = None,
    time_limit: float = 1.0,
    seed: int = 0,
    clock: Clock | None = None,
) -> Solution:
    """Return the lowest placement found; stops at the lower bound, or within `capacity` bytes when they are given.

    `time_limit` (seconds) sets the amount of work; with 0 the first greedy order that does is all. With more, greedy
    orders and local search get closer to the bound within a capacity, too. Where the capacity is under the lower bound
    nothing fits, and the first placement is returned. With a `clock` a search far over its time ends too.
    Raises ValueError when two fixed buffers overlap.
    """
    _check_fixed(problem)
    offsets, parts = split(problem)
    bound = lower_bound(problem)
    goal = bound if capacity is None else capacity
    effort = effort_of(time_limit, clock)
    for part in sorted(parts, key=lambda part: part.bound, reverse=True):
        share = effort.lend(1 if len(parts) == 1 else 1 / 2)
        found = _solve(part.problem, goal - part.base, bisect=capacity is None, effort=share, seed=seed)
        effort.take_back(share)
        offsets[part.indices] = part.base + found.offsets
        bound = max(bound, part.base + found.bound)
        goal = max(goal, part.base + found.height) if capacity is None else goal
    return Solution(offsets=offsets, height=height_of(problem, offsets), bound=bound)


def _solve(problem: Problem, goal: int, *, bisect: bool, effort: Effort, seed: int) -> Solution:
    """Return the lowest placement found of a part, which ends at the goal."""
    bound = lower_bound(problem)
    placements = portfolio(problem, goal, effort)
    best = placements[0]
    if bound + SLACK * goal < best.height <= goal and not effort.over():
        best = _lower(problem, best, bound + int(SLACK * goal), effort)
    if best.height > goal >= bound and not effort.over():
        share = effort.lend(1 / 5)
        best = local_search(problem, placements, goal, share)
        effort.take_back(share)
    if best.height > goal >= bound and not effort.over():
        from snplan.arena.closing import close_gap

        return close_gap(problem, best.offsets, bound=bound, goal=goal, bisect=bisect, effort=effort, seed=seed)
    return Solution(offsets=best.offsets, height=best.height, bound=bound)


def _lower(problem: Problem, best: Placement, enough: int, effort: Effort) -> Placement:
    """Return a placement no higher than this one, by greedy orders and a local search, by half of the effort."""
    share = effort.lend(1 / 2)
    placements = [best, *portfolio(problem, enough, share)]
    lowest = min(placements, key=lambda placement: placement.height)
    if lowest.height <= enough or share.over():
        return lowest
    return min(lowest, local_search(problem, placements[1:], enough, share), key=lambda placement: placement.height)


def _check_fixed(problem: Problem) -> None:
    at = np.flatnonzero(problem.fixed != FREE)
    if len(at) == 0:
        return
    message = validate(subproblem(problem, at), problem.fixed[at])
    if message is not None:
        raise ValueError(f"fixed buffers {at.tolist()}, counted from 0 among themselves: {message}")
