"""`chen`: sublinear checkpointing, about sqrt(n) segments of sqrt(n) layers (Chen et al., arXiv 1604.06174)."""

from __future__ import annotations

from math import ceil, sqrt
from typing import ClassVar

from snplan.analysis.index import IndexedStep, forward_readers
from snplan.analysis.schedule import build_schedule
from snplan.ir import Phase
from snplan.passes.realise import Candidate
from snplan.strategies.base import Strategy, Task
from snplan.strategies.layers import statistics
from snplan.strategies.moves import follow


class Chen(Strategy):
    """Only what crosses a border between segments is kept; a segment is recomputed once when its backward begins."""

    name: ClassVar[str] = "chen"
    summary: ClassVar[str] = "about sqrt(n) segments; only their borders are kept"

    def plan(self, task: Task) -> Candidate:
        """The candidate that keeps the borders of segments. Raises InfeasibleError (SNP-P004)."""
        return follow(self, task, build_schedule(task.step, border_tensors(task.step)))


def border_tensors(step: IndexedStep) -> set[int]:
    """Tensors that cross a border, and batch statistics."""
    forward = [op for op in range(step.backward) if step.ops[op].phase is Phase.FORWARD]
    length = max(1, ceil(sqrt(len(forward))))
    segment = {op: index // length for index, op in enumerate(forward)}
    readers = forward_readers(step)
    kept: set[int] = set()
    for op in forward:
        kept.update(statistics(step, op))
        kept.update(t for t in step.writes[op] if any(segment[r] > segment[op] for r in readers[t]))
    return kept
