"""A plan for the unplanned step: every op once, in the order of its first execution; nothing is moved or in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from snplan.plan.index import PlanIndex
from snplan.plan.model import Action, Algorithm, Alloc, Extent, Free, Persistent, Place, Run, StepPlan
from snplan.units import round_up


def unplanned_plan(index: PlanIndex) -> StepPlan:
    """The plan; buffers are freed after the last op that reads them and their bytes used again, first fit."""
    draft = _Draft(index)
    for name in [place.tensor for place in index.plan.resident]:
        draft.give(name)
    resident = dict(draft.places)
    steps = [action for action in index.plan.actions if isinstance(action, Run)]
    workspaces = _workspaces(index)
    last = {name: position for position, run in enumerate(steps) for name in _names(index, run)}
    kept = _kept(index)
    for position, run in enumerate(steps):
        draft.run(run, workspaces.get(run.op))
        for name in _names(index, run):
            if name not in kept and last[name] == position:
                draft.take_back(name)
    return msgspec.structs.replace(
        index.plan,
        budget_bytes=max(index.plan.budget_bytes, draft.end + index.plan.reserve_bytes),
        arena_bytes=draft.end,
        peak_live_bytes=draft.peak,
        host_arena_bytes=0,
        buffers=draft.buffers,
        slots=[],
        resident=[Place(tensor=name, buffer=buffer) for name, buffer in resident.items()],
        persistent=[
            Persistent(tensor=e.tensor, becomes=e.becomes, buffer=draft.places[e.becomes])
            for e in index.plan.persistent
        ],
        outputs=[Place(tensor=place.tensor, buffer=draft.places[place.tensor]) for place in index.plan.outputs],
        actions=draft.actions,
    )


def _kept(index: PlanIndex) -> set[str]:
    """Tensors that must be there when the step ends; sources stay too, in case they are what persists."""
    plan = index.plan
    ends = [entry.becomes for entry in plan.persistent] + [place.tensor for place in plan.outputs]
    return {*ends, *(place.tensor for place in plan.resident)}


def _names(index: PlanIndex, run: Run) -> list[str]:
    op = index.ops[run.op]
    return list(dict.fromkeys((*op.inputs, *op.outputs)))


def _workspaces(index: PlanIndex) -> dict[str, tuple[int, int]]:
    """Engine and the smallest workspace of each op that has one."""
    found: dict[str, tuple[int, int]] = {}
    for action in index.plan.actions:
        if isinstance(action, Algorithm):
            size = 0 if action.workspace is None else index.buffers[action.workspace].bytes
            found[action.op] = (action.engine, min(size, found.get(action.op, (0, size))[1]))
    return found


@dataclass(slots=True)
class _Draft:
    """Actions written so far, where tensors are, and the free bytes between buffers."""

    index: PlanIndex
    actions: list[Action] = field(default_factory=list)
    buffers: list[Extent] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    holes: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    live: int = 0
    peak: int = 0

    def give(self, name: str) -> int:
        """A buffer for a tensor."""
        self.places[name] = self.buffer(self.index.tensors[name].bytes)
        return self.places[name]

    def buffer(self, size: int) -> int:
        """A buffer of `size` bytes in the first hole that is large enough, else at the end."""
        wanted = max(round_up(size), round_up(1))
        offset = next((low for low, high in self.holes if high - low >= wanted), self.end)
        self.holes = list(_without(self.holes, offset, offset + wanted))
        self.end = max(self.end, offset + wanted)
        self.live += wanted
        self.peak = max(self.peak, self.live)
        self.buffers.append(Extent(id=len(self.buffers), offset=offset, bytes=wanted))
        return len(self.buffers) - 1

    def take_back(self, name: str) -> None:
        """A tensor's buffer is not needed any more."""
        self.release(self.places[name])

    def release(self, buffer: int) -> None:
        """Free a buffer."""
        self.actions.append(Free(buffer=buffer))
        extent = self.buffers[buffer]
        self.live -= extent.bytes
        self.holes = _merged([*self.holes, (extent.offset, extent.offset + extent.bytes)])

    def run(self, run: Run, workspace: tuple[int, int] | None) -> None:
        """One op."""
        op = self.index.ops[run.op]
        scratch = None
        if workspace is not None:
            engine, size = workspace
            scratch = self._allocated(self.buffer(size)) if size else None
            self.actions.append(Algorithm(op=op.name, engine=engine, workspace=scratch))
        written = {name for name, _ in run.writes}
        for name in op.outputs:
            self._allocated(self.give(name))
        self.actions.append(
            Run(
                op=op.name,
                reads=[(name, self.places[name]) for name, _ in run.reads],
                writes=[(name, self.places[name]) for name in op.outputs if name in written],
                after=[],
            )
        )
        if scratch is not None:
            self.release(scratch)

    def _allocated(self, buffer: int) -> int:
        self.actions.append(Alloc(buffer=buffer))
        return buffer


def _without(holes: list[tuple[int, int]], low: int, high: int) -> Iterator[tuple[int, int]]:
    """Holes less the bytes from `low` to `high`, which start one of them or lie beyond all."""
    for start, end in holes:
        if start == low:
            if end > high:
                yield high, end
        else:
            yield start, end


def _merged(holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Holes in ascending order, neighbours in one."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(holes):
        if merged and merged[-1][1] == low:
            merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return merged
