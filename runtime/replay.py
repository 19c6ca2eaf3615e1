"""The replay loop: one training step of a plan, action by action, on any backend, and what it measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from snplan.errors import RunError
from snplan.plan.index import PlanIndex
from snplan.plan.model import Alloc, Free, Offload, Prefetch, Recompute, Run
from snplan.runtime.protocol import Backend


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one replayed step used: the largest extent and sum of live buffers, and memory blocks taken meanwhile."""

    peak_bytes: int
    peak_live_bytes: int
    allocations: int
    actions: int


# Kinds of script entries; an entry is (kind, action id, bytes, end of extent).
_ALLOC, _FREE, _RUN, _COPY = range(4)


class Replay:
    """A plan bound to a backend; `step` replays it. All look-ups are done here, once."""

    def __init__(self, index: PlanIndex, backend: Backend) -> None:
        self._backend = backend
        self._script = _script(index)
        resident = [index.buffers[place.buffer] for place in index.plan.resident if place.buffer is not None]
        self._live = sum(extent.bytes for extent in resident)
        self._top = max((extent.offset + extent.bytes for extent in resident), default=0)

    def step(self, number: int, seed: int, meanwhile: Callable[[], None] | None = None) -> Measured:
        """Replay step `number` (from 1); `meanwhile` is called when all is issued, before it is done.

        Raises RunError for what an action raises, SNP-R012 where memory was taken.
        """
        backend = self._backend
        before = backend.allocations
        backend.begin(number, seed)
        live = peak = self._live
        top = self._top
        for kind, action, size, end in self._script:
            if kind == _RUN:
                backend.run(action)
            elif kind == _COPY:
                backend.copy(action)
            elif kind == _ALLOC:
                live += size
                peak, top = max(peak, live), max(top, end)
            else:
                live -= size
                backend.free(action)
        if meanwhile is not None:
            meanwhile()
        backend.synchronize()
        taken = backend.allocations - before
        if taken:
            raise RunError("SNP-R012", f"step {number} took {taken} blocks of memory; a replay must take none: a bug")
        return Measured(peak_bytes=top, peak_live_bytes=peak, allocations=taken, actions=len(self._script))


def _script(index: PlanIndex) -> list[tuple[int, int, int, int]]:
    script = []
    for number, action in enumerate(index.plan.actions):
        if isinstance(action, (Run, Recompute)):
            script.append((_RUN, number, 0, 0))
        elif isinstance(action, (Offload, Prefetch)):
            script.append((_COPY, number, 0, 0))
        elif isinstance(action, (Alloc, Free)):
            extent = index.buffers[action.buffer]
            kind = _ALLOC if isinstance(action, Alloc) else _FREE
            script.append((kind, number, extent.bytes, extent.offset + extent.bytes))
    return script
