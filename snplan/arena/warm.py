"""Compiles all kernels at once, for installations: `python -m snplan.arena.warm` takes about eight seconds, once.

Without it the first plans that need a kernel compile it. The result is kept beside the source, or where
`NUMBA_CACHE_DIR` says, and holds for the machine's processor.
"""

from __future__ import annotations

import numpy as np

from snplan.arena.problem import make_problem


def compile_kernels() -> None:
    """Run every kernel once, on a problem of three buffers."""
    from snplan.arena import fitting
    from snplan.arena.exact import decide
    from snplan.arena.heuristics import place_compiled, stretches
    from snplan.arena.wishes import fit_within

    problem = make_problem([(0, 2), (1, 3), (2, 4)], [2, 3, 2])
    order = np.arange(len(problem))
    place_compiled(problem, order, smallest_gap=False)
    arrays = problem.start.copy(), problem.end.copy(), problem.size.copy()
    fitting.fit_by_time(*arrays, order, problem.fixed.copy(), 0, False, *stretches(problem))
    decide(problem, 5)
    fit_within(problem, 5, early=problem.start - 1, late=problem.end + 1, time_limit=0.01)


if __name__ == "__main__":
    compile_kernels()
