"""Where each tensor of a verified plan is over the step, in issue order.

A moment is the number of an action, and means when it has been issued; -1 is before the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from snplan.plan.model import Action, Algorithm, Free, Offload, Prefetch, Recompute, Run, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A tensor in one place from moment `start` to before moment `end` (the number of actions: to the step's end)."""

    start: int
    end: int
    buffer: int | None = None
    slot: int | None = None


def stays(plan: StepPlan) -> dict[str, list[Stay]]:
    """Where each tensor is over the step, in order of start; every tensor of the plan has an entry.

    A buffer holds a tensor until it is overwritten or freed; a slot until the tensor is last copied from it, and to the
    step's end where it holds a persistent value or an output.
    """
    places = _Places(plan)
    for i, (action, writes) in enumerate(actions_with_writes(plan)):
        places.follow(i, action, writes)
    places.end(len(plan.actions))
    return {name: sorted(found, key=lambda stay: stay.start) for name, found in places.stays.items()}


class _Places:
    """What buffers (tensor, start) and slots (tensor, start, end so far) hold while the actions go by."""

    def __init__(self, plan: StepPlan) -> None:
        self.stays: dict[str, list[Stay]] = {row.name: [] for row in plan.tensors}
        self._buffers: dict[int, tuple[str, int]] = {}
        self._slots: dict[int, tuple[str, int, int]] = {}
        self._kept = {place.slot for place in plan.persistent} | {place.slot for place in plan.outputs}
        for place in plan.resident:
            if place.buffer is not None:
                self._buffers[place.buffer] = place.tensor, -1
            elif place.slot is not None:
                self._slots[place.slot] = place.tensor, -1, 0

    def follow(self, moment: int, action: Action, writes: list[tuple[int, str | None]]) -> None:
        """One action."""
        if isinstance(action, Free):
            self._leave_buffer(action.buffer, moment)
        for buffer, tensor in writes:
            self._leave_buffer(buffer, moment)
            if tensor is not None:
                self._buffers[buffer] = tensor, moment
        if isinstance(action, Offload):
            self._leave_slot(action.slot)
            self._slots[action.slot] = action.tensor, moment, moment + 1
        elif isinstance(action, Prefetch):
            tensor, start, _ = self._slots[action.slot]
            self._slots[action.slot] = tensor, start, moment + 1

    def end(self, moment: int) -> None:
        """The step is done."""
        for buffer in list(self._buffers):
            self._leave_buffer(buffer, moment)
        for slot, (tensor, start, end) in list(self._slots.items()):
            self._slots[slot] = tensor, start, moment if slot in self._kept else end
            self._leave_slot(slot)

    def _leave_buffer(self, buffer: int, end: int) -> None:
        if buffer in self._buffers:
            tensor, start = self._buffers.pop(buffer)
            self.stays[tensor].append(Stay(start=start, end=end, buffer=buffer))

    def _leave_slot(self, slot: int) -> None:
        if slot in self._slots:
            tensor, start, end = self._slots.pop(slot)
            self.stays[tensor].append(Stay(start=start, end=end, slot=slot))


def actions_with_writes(plan: StepPlan) -> Iterator[tuple[Action, list[tuple[int, str | None]]]]:
    """Each action with the buffers that it writes and what they hold then (None: a workspace)."""
    workspaces: dict[str, int | None] = {}
    for action in plan.actions:
        writes: list[tuple[int, str | None]] = []
        if isinstance(action, Algorithm):
            workspaces[action.op] = action.workspace
        elif isinstance(action, Run | Recompute):
            workspace = workspaces.get(action.op)
            if workspace is not None:
                writes.append((workspace, None))
            writes += [(buffer, tensor) for tensor, buffer in action.writes]
        elif isinstance(action, Prefetch):
            writes.append((action.buffer, action.tensor))
        yield action, writes
