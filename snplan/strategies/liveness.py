"""`liveness`: Algorithm 1's route and in/out sets only (SuperNeurons, section 3.2)."""

from __future__ import annotations

from typing import ClassVar

from snplan.analysis.schedule import build_schedule
from snplan.passes.realise import Candidate
from snplan.strategies.base import Strategy, Task
from snplan.strategies.moves import follow


class Liveness(Strategy):
    """Every tensor is freed after its last reader; nothing moves and nothing runs twice."""

    name: ClassVar[str] = "liveness"
    summary: ClassVar[str] = "free every tensor after its last reader"

    def plan(self, task: Task) -> Candidate:
        """The candidate that keeps every tensor until its last reader. Raises InfeasibleError (SNP-P004)."""
        return follow(self, task, build_schedule(task.step))
