"""`vdnn-all`: the inputs of all layers go to the host after their last forward reader (Rhu et al., MICRO 2016)."""

from __future__ import annotations

from typing import ClassVar

from snplan.analysis.index import IndexedStep
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import build_schedule
from snplan.passes.realise import Candidate
from snplan.strategies.base import Strategy, Task
from snplan.strategies.layers import fetch_positions, layer_inputs
from snplan.strategies.moves import Moves, Send, boundary_gap, first_values, follow


class VdnnAll(Strategy):
    """A layer's input is offloaded while its last forward reader runs; the next layer waits for the copy.

    In the backward pass it is fetched one CONV ahead.
    """

    name: ClassVar[str] = "vdnn-all"
    summary: ClassVar[str] = "offload the input of every layer, one layer at a time; prefetch one CONV ahead"

    def plan(self, task: Task) -> Candidate:
        """The candidate that offloads layers' inputs. Raises InfeasibleError (SNP-P004)."""
        tensors = self.offloaded(task.step)
        return follow(self, task, build_schedule(task.step), lambda residency, target: vdnn_moves(residency, tensors))

    def offloaded(self, step: IndexedStep) -> set[int]:
        """The tensors that are offloaded where the backward pass reads them."""
        return layer_inputs(step)


def vdnn_moves(residency: Residency, tensors: set[int]) -> Moves:
    """Evicts `tensors` between the passes; each copy is issued beside the tensor's last forward reader."""
    sends: dict[int, Send] = {}
    for value in first_values(residency.schedule, tensors):
        gap = boundary_gap(residency, value)
        if gap is None:
            continue
        residency.evict(value, gap)
        last = residency.events[value][gap]
        sends[value] = Send(after=max(last - 1, residency.events[value][0], 0), until=last + 1)
    return Moves(sends=sends, fetch=fetch_positions(residency.schedule), synchronous=True)
