"""Closing the gap between the best placement known and the lower bound by exact searches at chosen capacities."""

from __future__ import annotations

import numpy as np

from snplan.arena.effort import Effort, node_work
from snplan.arena.exact import Verdict, decide
from snplan.arena.heuristics import conflicts
from snplan.arena.problem import FREE, Int64, Problem, Solution, height_of

LARGE = 20_000_000  # conflicting pairs of buffers that the exact search may list


def close_gap(
    problem: Problem, offsets: Int64, *, bound: int, goal: int, bisect: bool, effort: Effort, seed: int
) -> Solution:
    """Return the lowest placement found, starting from `offsets`, by searches at the goal and, if wanted, above it.

    The bound rises with every capacity that is proven too small. A bisection between the goal and the best height
    leaves half of the effort to the capacities after each one.
    """
    height, low, step = height_of(problem, offsets), goal, granule(problem)
    cost = node_work(len(problem))
    wanted = goal
    while low < height and effort.left > cost and not effort.over() and int(conflicts(problem).sum()) <= LARGE:
        nodes = int(effort.left / (2 if bisect else 1) / cost)
        outcome = decide(problem, wanted, nodes=max(nodes, 1), seed=seed, stop=effort.over)
        effort.spend(max(outcome.nodes, 1) * cost)
        if outcome.offsets is not None:
            offsets, height = outcome.offsets, height_of(problem, outcome.offsets)
        else:
            low = wanted // step * step + step
        if outcome.verdict is Verdict.NEVER:
            bound = max(bound, low)
        if not bisect:
            break
        wanted = low + (height - low) // 2 // step * step
    return Solution(offsets=offsets, height=height, bound=bound)


def granule(problem: Problem) -> int:
    """Return the bytes of which every height of a canonical placement is a multiple."""
    fixed = problem.fixed[problem.fixed != FREE]
    return max(1, int(np.gcd.reduce(np.concatenate([problem.size, fixed]))))
