"""Changes to a draft that its timeline suggests: what to drop, to stop dropping, or to run with less workspace.

A stall has a *pinch*: the position that had no room for the bytes that should have been there earlier, or should have
stayed until their copy to the host was done. There either the op runs with a smaller workspace, or saved tensors that
span the position are dropped, the cheapest to recompute for a byte first. Where nothing stalls, the dearest drops are
taken back, and engines may grow again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from snplan.analysis.index import IndexedStep
from snplan.passes.estimate import waits
from snplan.passes.evict import SMALL_BYTES
from snplan.passes.realise import Costs, Sketch
from snplan.passes.recompute import Dropper

STALLS = 4
LEAST_STALL = 0.0005  # of the step


@dataclass(frozen=True, slots=True)
class Draft:
    """What decides a candidate: `dropped` saved tensors, those of them that are recomputed for each reader anew
    (`transient`, with what only they need), and (op, index) `ceilings` of engines.
    """

    dropped: frozenset[int] = frozenset()
    transient: frozenset[int] = frozenset()
    ceilings: frozenset[tuple[int, int]] = frozenset()

    def limited(self, op: int, index: int) -> Draft:
        """The draft with another ceiling for `op`."""
        others = frozenset(pair for pair in self.ceilings if pair[0] != op)
        return replace(self, ceilings=others | {(op, index)})


@dataclass(frozen=True, slots=True)
class Stall:
    """Microseconds that the op at `position` waits for copies, and the position that had no room."""

    us: int
    position: int
    pinch: int


def stalls(sketch: Sketch) -> list[Stall]:
    """The longest stalls of a sketch, longest first."""
    layout, timeline = sketch.layout, sketch.estimate
    begin_of = {copy.buffer: copy.position for copy in layout.prefetches}
    arrival, departure = waits(layout)
    found: list[Stall] = []
    least, before = sketch.step_us * LEAST_STALL, 0
    for position, (start, end) in enumerate(zip(timeline.start, timeline.end, strict=True)):
        if start - before > least:
            pinch = position
            if max((timeline.sent[v] for v in departure[position]), default=0) < start:
                late = [b for b in arrival[position] if timeline.fetched.get(b, 0) >= start]
                pinch = max((begin_of[b] - 1 for b in late), default=position)
            found.append(Stall(start - before, position, max(pinch, 0)))
        before = end
    return sorted(found, key=lambda stall: (-stall.us, stall.position))[:STALLS]


def relieved(draft: Draft, sketch: Sketch, costs: Costs) -> list[Draft]:
    """Drafts near `draft` with one of its stalls relieved."""
    dropper = Dropper(sketch.layout.residency.schedule.step, dropped=draft.dropped)
    found: dict[Draft, None] = {}
    for stall in stalls(sketch):
        shortage = costs.sent_bytes(stall.us)
        for pinch in dict.fromkeys((stall.pinch, stall.position)):
            found.update(dict.fromkeys(_smaller_engine(draft, sketch, pinch)))
            for part in (1, 4):
                drops = _drops(dropper, sketch, pinch, shortage // part)
                found[replace(draft, dropped=draft.dropped | drops)] = None
            for tensor in _checkpoints(draft, sketch, pinch):
                found[replace(draft, dropped=draft.dropped - {tensor})] = None
            for tensor in _idle(draft, sketch, pinch):
                found[replace(draft, transient=draft.transient | _with_inputs(dropper, tensor))] = None
    found.pop(draft, None)
    return list(found)


def taken_back(draft: Draft, step: IndexedStep) -> list[Draft]:
    """Drafts without the dearest drops for a byte, without one of them, and with one engine less limited."""
    dearest = sorted(draft.dropped, key=lambda t: (-step.cost[step.producer[t]] / step.size[t], t))
    dearest = [t for t in dearest if step.size[t] >= SMALL_BYTES]
    found = [replace(draft, dropped=draft.dropped - set(dearest[:n])) for n in (1, 2, 4, 8) if n <= len(dearest)]
    found += [replace(draft, dropped=draft.dropped - {tensor}) for tensor in dearest[1:4]]
    raised = [(op, index + 1) for op, index in sorted(draft.ceilings) if index + 1 < len(step.engines[op])]
    return found + [draft.limited(op, index) for op, index in raised]


def lightened(draft: Draft, sketch: Sketch, excess: int) -> list[Draft]:
    """Drafts near `draft` that need less host memory, by `excess` bytes and more.

    Evicted tensors are dropped, the cheapest for a byte first; evicted values that were recomputed become transient.
    """
    residency = sketch.layout.residency
    step = residency.schedule.step
    dropper = Dropper(step, dropped=draft.dropped)
    evicted = {residency.schedule.values[v].tensor for v, gaps in enumerate(residency.evicted) if gaps}
    cheapest = sorted(evicted & dropper.kept, key=lambda t: (dropper.ratio(t), t))
    found: list[Draft] = []
    for part in (1, 2, 4):
        chosen: set[int] = set()
        for tensor in cheapest:
            if sum(step.size[t] for t in chosen) < excess * part:
                chosen.add(tensor)
        found.append(replace(draft, dropped=draft.dropped | chosen))
    again = sorted((evicted & draft.dropped) - draft.transient, key=lambda t: (-step.size[t], t))
    for count in (1, 4, len(again)):
        fresh = [_with_inputs(dropper, tensor) for tensor in again[:count]]
        found.append(replace(draft, transient=draft.transient.union(*fresh)))
    return [near for near in found if near != draft]


def _smaller_engine(draft: Draft, sketch: Sketch, position: int) -> Iterator[Draft]:
    residency = sketch.layout.residency
    op = residency.schedule.runs[position]
    for index in dict.fromkeys((residency.engine[op] - 1, 0)):
        if 0 <= index < residency.engine[op]:
            yield draft.limited(op, index)


def _drops(dropper: Dropper, sketch: Sketch, position: int, shortage: int) -> frozenset[int]:
    """Saved tensors that span `position`, the cheapest for a byte, of `shortage` bytes together."""
    residency = sketch.layout.residency
    step = dropper.step
    spanning = {
        step_value.tensor
        for events, step_value in zip(residency.events, residency.schedule.values, strict=True)
        if events[0] < position < events[-1] and residency.schedule.first[max(events[0], 0)]
    }
    chosen: set[int] = set()
    large = {tensor for tensor in spanning & dropper.kept if step.size[tensor] >= SMALL_BYTES}
    for tensor in sorted(large, key=lambda t: (dropper.ratio(t), t)):
        if shortage <= 0:
            break
        chosen.add(tensor)
        shortage -= step.size[tensor]
    return frozenset(chosen)


def _checkpoints(draft: Draft, sketch: Sketch, position: int) -> list[int]:
    """Dropped tensors that would cut off the most recomputed bytes that are live at `position`, for a byte kept."""
    residency = sketch.layout.residency
    schedule, size = residency.schedule, residency.size
    spanning = {
        value.tensor
        for events, value in zip(residency.events, schedule.values, strict=True)
        if 0 <= events[0] <= position <= events[-1] and not schedule.first[events[0]]
    }
    relief: list[tuple[float, int]] = []
    for tensor in sorted(spanning & draft.dropped):
        seen, stack, freed = {tensor}, [tensor], 0
        while stack:
            for source in schedule.step.reads[schedule.step.producer[stack.pop()]]:
                if source in spanning and source not in seen:
                    seen.add(source)
                    stack.append(source)
                    freed += size[source]
        relief.append((-freed / size[tensor], tensor))
    return [tensor for gain, tensor in sorted(relief)[:3] if gain < 0]


def _idle(draft: Draft, sketch: Sketch, position: int) -> list[int]:
    """Large dropped tensors that are recomputed before `position`, not used there, and used again after it."""
    residency = sketch.layout.residency
    schedule, size = residency.schedule, residency.size
    idle = {
        value.tensor
        for events, value in zip(residency.events, schedule.values, strict=True)
        if 0 <= events[0] < position < events[-1] and not schedule.first[events[0]] and position not in events
    }
    fresh = (idle & draft.dropped) - draft.transient
    return sorted((t for t in fresh if size[t] >= SMALL_BYTES), key=lambda t: (-size[t], t))[:2]


def _with_inputs(dropper: Dropper, tensor: int) -> frozenset[int]:
    """`tensor` and the tensors that are recomputed for it alone, which nothing else in the backward pass reads."""
    step = dropper.step
    found, stack = {tensor}, [tensor]
    while stack:
        for source in step.reads[step.producer[stack.pop()]]:
            if step.producer[source] in dropper.again and source not in dropper.saved and source not in found:
                found.add(source)
                stack.append(source)
    return frozenset(found)
