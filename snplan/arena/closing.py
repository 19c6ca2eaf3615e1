"""Closing the gap between the best placement known and the lower bound, by exact searches at chosen capacities.

The large buffers decide whether a problem fits, and there are few of them: the exact search first places only those
over a share of the capacity, packed as low as their own bound where it can; then greedy orders put the small ones into
what is left. Shares go down to 0, where all are placed exactly; then all of it again, with another seed and more work
for each. Problems of few buffers are searched as a whole first, and longest. A capacity that is proven too small for
some of the buffers is too small for all.

Before that come two things that are quick where they help. The exact search of all buffers dives: many problems of a
thousand buffers, between whose peaks there is room, are solved by its first orders without a step back. And the best
placement is repaired: where it reaches above the capacity, the smaller buffers of that time are taken out, and the
exact search looks for other places among those that stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snplan.arena.effort import Effort
from snplan.arena.exact import ExactOptions, Outcome, Verdict, decide
from snplan.arena.heuristics import conflicts
from snplan.arena.portfolio import portfolio
from snplan.arena.problem import FREE, Int64, Problem, Solution, height_of, lower_bound, overlaps, subproblem

SHARES = (0.01, 0.003, 0.001, 0.0003, 0.0)  # of the capacity, from which on a buffer counts as large
LOOSE = (0.55, 0.75, 0.4, 1.0)  # of the buffers of a time too full, the smaller ones: taken out for a repair
DIVES = 6  # orders of the first look at problems of more than `FEW` buffers
REPAIR = 6e8  # nanoseconds of work for one repair, at most
LARGE = 20_000_000  # conflicting pairs of buffers that the exact search may list
FIRST = 3e7  # nanoseconds of work for the first search at a share; twice as much for the next, and so on
FEW = 600  # buffers; up to here all of them are searched first, with `WHOLE` times the work
WHOLE = 20
OVERHEAD = 1e6, 5e3  # nanoseconds of a search outside the search itself: in all, and for each buffer


@dataclass(slots=True, kw_only=True)
class _Known:
    """The lowest placement so far, and the highest height that is proven necessary."""

    offsets: Int64
    height: int
    bound: int


def close_gap(
    problem: Problem, offsets: Int64, *, bound: int, goal: int, bisect: bool, effort: Effort, seed: int
) -> Solution:
    """Return the lowest placement found, starting from `offsets`, by searches at the goal and, if wanted, above it.

    The bound rises with every capacity that is proven too small. A bisection between the goal and the best height
    leaves a quarter of the effort to the capacities after each one.
    """
    known = _Known(offsets=offsets.copy(), height=height_of(problem, offsets), bound=bound)
    low, step = goal, granule(problem)
    while low < known.height and not effort.over():
        wanted = low if low == goal else low + (known.height - low) // 2 // step * step
        share = effort.lend(3 / 4 if bisect else 1)
        _dive(problem, wanted, known, share, seed)
        _repair(problem, wanted, known, share, seed)
        _reach(problem, wanted, known, share, seed)
        effort.take_back(share)
        if not bisect:
            break
        if known.height > wanted:
            low = max(known.bound, wanted // step * step + step)
    return Solution(offsets=known.offsets, height=known.height, bound=known.bound)


def _dive(problem: Problem, capacity: int, known: _Known, effort: Effort, seed: int) -> None:
    """Search for a placement of all buffers within the capacity by a few orders, each with hardly a step back."""
    if len(problem) <= FEW or int(conflicts(problem).sum()) > LARGE:
        return
    nodes, work = 2 * DIVES * len(problem), effort.left / 3
    found = decide(problem, capacity, nodes=nodes, work=work, seed=seed, stop=effort.over)
    effort.spend(found.work + OVERHEAD[0] + OVERHEAD[1] * len(problem))
    _learn(problem, np.arange(len(problem)), capacity, found, known, effort)


def _repair(problem: Problem, capacity: int, known: _Known, effort: Effort, seed: int) -> None:
    """Search for a placement within the capacity that leaves the larger buffers where the best one has them."""
    if len(problem) <= FEW or int(conflicts(problem).sum()) > LARGE:
        return
    for share in LOOSE:
        if known.height <= capacity or effort.over():
            return
        over = known.offsets + problem.size > capacity
        near = overlaps(problem, over, problem.start, problem.end)
        loose = near & (problem.size <= np.quantile(problem.size[near], share)) | over
        fixed = np.where(loose & (problem.fixed == FREE), FREE, known.offsets)
        rest = Problem(start=problem.start, end=problem.end, size=problem.size, fixed=fixed)
        part = np.flatnonzero(overlaps(problem, loose, problem.start, problem.end))
        found = decide(
            subproblem(rest, part), capacity, work=min(REPAIR, effort.left * 3 / 4), seed=seed, stop=effort.over
        )
        effort.spend(found.work + OVERHEAD[0] + OVERHEAD[1] * len(problem))
        if found.offsets is not None:
            known.offsets[part] = found.offsets
            known.height = height_of(problem, known.offsets)


def _reach(problem: Problem, capacity: int, known: _Known, effort: Effort, seed: int) -> None:
    """Search for a placement within the capacity until there is one, or there is none, or the effort is over."""
    searches = [(tier, within) for tier in _tiers(problem, capacity) for within in _goals(problem, tier, capacity)]
    searches.sort(key=lambda search: len(search[0]) < _whole(problem))
    turn = 0
    while searches and not effort.over():
        for tier, within in searches:
            work = min(FIRST * 2**turn * (WHOLE if len(tier) >= _whole(problem) else 1), effort.left)
            options = ExactOptions(plain=turn == 0)
            found = decide(
                subproblem(problem, tier), within, work=work, seed=seed + turn, options=options, stop=effort.over
            )
            effort.spend(found.work + OVERHEAD[0] + OVERHEAD[1] * len(tier))
            _learn(problem, tier, within, found, known, effort)
            if known.height <= capacity or known.bound > capacity or effort.over():
                return
        turn += 1


def _whole(problem: Problem) -> int:
    """Return the number of buffers from which on a search counts as one of the whole problem."""
    return len(problem) if len(problem) <= FEW else len(problem) + 1


def _tiers(problem: Problem, capacity: int) -> list[Int64]:
    """Return the buffers of at least each share of the capacity, without repetition or too many conflicts."""
    tiers: list[Int64] = []
    for share in SHARES:
        tier = np.flatnonzero((problem.size >= share * capacity) | (problem.fixed != FREE))
        known = len(tiers[-1]) if tiers else 0
        if len(tier) > known and int(conflicts(subproblem(problem, tier)).sum()) <= LARGE:
            tiers.append(tier)
    return tiers


def _goals(problem: Problem, tier: Int64, capacity: int) -> list[int]:
    """Return the capacities to pack some buffers into: as low as can be, then all there is."""
    return [capacity] if len(tier) == len(problem) else sorted({lower_bound(subproblem(problem, tier)), capacity})


def _learn(problem: Problem, tier: Int64, within: int, found: Outcome, known: _Known, effort: Effort) -> None:
    """Add to what is known what a search for these buffers found: a proof, or the start of a placement."""
    if found.verdict is Verdict.NEVER:
        step = granule(problem)
        known.bound = max(known.bound, within // step * step + step)
    if found.offsets is None:
        return
    fixed = problem.fixed.copy()
    fixed[tier] = found.offsets
    rest = Problem(start=problem.start, end=problem.end, size=problem.size, fixed=fixed)
    best = portfolio(rest, known.bound, effort)[0]
    if best.height < known.height:
        known.offsets, known.height = best.offsets, best.height


def granule(problem: Problem) -> int:
    """Return the bytes of which every height of a canonical placement is a multiple."""
    fixed = problem.fixed[problem.fixed != FREE]
    return max(1, int(np.gcd.reduce(np.concatenate([problem.size, fixed]))))
