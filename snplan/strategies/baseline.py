"""`baseline`: one buffer a tensor for the whole step."""

from __future__ import annotations

from typing import ClassVar

from snplan.analysis.residency import Residency
from snplan.analysis.schedule import build_schedule
from snplan.passes.realise import Candidate
from snplan.strategies.base import Strategy, Task
from snplan.strategies.whole_step import updates_in_place, whole_step


class Baseline(Strategy):
    """Every tensor has a buffer of its own from the first action to the last; only updates go in place."""

    name: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "one buffer a tensor for the whole step"

    def plan(self, task: Task) -> Candidate:
        """The candidate in which no byte is used twice. Raises InfeasibleError (SNP-P004)."""
        schedule = build_schedule(task.step)
        return whole_step(self, task, schedule, updates_in_place(Residency(schedule)))
