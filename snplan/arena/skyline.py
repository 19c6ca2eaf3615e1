"""Greedy placement on top of what is there, without a look into gaps: for problems of so many buffers that one matters.

Where lifetimes are nested, as those of tensors saved for the backward pass are, the longest first leaves hardly a gap.
"""

from __future__ import annotations

import numpy as np

from snplan.arena.problem import Int64, Problem


def skyline(problem: Problem, order: Int64) -> Int64:
    """Return offsets: each buffer, in the given order, goes on the highest one placed before that is live with it.

    No buffer may be fixed.
    """
    times = np.unique(np.concatenate([problem.start, problem.end]))
    first = np.searchsorted(times, problem.start)[order].tolist()
    last = np.searchsorted(times, problem.end)[order].tolist()
    height = np.zeros(len(times), np.int64)
    bottom = []
    for start, end, size in zip(first, last, problem.size[order].tolist(), strict=True):
        under = height[start:end]
        bottom.append(int(under.max(initial=0)))
        under[:] = bottom[-1] + size
    offsets = np.empty(len(problem), np.int64)
    offsets[order] = bottom
    return offsets
