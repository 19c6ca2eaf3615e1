"""Offsets for a problem: a portfolio of greedy orders, then local search, then the exact search, within an effort.

Every stage stops at the goal: the lower bound, or the capacity that the caller gives. The effort is counted, not
measured, so that the same call gives the same offsets on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from snplan.arena.effort import Clock, Effort, effort_of, greedy_work
from snplan.arena.heuristics import FEW, ORDERS, place_compiled, place_interpreted
from snplan.arena.problem import FREE, Int64, Problem, Solution, height_of, lower_bound, subproblem, validate

ROUNDS = 200  # of local search, from each of the best greedy orders
STARTS = 3
LEAST = 1e8  # nanoseconds of work for the greedy orders, however little time there is
PATIENCE = 10  # rounds before compiled code is worth its loading for a small problem, too


def assign(
    problem: Problem,
    *,
    capacity: int | None = None,
    time_limit: float = 1.0,
    seed: int = 0,
    clock: Clock | None = None,
) -> Solution:
    """Return the lowest placement found; stops at the lower bound, or at `capacity` bytes when one is given.

    `time_limit` (seconds) sets the amount of work; with 0 the greedy orders are all. Where the capacity is under the
    lower bound nothing fits, and the first placement is returned. With a `clock` a search far over its time ends too.
    Raises ValueError when two fixed buffers overlap.
    """
    if len(problem) == 0:
        return Solution(offsets=problem.fixed, height=0, bound=0)
    _check_fixed(problem)
    bound = lower_bound(problem)
    goal = bound if capacity is None else capacity
    effort = effort_of(time_limit, clock)
    placements = _portfolio(problem, goal, bound, effort)
    best = placements[0]
    if best.height > goal >= bound and not effort.over():
        best = _local(problem, placements, goal, effort.lend(1 / 3))
    if best.height > goal >= bound and not effort.over():
        from snplan.arena.closing import close_gap

        return close_gap(
            problem, best.offsets, bound=bound, goal=goal, bisect=capacity is None, effort=effort, seed=seed
        )
    return Solution(offsets=best.offsets, height=best.height, bound=bound)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Placement:
    offsets: Int64
    height: int
    order: Int64


def _check_fixed(problem: Problem) -> None:
    at = np.flatnonzero(problem.fixed != FREE)
    if len(at) == 0:
        return
    message = validate(subproblem(problem, at), problem.fixed[at])
    if message is not None:
        raise ValueError(f"fixed buffers {at.tolist()}, counted from 0 among themselves: {message}")


def _portfolio(problem: Problem, goal: int, bound: int, effort: Effort) -> list[_Placement]:
    """Return greedy placements, lowest first: up to one at the goal; only one where the goal is out of reach."""
    placements: list[_Placement] = []
    work, enough = greedy_work(problem), effort.left - max(effort.left / 2, LEAST)
    for order, smallest_gap in _greedy_orders(problem):
        placements.append(_placed(problem, order, smallest_gap=smallest_gap))
        effort.spend(work)
        if placements[-1].height <= goal or goal < bound or (len(problem) > FEW and effort.left < enough):
            break
    return sorted(placements, key=lambda placement: placement.height)


def _greedy_orders(problem: Problem) -> Iterator[tuple[Int64, bool]]:
    for order in ORDERS:
        rank = order.rank(problem)
        yield rank, False
        yield rank, True


def _placed(problem: Problem, order: Int64, *, smallest_gap: bool = False, compiled: bool = False) -> _Placement:
    place = place_compiled if compiled or len(problem) > FEW else place_interpreted
    offsets = place(problem, order, smallest_gap=smallest_gap)
    return _Placement(offsets=offsets, height=height_of(problem, offsets), order=order)


def _local(problem: Problem, placements: list[_Placement], goal: int, effort: Effort) -> _Placement:
    """Return the lowest placement of local searches from the best of these."""
    best, work = placements[0], greedy_work(problem)
    for start in placements[:STARTS]:
        for found in _raise_peaks(problem, start, goal):
            effort.spend(work)
            if found.height < best.height:
                best = found
            if best.height <= goal or effort.over():
                return best
    return best


def _raise_peaks(problem: Problem, start: _Placement, goal: int) -> Iterator[_Placement]:
    """Return placements, each after the buffers that reached above the goal have moved to half their place in order."""
    current = start
    for turn in range(ROUNDS):
        over = (current.offsets + problem.size)[current.order] > goal
        place = np.arange(len(problem), dtype=np.float64)
        place[over] = place[over] / 2 - 0.25
        current = _placed(problem, current.order[np.argsort(place, kind="stable")], compiled=turn >= PATIENCE)
        yield current
