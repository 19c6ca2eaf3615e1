"""Drafts that need little memory of device and host alike: checkpoints, and all else recomputed, much of it anew.

Where the forward pass goes through single tensors (bottlenecks), one in so many of them is kept. Between two that are
kept, values are recomputed for one reader at a time, so that hardly more than an op's own bytes is live beside the
checkpoints (the paper's memory-centric recompute; its price is the square of a segment's length); or the bottlenecks
between them are recomputed once and shared, and only what lies between those is made anew: two levels of checkpoints
(Griewank and Walther, ACM TOMS 26(1), 2000, with more levels).
"""

from __future__ import annotations

from collections.abc import Iterator

from snplan.analysis.index import IndexedStep
from snplan.analysis.schedule import saved_tensors
from snplan.ir import Phase
from snplan.passes.improve import Draft
from snplan.passes.recompute import bottlenecks

STRIDES = (1, 2, 4, 8, 16)  # one in so many bottlenecks is kept


def lean_drafts(step: IndexedStep) -> Iterator[Draft]:
    """Drafts from those that keep most to the one that keeps nothing."""
    saved, narrow = frozenset(saved_tensors(step)), bottlenecks(step)
    forward = frozenset(
        tensor for op in range(step.backward) if step.ops[op].phase is Phase.FORWARD for tensor in step.writes[op]
    )
    checkpoints = [frozenset(narrow[::stride]) for stride in STRIDES]
    for kept in dict.fromkeys(checkpoints):
        for shared in dict.fromkeys((kept, frozenset(narrow))):
            yield Draft(dropped=saved - kept, transient=forward - shared)
    yield Draft(dropped=saved, transient=forward)
