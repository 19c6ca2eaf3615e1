"""Actions from a layout with addresses: the step plan's body, in issue order, with `after` edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from snplan.passes.hazards import COMPUTE, D2H, H2D, NONE, Clocks, Marks, Memory, merge
from snplan.passes.layout import Copy, Layout, by_position
from snplan.plan.model import (
    Action,
    Algorithm,
    Alloc,
    Extent,
    Free,
    Offload,
    Persistent,
    Place,
    Prefetch,
    Recompute,
    Run,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A host slot: offset and bytes in the pinned arena, live at positions [start, stop); the pool if there are any."""

    offset: int
    size: int
    start: int
    stop: int
    pool: str | None = None


@dataclass(kw_only=True)
class Body:
    """What `emit` gives: the action list and everything that refers to it."""

    actions: list[Action] = field(default_factory=list)
    buffers: list[Extent] = field(default_factory=list)
    slots: list[Extent] = field(default_factory=list)
    resident: list[Place] = field(default_factory=list)
    persistent: list[Persistent] = field(default_factory=list)
    outputs: list[Place] = field(default_factory=list)
    arena_bytes: int = 0
    peak_live_bytes: int = 0
    host_arena_bytes: int = 0


class _Emitter:
    """State of `emit`."""

    def __init__(self, layout: Layout, offsets: Sequence[int], slots: Sequence[Slot], slot_of: dict[int, int]) -> None:
        self.layout, self.offsets, self.slots, self.slot_of = layout, offsets, slots, slot_of
        self.schedule = layout.residency.schedule
        names = self.schedule.step.names
        self.names = [names[value.tensor] for value in self.schedule.values]
        self.ops = [op.name for op in self.schedule.step.ops]
        self.only = [buffers[0] if len(buffers) == 1 else -1 for buffers in layout.stay_buffer]
        self.device, self.host, self.clocks = Memory(), Memory(), Clocks()
        self.body = Body()
        self.live = self.peak = 0
        self.ran = -1
        self.sent: dict[int, int] = {}

    def places(self, values: Sequence[int], position: int) -> list[tuple[str, int]]:
        """Names of values, and the buffers that hold them at a position."""
        names, only, buffer_at = self.names, self.only, self.layout.buffer_at
        return [(names[v], only[v] if only[v] >= 0 else buffer_at(v, position)) for v in values]

    def begin(self, buffer: int) -> None:
        low, size = self.offsets[buffer], self.layout.buffers[buffer].size
        self.device.begin(buffer, low, low + size)
        self.live += size
        self.peak = max(self.peak, self.live)

    def alloc(self, buffer: int) -> None:
        self.begin(buffer)
        self.body.actions.append(Alloc(buffer=buffer))

    def free(self, buffer: int) -> None:
        low, size = self.offsets[buffer], self.layout.buffers[buffer].size
        self.device.end(buffer, low, low + size)
        self.live -= size
        self.body.actions.append(Free(buffer=buffer))

    def begin_slot(self, slot: int) -> None:
        low = self.slots[slot].offset
        self.host.begin(slot, low, low + self.slots[slot].size)

    def end_slot(self, slot: int) -> None:
        low = self.slots[slot].offset
        self.host.end(slot, low, low + self.slots[slot].size)

    def pace(self) -> Marks:
        """What every copy waits for: the op ahead of it where the layout paces copies."""
        return (self.ran, -1, -1) if self.layout.paced else NONE

    def prefetch(self, copy: Copy) -> None:
        slot, action = self.slot_of[copy.value], len(self.body.actions)
        wait = merge(self.pace(), merge(self.host.read(slot), self.device.write(copy.buffer)))
        after = self.clocks.order(action, H2D, wait)
        self.host.note(slot, H2D, action, write=False)
        self.device.note(copy.buffer, H2D, action, write=True)
        self.body.actions.append(Prefetch(tensor=self.names[copy.value], slot=slot, buffer=copy.buffer, after=after))

    def offload(self, copy: Copy) -> None:
        slot, action = self.slot_of[copy.value], len(self.body.actions)
        self.sent[copy.value] = action
        wait = merge(self.pace(), merge(self.host.write(slot), self.device.read(copy.buffer)))
        after = self.clocks.order(action, D2H, wait)
        self.host.note(slot, D2H, action, write=True)
        self.device.note(copy.buffer, D2H, action, write=False)
        self.body.actions.append(Offload(tensor=self.names[copy.value], buffer=copy.buffer, slot=slot, after=after))

    def algorithm(self, position: int) -> None:
        op = self.schedule.runs[position]
        choices = self.schedule.step.engines[op]
        if choices:
            engine = choices[self.layout.residency.engine[op]].id
            workspace = self.layout.workspace.get(position)
            self.body.actions.append(Algorithm(op=self.ops[op], engine=engine, workspace=workspace))

    def run(self, position: int) -> None:
        layout, schedule, device = self.layout, self.schedule, self.device
        reads = self.places(schedule.reads[position], position)
        writes = self.places(schedule.writes[position], position)
        wait: Marks = NONE
        if layout.waits:
            wait = (-1, max((self.sent[v] for v in layout.waits.get(position, ())), default=-1), -1)
        self.algorithm(position)
        workspace = layout.workspace.get(position)
        written = [buffer for _, buffer in writes] if workspace is None else [workspace, *(b for _, b in writes)]
        for _, buffer in reads:
            wait = merge(wait, device.read(buffer))
        for buffer in written:
            wait = merge(wait, device.write(buffer))
        action = self.ran = len(self.body.actions)
        after = self.clocks.order(action, COMPUTE, wait)
        for _, buffer in reads:
            device.note(buffer, COMPUTE, action, write=False)
        for buffer in written:
            device.note(buffer, COMPUTE, action, write=True)
        kind = Run if schedule.first[position] else Recompute
        self.body.actions.append(kind(op=self.ops[schedule.runs[position]], reads=reads, writes=writes, after=after))


def emit(layout: Layout, offsets: Sequence[int], slots: Sequence[Slot], slot_of: dict[int, int]) -> Body:
    """The body of the plan: `offsets` of `layout.buffers`, host `slots`, and the slot of each value that has one."""
    emitter = _Emitter(layout, offsets, slots, slot_of)
    _emit_start(emitter)
    _emit_positions(emitter)
    _emit_places(emitter)
    body = emitter.body
    body.buffers = [Extent(id=i, offset=offsets[i], bytes=b.size) for i, b in enumerate(layout.buffers)]
    body.slots = [Extent(id=i, offset=slot.offset, bytes=slot.size, pool=slot.pool) for i, slot in enumerate(slots)]
    body.arena_bytes = max((b.offset + b.bytes for b in body.buffers), default=0)
    body.host_arena_bytes = max((s.offset + s.bytes for s in body.slots), default=0)
    body.peak_live_bytes = emitter.peak
    return body


def _emit_start(emitter: _Emitter) -> None:
    """Resident buffers and the slots that hold something when the step starts."""
    layout = emitter.layout
    for index, buffer in enumerate(layout.buffers):
        if buffer.resident is not None:
            emitter.begin(index)
            emitter.body.resident.append(Place(tensor=emitter.names[buffer.resident], buffer=index))
    for value in range(len(emitter.schedule.step.sources)):
        if layout.residency.starts_in_host(value):
            emitter.body.resident.append(Place(tensor=emitter.names[value], slot=emitter.slot_of[value]))


def _emit_positions(emitter: _Emitter) -> None:
    """The actions of every position: allocs, prefetches, the op, offloads, frees."""
    layout, end = emitter.layout, emitter.schedule.end
    staying = _buffers_to_the_end(layout)
    allocs, frees = defaultdict(list), defaultdict(list)
    for index, buffer in enumerate(layout.buffers):
        if buffer.resident is None:
            allocs[buffer.start].append(index)
        if index not in staying:
            frees[buffer.stop].append(index)
    slot_starts, slot_stops = defaultdict(list), defaultdict(list)
    for index, slot in enumerate(emitter.slots):
        slot_starts[slot.start].append(index)
        slot_stops[slot.stop].append(index)
    prefetches, offloads = by_position(layout.prefetches), by_position(layout.offloads)
    for position in range(end):
        for slot_id in slot_stops[position]:
            emitter.end_slot(slot_id)
        for slot_id in slot_starts[position]:
            emitter.begin_slot(slot_id)
        for buffer_id in allocs[position]:
            emitter.alloc(buffer_id)
        for copy in prefetches[position]:
            emitter.prefetch(copy)
        emitter.run(position)
        for copy in offloads[position]:
            emitter.offload(copy)
        for buffer_id in frees[position + 1]:
            emitter.free(buffer_id)


def _buffers_to_the_end(layout: Layout) -> set[int]:
    """Buffers that hold a result or a persistent value when the step ends."""
    residency = layout.residency
    staying = set()
    for value in residency.schedule.final.values():
        if layout.stays[value] and not residency.ends_in_host(value):
            staying.add(layout.stay_buffer[value][-1])
    return staying


def _emit_places(emitter: _Emitter) -> None:
    """Where persistent values and results are at the end."""
    step, final = emitter.schedule.step, emitter.schedule.final
    for tensor, becomes in step.becomes.items():
        place = _end_place(emitter, final[becomes])
        emitter.body.persistent.append(Persistent(tensor=step.names[tensor], becomes=step.names[becomes], **place))
    for tensor in step.outputs:
        emitter.body.outputs.append(Place(tensor=step.names[tensor], **_end_place(emitter, final[tensor])))


def _end_place(emitter: _Emitter, value: int) -> dict[str, int]:
    layout = emitter.layout
    if layout.residency.ends_in_host(value):
        return {"slot": emitter.slot_of[value]}
    return {"buffer": layout.stay_buffer[value][-1]}
