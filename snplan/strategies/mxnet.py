"""`mxnet`: liveness and speed-centric recompute of all cheap layers (SuperNeurons, section 2.2; MXNet's mirroring)."""

from __future__ import annotations

from typing import ClassVar

from snplan.analysis.schedule import build_schedule
from snplan.passes.realise import Candidate
from snplan.strategies.base import Strategy, Task
from snplan.strategies.layers import checkpoint_tensors
from snplan.strategies.moves import follow


class Mxnet(Strategy):
    """Results of cheap layers are dropped whatever their size, recomputed once, and shared by all later readers."""

    name: ClassVar[str] = "mxnet"
    summary: ClassVar[str] = "liveness; cheap layers are recomputed, whatever their sizes"

    def plan(self, task: Task) -> Candidate:
        """The candidate that keeps checkpoints alone. Raises InfeasibleError (SNP-P004)."""
        return follow(self, task, build_schedule(task.step, checkpoint_tensors(task.step)))
