"""`tensorflow`: liveness, and long-lived tensors swapped to unpinned host memory (SuperNeurons, section 2.2).

Copies from and to pageable memory go through a bounce buffer and reach half the speed of pinned ones; the strategy's
device says so, so that plan file, simulator and reports agree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from snplan.analysis.residency import Live, Residency
from snplan.analysis.schedule import build_schedule
from snplan.cost.device import Device
from snplan.cost.pools import HOST, Pool
from snplan.passes.realise import Candidate
from snplan.strategies.base import Strategy, Task
from snplan.strategies.layers import is_activation
from snplan.strategies.moves import Moves, Send, boundary_gap, follow

_RATES = ("h2d_bytes_per_s", "d2h_bytes_per_s", "h2d_both_bytes_per_s", "d2h_both_bytes_per_s")


Linked = TypeVar("Linked", Device, Pool)


def _halved(link: Linked) -> Linked:
    """A link with half the copy speed."""
    halves: dict[str, Any] = {rate: max(1, getattr(link, rate) // 2) for rate in _RATES}
    return replace(link, **halves)


class Tensorflow(Strategy):
    """While something does not fit, the tensor that waits longest between the passes is swapped out after its last
    forward reader. It is fetched when it is needed, and the op waits.
    """

    name: ClassVar[str] = "tensorflow"
    summary: ClassVar[str] = "liveness; long-lived tensors are swapped to unpinned host memory, without prefetch"

    def device(self, device: Device) -> Device:
        """`device` with the copy speed of pageable memory: half of pinned memory's."""
        pools = tuple(_halved(pool) if pool.name == HOST else pool for pool in device.pools)
        return replace(_halved(device), title=f"{device.title}, pageable host memory", pools=pools)

    def plan(self, task: Task) -> Candidate:
        """The candidate that swaps as few tensors as fit the budget. Raises InfeasibleError (SNP-P004)."""
        return follow(self, task, build_schedule(task.step), swap)


def swap(residency: Residency, target: Live) -> Moves:
    """Evicts values between the passes, longest wait first, while positions that they span are over `target`."""
    schedule = residency.schedule
    waits = []
    for value in range(len(schedule.values)):
        index = boundary_gap(residency, value)
        if index is not None and is_activation(schedule.step, schedule.values[value].tensor):
            waits.append(residency.gap(value, index))
    sends: dict[int, Send] = {}
    for gap in sorted(waits, key=lambda gap: (gap.start - gap.stop, gap.value)):
        where = slice(gap.start, gap.stop)
        if (residency.live[where] > target[where]).any():
            residency.evict(gap.value, gap.index)
            sends[gap.value] = Send(after=max(gap.start - 1, 0), until=gap.start)
    return Moves(sends=sends)
