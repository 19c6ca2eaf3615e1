"""Debug mode of the NumPy backend: dead bytes hold NaN patterns, and every op's inputs are checked for them.

A sound plan never reads such bytes; a plan that frees too early, moves too late or reads what was never written does,
and the first op to see it is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from snplan.errors import RunError
from snplan.plan.index import PlanIndex
from snplan.plan.model import Persistent
from snplan.runtime.arena import POISON, Arena
from snplan.runtime.numpy.base import HALVES, Array
from snplan.runtime.numpy.bind import BoundRun, freed_intervals


def has_nan(x: Array) -> bool:
    """Whether a floating-point array holds a NaN."""
    return (x.dtype.kind == "f" or x.dtype in HALVES) and bool(np.isnan(x).any())


@dataclass(slots=True, kw_only=True)
class NanWatch:
    """Tensors that an op wrote NaN to by computing (`known`), and the first op that made one out of none."""

    known: set[str] = field(default_factory=set)
    first: str | None = None

    def before(self, bound: BoundRun) -> None:
        """Raises RunError (SNP-R006) where an input holds NaN that its producer did not write."""
        for name, x in zip(bound.call.op.inputs, bound.inputs, strict=True):
            if name not in self.known and has_nan(x):
                message = (
                    f"action {bound.action}, op {bound.call.op.name} ({bound.call.op.kind}), reads NaN from tensor "
                    f"{name}, to which none was written: its bytes were freed, overwritten, or not there yet"
                )
                raise RunError("SNP-R006", message, {"action": bound.action, "tensor": name})

    def after(self, bound: BoundRun) -> None:
        """Note outputs that hold NaN."""
        made = [
            name for name, y in zip(bound.call.op.outputs, bound.outputs, strict=True) if y is not None and has_nan(y)
        ]
        if made and self.first is None and not self.known.intersection(bound.call.op.inputs):
            self.first = bound.call.op.name
        self.known.update(made)

    def carry(self, persistent: Iterable[Persistent]) -> None:
        """A step starts: what persists holds NaN if what became it does."""
        self.known.update([entry.tensor for entry in persistent if entry.becomes in self.known])

    def given(self, name: str, value: Array) -> None:
        """Note a value from outside that holds NaN itself."""
        if has_nan(value):
            self.known.add(name)


class Poisoner:
    """Poisons a buffer when the last action that may touch it is done, and all that is dead when a step starts.

    The last action poisons before it counts as finished: whoever may use the bytes next waits for it. The `free` itself
    may be issued while a copy is still reading, so it cannot do it.
    """

    def __init__(self, index: PlanIndex, device: Arena) -> None:
        self._device = device
        self._waiting: dict[int, list[int]] = defaultdict(list)
        self._touched: list[int] = []
        self._views: list[Array] = []
        for _, interval in freed_intervals(index):
            for action in interval.actions:
                self._waiting[action].append(len(self._views))
            self._touched.append(len(interval.actions))
            self._views.append(device.bytes_of(interval.extent))
        self._left = list(self._touched)
        self._dead = _gaps(index, device)

    def begin(self) -> None:
        """A step starts: all bytes outside resident buffers are dead."""
        self._left = list(self._touched)
        for view in self._dead:
            view.fill(POISON)

    def finished(self, action: int) -> None:
        """An action is done. Callers hold a lock where streams are threads."""
        for number in self._waiting.get(action, ()):
            self._left[number] -= 1
            if self._left[number] == 0:
                self._views[number].fill(POISON)


def _gaps(index: PlanIndex, device: Arena) -> list[Array]:
    """Views of the arena between resident buffers."""
    extents = {place.buffer: index.buffers[place.buffer] for place in index.plan.resident if place.buffer is not None}
    gaps, end = [], 0
    for extent in sorted(extents.values(), key=lambda e: e.offset):
        gaps.append(device.memory[end : extent.offset])
        end = max(end, extent.offset + extent.bytes)
    return [*gaps, device.memory[end:]]
