"""Changes to a draft that its timeline suggests: what to drop, what to drop no more, and which ops wait for copies.

A loss, a stall or an engine slower than one that could fit, has a *pinch*: the position that had no room for the bytes
that should have been there earlier, should have stayed until their copy to the host was done, or are the workspace of
the faster engine. There saved tensors that span the position are dropped, the cheapest to recompute for a byte first,
or the op waits for its engine. Drops that there is room for are taken back, and so are the dearest ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from snplan.analysis.floor import working_set
from snplan.analysis.index import IndexedStep
from snplan.analysis.schedule import Schedule
from snplan.passes.estimate import waits
from snplan.passes.evict import NO_LEANINGS, SMALL_BYTES, Leanings
from snplan.passes.realise import Costs, Sketch
from snplan.passes.recompute import Dropper
from snplan.passes.workspaces import positions_of_ops

LOSSES = 8
LEAST_LOSS = 0.0005  # of the step


@dataclass(frozen=True, slots=True)
class Draft:
    """What decides a candidate: `dropped` saved tensors, those of them that are recomputed for each reader anew
    (`transient`, with what only they need), and what is decided before memory is counted.
    """

    dropped: frozenset[int] = frozenset()
    transient: frozenset[int] = frozenset()
    leanings: Leanings = NO_LEANINGS

    def keeping(self, tensors: Iterable[int]) -> Draft:
        """The draft without the drops of `tensors`."""
        dropped, transient = self.dropped.difference(tensors), self.transient.difference(tensors)
        return replace(self, dropped=dropped, transient=transient)

    def dropping(self, tensors: Iterable[int]) -> Draft:
        """The draft with `tensors` dropped as well."""
        return replace(self, dropped=self.dropped.union(tensors))

    def refreshing(self, tensors: Iterable[int]) -> Draft:
        """The draft with recomputes of `tensors` for each reader anew."""
        return replace(self, transient=self.transient.union(tensors))

    def turned(self, op: int) -> Draft:
        """The draft with the patience of `op` changed."""
        return self.leaning(patient=self.leanings.patient ^ {op})

    def leaning(self, **changes: frozenset[Any]) -> Draft:
        """The draft with other leanings."""
        return replace(self, leanings=replace(self.leanings, **changes))


@dataclass(frozen=True, slots=True)
class Loss:
    """Microseconds that the op at `position` waits for copies or takes longer because its workspace does not fit.

    `pinch` is the position that had no room, `shortage` the bytes that it lacked.
    """

    us: int
    position: int
    pinch: int
    shortage: int


def stalls(sketch: Sketch, costs: Costs) -> list[Loss]:
    """The stalls of a sketch that are worth looking at, in order of position."""
    layout, timeline = sketch.layout, sketch.estimate
    begin_of = {copy.buffer: copy.position for copy in layout.prefetches}
    arrival, departure = waits(layout)
    found: list[Loss] = []
    least, before = sketch.step_us * LEAST_LOSS, 0
    for position, (start, end) in enumerate(zip(timeline.start, timeline.end, strict=True)):
        if start - before > least:
            pinch = position
            if max((timeline.sent[v] for v in departure[position]), default=0) < start:
                late = [b for b in arrival[position] if timeline.fetched.get(b, 0) >= start]
                pinch = max((begin_of[b] - 1 for b in late), default=position)
            us = start - before
            found.append(Loss(us, position, max(pinch, 0), costs.sent_bytes(us)))
        before = end
    return found


def slow_engines(sketch: Sketch, budget: int) -> list[Loss]:
    """What ops lose because the workspace of a faster engine does not fit beside what others keep or copy."""
    residency = sketch.layout.residency
    step = residency.schedule.step
    least = sketch.step_us * LEAST_LOSS
    used = _used(sketch)
    found: list[Loss] = []
    for op, positions in positions_of_ops(residency).items():
        choices, now = step.engines[op], residency.engine[op]
        room = budget - working_set(step, op) + choices[0].workspace
        best = max(i for i, choice in enumerate(choices) if i <= now or choice.workspace <= room)
        us = (choices[now].us - choices[best].us) * len(positions)
        if us > least:
            pinch = max(positions, key=lambda p: (used[p], -p))
            lacking = used[pinch] + choices[best].workspace - choices[now].workspace - budget
            found.append(Loss(us, pinch, pinch, max(lacking, 0)))
    return found


def _used(sketch: Sketch) -> list[int]:
    """Bytes of the buffers that are live at each position."""
    change = [0] * (sketch.layout.residency.schedule.end + 2)
    for buffer in sketch.layout.buffers:
        change[buffer.start] += buffer.size
        change[buffer.stop] -= buffer.size
    return list(accumulate(change))


def losses(sketch: Sketch, costs: Costs, budget: int) -> list[Loss]:
    """The largest losses of a sketch, largest first."""
    found = [*stalls(sketch, costs), *slow_engines(sketch, budget)]
    return sorted(found, key=lambda loss: (-loss.us, loss.position))[:LOSSES]


def relieved(draft: Draft, sketch: Sketch, costs: Costs, budget: int) -> Iterator[list[Draft]]:
    """Drafts near `draft`, those that relieve one of its losses together."""
    schedule = sketch.layout.residency.schedule
    dropper = Dropper(schedule.step, dropped=draft.dropped)
    for loss in losses(sketch, costs, budget):
        found: dict[Draft, None] = {}
        for pinch in dict.fromkeys((loss.pinch, loss.position)):
            for present, part in ((True, 1), (False, 1), (False, 2), (False, 4)):
                found[draft.dropping(_drops(dropper, sketch, pinch, loss.shortage // part, present))] = None
            for tensor in _checkpoints(draft, sketch, pinch):
                found[draft.keeping((tensor,))] = None
            for tensor in _idle(draft, sketch, pinch):
                found[draft.refreshing(_with_inputs(dropper, tensor))] = None
            op = schedule.runs[pinch]
            if schedule.step.engines[op]:
                found[draft.turned(op)] = None
        found.pop(draft, None)
        yield list(found)


def filled(draft: Draft, sketch: Sketch, budget: int) -> list[Draft]:
    """Drafts without drops for which the sketch has room: those that save the most time, or the most for a byte.

    A drop is taken back where the bytes are free all along from its last use in the forward pass to its recompute.
    """
    schedule = sketch.layout.residency.schedule
    step, used = schedule.step, np.array(_used(sketch), np.int64)
    spans = _absences(draft, schedule)
    orders = (lambda t: (-step.cost[step.producer[t]] / step.size[t], t), lambda t: (-step.cost[step.producer[t]], t))
    found: dict[Draft, None] = {}
    for order in orders:
        now, back = used.copy(), set()
        for tensor in sorted(spans, key=order):
            start, stop = spans[tensor]
            if start >= stop or now[start:stop].max() + step.size[tensor] <= budget:
                now[start:stop] += step.size[tensor]
                back.add(tensor)
        found[draft.keeping(back)] = None
    found.pop(draft, None)
    return list(found)


def _absences(draft: Draft, schedule: Schedule) -> dict[int, tuple[int, int]]:
    """Dropped tensor -> positions from its last use in the forward pass to its first recompute."""
    left: dict[int, int] = {}
    found: dict[int, tuple[int, int]] = {}
    for value in schedule.values:
        if value.tensor not in draft.dropped:
            continue
        if schedule.first[value.birth]:
            left[value.tensor] = value.uses[-1] if value.uses else value.birth
        elif value.tensor not in found:
            found[value.tensor] = (left[value.tensor] + 1, value.birth)
    return found


def taken_back(draft: Draft, step: IndexedStep) -> list[Draft]:
    """Drafts without the dearest drops for a byte, and without one of them."""
    large = [t for t in draft.dropped if step.size[t] >= SMALL_BYTES]
    large.sort(key=lambda t: (-step.cost[step.producer[t]] / step.size[t], t))
    found = [draft.keeping(large[:n]) for n in (1, 2, 4, 8) if n <= len(large)]
    return found + [draft.keeping((tensor,)) for tensor in large[1:4]]


def dearest(draft: Draft, step: IndexedStep) -> list[int]:
    """The drops of a draft, those whose op takes longest first."""
    return sorted(draft.dropped, key=lambda t: (-step.cost[step.producer[t]], t))


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
        found.append(draft.dropping(chosen))
    again = sorted((evicted & draft.dropped) - draft.transient, key=lambda t: (-step.size[t], t))
    for count in (1, 4, len(again)):
        fresh = [_with_inputs(dropper, tensor) for tensor in again[:count]]
        found.append(draft.refreshing(frozenset().union(*fresh)))
    return [near for near in found if near != draft]


def _drops(dropper: Dropper, sketch: Sketch, position: int, shortage: int, present: bool) -> frozenset[int]:
    """Saved tensors that span `position`, the cheapest for a byte, of `shortage` bytes together.

    With `present`, only those that are on the device there.
    """
    layout = sketch.layout
    residency, step = layout.residency, dropper.step
    spanning: set[int] = set()
    for value, (events, record) in enumerate(zip(residency.events, residency.schedule.values, strict=True)):
        if events[0] < position < events[-1] and residency.schedule.first[max(events[0], 0)]:
            buffers = (layout.buffers[b] for b in layout.stay_buffer[value])
            if not present or any(b.start <= position < b.stop for b in buffers):
                spanning.add(record.tensor)
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
