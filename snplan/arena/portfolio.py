"""Greedy placements by many orders, and a local search that moves what reached too high to the front of the order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from snplan.arena.effort import Effort, greedy_work
from snplan.arena.heuristics import FEW, ORDERS, by_duration, greedy, place_compiled
from snplan.arena.problem import Int64, Problem, height_of, lower_bound
from snplan.arena.skyline import skyline

ROUNDS = 200  # of local search, from each of the best greedy orders
STARTS = 3
PATIENCE = 10  # rounds before compiled code is worth its loading for a small problem, too
CROWDED = 100_000  # buffers; from here on a search for gaps takes seconds
NEAR = 0.0002  # of the bound: so close to it no seconds are spent
ON_TOP = 6e3  # nanoseconds of work for each buffer on a skyline
LEAST = 1e8  # nanoseconds of work for the greedy orders, however little time there is


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """Offsets, the height they reach, and the order that gave them."""

    offsets: Int64
    height: int
    order: Int64


def portfolio(problem: Problem, goal: int, effort: Effort) -> list[Placement]:
    """Return greedy placements, lowest first: up to one at the goal; only one where the goal is out of reach."""
    bound = lower_bound(problem)
    placements: list[Placement] = []
    if len(problem) >= CROWDED and goal == bound and not problem.has_fixed:
        placements.append(_on_top(problem))
        effort.spend(ON_TOP * len(problem))
        if placements[0].height <= bound * (1 + NEAR):
            return placements
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


def _placed(problem: Problem, order: Int64, *, smallest_gap: bool = False, compiled: bool = False) -> Placement:
    place = place_compiled if compiled else greedy
    offsets = place(problem, order, smallest_gap=smallest_gap)
    return Placement(offsets=offsets, height=height_of(problem, offsets), order=order)


def _on_top(problem: Problem) -> Placement:
    order = by_duration(problem)
    offsets = skyline(problem, order)
    return Placement(offsets=offsets, height=height_of(problem, offsets), order=order)


def local_search(problem: Problem, placements: list[Placement], goal: int, effort: Effort) -> Placement:
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


def _raise_peaks(problem: Problem, start: Placement, goal: int) -> Iterator[Placement]:
    """Return placements, each after the buffers that reached above the goal have moved to half their place in order."""
    current = start
    for turn in range(ROUNDS):
        over = (current.offsets + problem.size)[current.order] > goal
        place = np.arange(len(problem), dtype=np.float64)
        place[over] = place[over] / 2 - 0.25
        current = _placed(problem, current.order[np.argsort(place, kind="stable")], compiled=turn >= PATIENCE)
        yield current
