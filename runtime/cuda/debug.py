"""Debug mode: one action at a time, dead bytes poisoned, every tensor that an op reads or writes looked at for NaN.

A sound plan never reads dead bytes; a plan that frees too early, moves too late or reads what was never written does,
and the first op to see it is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from snplan.errors import RunError
from snplan.plan.index import PlanIndex
from snplan.plan.model import Persistent, Recompute, Run
from snplan.runtime.cuda.issue import describe_action
from snplan.runtime.numpy.bind import freed_intervals

# Whether a tensor at a buffer holds a NaN.
Look = Callable[[str, int], bool]


class Watch:
    """Tensors known to hold NaN because an op computed it, and the first op that made one out of none."""

    def __init__(self, index: PlanIndex, look: Look) -> None:
        self._index, self._look = index, look
        self.known: set[str] = set()
        self.first: str | None = None

    def before(self, number: int) -> None:
        """Raises RunError (SNP-R006) where an input holds NaN that its producer did not write."""
        action = self._index.plan.actions[number]
        if not isinstance(action, (Run, Recompute)):
            return
        for name, buffer in action.reads:
            if name not in self.known and self._look(name, buffer):
                message = (
                    f"{describe_action(self._index, number)} reads NaN from tensor {name}, to which none was written: "
                    "its bytes were freed, overwritten, or not there yet"
                )
                raise RunError("SNP-R006", message, {"action": number, "tensor": name})

    def after(self, number: int) -> None:
        """Note outputs that hold NaN."""
        action = self._index.plan.actions[number]
        if not isinstance(action, (Run, Recompute)):
            return
        made = [name for name, buffer in action.writes if self._look(name, buffer)]
        if made and self.first is None and not self.known.intersection(name for name, _ in action.reads):
            self.first = action.op
        self.known.update(made)

    def carry(self, persistent: Iterable[Persistent]) -> None:
        """A step starts: what persists holds NaN if what became it does."""
        self.known.update([entry.tensor for entry in persistent if entry.becomes in self.known])


class Dead:
    """Extents of the arena that die as a step goes on, by the action after which nothing may read them."""

    def __init__(self, index: PlanIndex) -> None:
        self._after: dict[int, list[int]] = defaultdict(list)
        self._extents: list[tuple[int, int]] = []
        self._touches: list[int] = []
        for _, interval in freed_intervals(index):
            for number in interval.actions:
                self._after[number].append(len(self._extents))
            self._extents.append((interval.extent.offset, interval.extent.bytes))
            self._touches.append(len(interval.actions))
        self._left = list(self._touches)
        self.at_start = tuple(_gaps(index))

    def begin(self) -> None:
        """A step starts."""
        self._left = list(self._touches)

    def finished(self, number: int) -> list[tuple[int, int]]:
        """(offset, bytes) of what is dead now that action `number` is done."""
        dead = []
        for which in self._after.get(number, ()):
            self._left[which] -= 1
            if self._left[which] == 0:
                dead.append(self._extents[which])
        return dead


def _gaps(index: PlanIndex) -> Iterable[tuple[int, int]]:
    """(offset, bytes) of the arena outside resident buffers."""
    extents = {place.buffer: index.buffers[place.buffer] for place in index.plan.resident if place.buffer is not None}
    end = 0
    for extent in sorted(extents.values(), key=lambda e: e.offset):
        if extent.offset > end:
            yield end, extent.offset - end
        end = max(end, extent.offset + extent.bytes)
    if index.plan.arena_bytes > end:
        yield end, index.plan.arena_bytes - end
