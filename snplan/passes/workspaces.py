"""Engines by the time they cost: a workspace that has to wait for copies may be dearer than a slower engine.

Memory is counted by positions, and what is evicted is gone for good there; in truth it leaves when its copy is done. So
the step is run through once forwards, where evicted values leave one after another over the link and their bytes are
taken until then, and once backwards, where values that come back are the same seen in reversed time. At each op the
engine is chosen with which it ends first: the fastest may have to wait for room for its workspace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from snplan.analysis.residency import Live, Residency


def positions_of_ops(residency: Residency) -> dict[int, list[int]]:
    """Positions of every execution of the ops that have engines."""
    return residency.schedule.choosers


def shrink_workspaces(residency: Residency, limit: Live) -> None:
    """Smaller workspaces (slower engines) where positions are still over their limit."""
    for op, positions in positions_of_ops(residency).items():
        while residency.engine[op] > 0 and any(residency.live[p] > limit[p] for p in positions):
            residency.set_engine(op, residency.engine[op] - 1, positions)


@dataclass(slots=True)
class _Sweep:
    """One pass over the positions in one direction of time.

    `now` is its clock, `free_at` when the link is free, `leaving` (microsecond, bytes) of what still takes room.
    """

    copy_us: Callable[[int], int]
    patient: Container[int]
    now: int = 0
    free_at: int = 0
    taken: int = 0
    leaving: deque[tuple[int, int]] = field(default_factory=deque)

    def leave(self, size: int, since: int) -> int:
        """When a copy of `size` bytes that may begin at `since` is done."""
        self.free_at = max(self.free_at, since) + self.copy_us(size)
        return self.free_at

    def occupy(self, until: int, size: int) -> None:
        """`size` bytes take room up to `until`."""
        if until > self.now:
            self.leaving.append((until, size))
            self.taken += size

    def wait(self, room: int) -> int:
        """When what is leaving takes no more than `room` bytes."""
        ready, taken = self.now, self.taken
        for until, size in self.leaving:
            if taken <= room:
                break
            ready, taken = until, taken - size
        return ready

    def run(self, end: int) -> None:
        """The op at hand ends at `end`."""
        self.now = end
        while self.leaving and self.leaving[0][0] <= end:
            self.taken -= self.leaving.popleft()[1]


def trade_engines(
    residency: Residency, limit: Live, copy_us: Callable[[int], int], patient: Container[int] = frozenset()
) -> bool:
    """Give ops slower engines where those end earlier than faster ones that wait for copies; whether any changed.

    `limit` bounds the bytes at each position, `copy_us` gives microseconds of a copy of so many bytes. Engines of
    `patient` ops stay as they are.
    """
    leaves, stops, comes = _transfers(residency)
    if not any(leaves) and not any(comes):
        return False
    runs = residency.schedule.runs
    chosen = [residency.engine[op] for op in runs]
    sweep = _Sweep(copy_us, patient)
    done: dict[int, int] = {}
    for position in range(len(runs)):
        for value, size in stops[position]:
            sweep.occupy(done[value], size)
        _choose(residency, limit, sweep, position, chosen)
        for value, size in leaves[position]:
            done[value] = sweep.leave(size, sweep.now)
    sweep = _Sweep(copy_us, patient)
    for position in range(len(runs) - 1, -1, -1):
        _choose(residency, limit, sweep, position, chosen)
        for _, size in comes[position]:
            sweep.occupy(sweep.leave(size, sweep.now), size)
    return _set(residency, chosen)


def _transfers(residency: Residency) -> tuple[list[list[tuple[int, int]]], ...]:
    """(value, bytes) by position: what is copied out once its op ran, what is gone before it, what comes for it."""
    schedule, end = residency.schedule, residency.schedule.end
    leaves: list[list[tuple[int, int]]] = [[] for _ in range(end)]
    stops: list[list[tuple[int, int]]] = [[] for _ in range(end)]
    comes: list[list[tuple[int, int]]] = [[] for _ in range(end)]
    for value, gaps in enumerate(residency.evicted):
        if not gaps:
            continue
        item = (value, residency.size[schedule.values[value].tensor])
        stays = residency.stays(value)
        from_host = residency.starts_in_host(value)
        for stay in stays if from_host else stays[1:]:
            comes[stay.start].append(item)
        if not from_host and stays and (len(stays) > 1 or residency.ends_in_host(value)):
            leaves[max(residency.events[value][0], 0)].append(item)
            if stays[0].stop + 1 < end:
                stops[stays[0].stop + 1].append(item)
    return leaves, stops, comes


def _choose(residency: Residency, limit: Live, sweep: _Sweep, position: int, chosen: list[int]) -> None:
    """Run the op at `position` with the engine with which it ends first, of those up to the one chosen so far."""
    op = residency.schedule.runs[position]
    choices = residency.schedule.step.engines[op]
    if not sweep.leaving:
        sweep.now += choices[chosen[position]].us if choices else residency.schedule.step.cost[op]
        return
    room = int(limit[position]) - int(residency.live[position])
    if not choices:
        sweep.run(sweep.wait(room) + residency.schedule.step.cost[op])
        return
    room += choices[residency.engine[op]].workspace
    open_to = [chosen[position]] if op in sweep.patient else range(chosen[position] + 1)
    end, chosen[position] = min((sweep.wait(room - choices[i].workspace) + choices[i].us, i) for i in open_to)
    sweep.run(end)


def _set(residency: Residency, chosen: Sequence[int]) -> bool:
    """Give each op the slowest of the engines chosen for its executions; whether any changed."""
    changed = False
    for op, positions in positions_of_ops(residency).items():
        engine = min(chosen[p] for p in positions)
        if engine != residency.engine[op]:
            residency.set_engine(op, engine, positions)
            residency.ceiling[op] = engine
            changed = True
    return changed
