"""Random address problems, and the plainest oracle of their lowest height."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from snplan.arena.problem import FREE, Problem, lower_bound, make_problem


@st.composite
def problems(draw: st.DrawFn, *, most: int = 30, longest: int = 12, largest: int = 9, granule: int = 1) -> Problem:
    """Up to `most` buffers without fixed offsets; sizes are multiples of the granule, 0 among them."""
    count = draw(st.integers(0, most))
    times = st.integers(0, longest)
    intervals = [(start, start + 1 + draw(times)) for start in (draw(times) for _ in range(count))]
    return make_problem(intervals, [granule * draw(st.integers(0, largest)) for _ in range(count)])


@st.composite
def fixed_problems(draw: st.DrawFn, *, most: int = 20) -> Problem:
    """A problem some of whose buffers keep the offsets that another placement gave them, moved up by a few bytes."""
    problem = draw(problems(most=most))
    offsets = stacked(problem) + draw(st.integers(0, 3))
    keep = np.array([draw(st.booleans()) and draw(st.booleans()) for _ in range(len(problem))], np.bool_)
    fixed = np.where(keep, offsets, FREE)
    return Problem(start=problem.start, end=problem.end, size=problem.size, fixed=fixed)


def stacked(problem: Problem) -> np.ndarray:
    """The offsets of a placement that shares nothing: one buffer above the other."""
    return np.cumsum(problem.size) - problem.size


def random_problem(seed: int, *, count: int, longest: int, largest: int, fixed: int = 0) -> Problem:
    """A problem from a seed: what a test runs many times over, outside hypothesis."""
    random = np.random.default_rng(seed)
    start = random.integers(0, longest, count)
    end = start + random.integers(1, longest // 2 + 2, count)
    size = random.integers(1, largest + 1, count)
    offsets = np.full(count, FREE)
    problem = Problem(start=start, end=end, size=size)
    offsets[:fixed] = stacked(problem)[:fixed] + random.integers(0, 3)
    return Problem(start=start, end=end, size=size, fixed=offsets)


def lowest_height(problem: Problem) -> int:
    """The lowest height of any placement, by trying every offset of every buffer at growing heights."""
    height = lower_bound(problem)
    while not _fits(problem, height, []):
        height += 1
    return height


def _fits(problem: Problem, height: int, offsets: list[int]) -> bool:
    i = len(offsets)
    if i == len(problem):
        return True
    size, fixed = int(problem.size[i]), int(problem.fixed[i])
    for offset in range(height - size + 1) if fixed == FREE else [fixed]:
        if not any(_collide(problem, i, offset, j, offsets[j]) for j in range(i)) and _fits(
            problem, height, [*offsets, offset]
        ):
            return True
    return False


def _collide(problem: Problem, i: int, at_i: int, j: int, at_j: int) -> bool:
    in_time = problem.start[i] < problem.end[j] and problem.start[j] < problem.end[i]
    top = min(at_i + problem.size[i], at_j + problem.size[j])
    return bool(in_time and max(at_i, at_j) < top)
