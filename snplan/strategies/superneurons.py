"""`superneurons`: the paper's passes (Wang et al., PPoPP 2018), each of which can be switched off.

Liveness is the base. `recompute` is section 3.4's cost-aware recompute, `offload` section 3.3's transfer of CONV
outputs with prefetch one CONV ahead, `cache` its LRU tensor cache, and `algorithms` section 3.5's choice of the fastest
convolution algorithm that fits the free bytes of its action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from snplan.analysis.residency import Live, Residency
from snplan.analysis.schedule import Schedule, build_schedule
from snplan.passes.realise import Candidate
from snplan.strategies.base import Strategy, Task
from snplan.strategies.cache import replay_cache
from snplan.strategies.cost_aware import memory_centric
from snplan.strategies.layers import checkpoint_tensors, fetch_positions, heavy_tensors, is_activation
from snplan.strategies.moves import Moves, boundary_gap, first_values, follow


@dataclass(frozen=True, slots=True, kw_only=True)
class Superneurons(Strategy):
    """Recompute between checkpoints; CONV outputs move to the host, with the cache only where memory runs out."""

    name: ClassVar[str] = "superneurons"
    summary: ClassVar[str] = "the paper's passes; switch parts off as in superneurons:-cache-recompute"
    offload: bool = True
    cache: bool = True
    recompute: bool = True
    algorithms: bool = True

    def plan(self, task: Task) -> Candidate:
        """The candidate that the paper's runtime would run. Raises InfeasibleError (SNP-P004)."""
        schedule = self._schedule(task)
        rule = None
        if self.offload:
            rule = cached if self.cache else send_outputs
        return follow(self, task, schedule, rule, algorithms=self.algorithms)

    def _schedule(self, task: Task) -> Schedule:
        if not self.recompute:
            return build_schedule(task.step)
        kept = checkpoint_tensors(task.step)
        return build_schedule(task.step, kept, memory_centric(task.step, kept, task.floor.bytes))


def cached(residency: Residency, target: Live) -> Moves:
    """Evicts the activations that the tensor cache would; what the backward pass needs is fetched one CONV ahead."""
    step, schedule = residency.schedule.step, residency.schedule
    forward = [v for v, value in enumerate(schedule.values) if value.birth < step.backward]
    activations = [v for v in forward if is_activation(step, schedule.values[v].tensor)]
    return Moves(sends=replay_cache(residency, activations, target), fetch=fetch_positions(schedule))


def send_outputs(residency: Residency, target: Live) -> Moves:
    """Evicts the tensors of CONV layers between the passes; each is sent as soon as it is there."""
    for value in first_values(residency.schedule, heavy_tensors(residency.schedule.step)):
        gap = boundary_gap(residency, value)
        if gap is not None:
            residency.evict(value, gap)
    return Moves(fetch=fetch_positions(residency.schedule))
