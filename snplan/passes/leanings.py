"""Changes to what a draft evicts first or last and to the engines it allows, as its timeline suggests.

Where an op waits, what came too late had better stay, or what was copied before it; or something else that is idle at
the pinch leaves earlier; or an op near the pinch makes room with a slower engine. Where an op runs a slow engine,
something that is idle there leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from snplan.analysis.schedule import Value
from snplan.passes.estimate import waits
from snplan.passes.evict import SMALL_BYTES
from snplan.passes.improve import Draft, Loss, losses
from snplan.passes.realise import Costs, Sketch

LEAST_LOSS = 0.005  # of the step
MOST_TENSORS = 5
AROUND = 3  # ops near a pinch that may be slowed


def leaned(draft: Draft, sketch: Sketch, costs: Costs, budget: int) -> Iterator[list[Draft]]:
    """Drafts with other leanings, those for one loss of the sketch together, and then those with one leaning less."""
    late = _Late(sketch)
    least = sketch.step_us * LEAST_LOSS
    for loss in losses(sketch, costs, budget):
        if loss.us < least:
            break
        found: dict[Draft, None] = {}
        stay = [*late.waited_for(loss), *late.ahead(loss)][:MOST_TENSORS]
        slow = _slower(sketch, loss)
        kept = [_staying(draft, tensor) for tensor in stay]
        found.update(dict.fromkeys(kept))
        idle = _idle(sketch, loss)
        found.update(dict.fromkeys(_leaving(draft, (tensor,)) for tensor in idle))
        found.update(dict.fromkeys(_leaving(draft, idle[:count]) for count in range(2, len(idle) + 1)))
        for engine in slow:
            found.update(dict.fromkeys(_slowed(near, engine) for near in (draft, *kept)))
        found.pop(draft, None)
        yield list(found)
    yield list(dict.fromkeys(_coming(draft, sketch)))
    yield list(_less(draft))


def _staying(draft: Draft, tensor: int) -> Draft:
    leanings = draft.leanings
    return draft.leaning(staying=leanings.staying | {tensor}, leaving=leanings.leaving - {tensor})


def _leaving(draft: Draft, tensors: Sequence[int]) -> Draft:
    leanings = draft.leanings
    return draft.leaning(staying=leanings.staying.difference(tensors), leaving=leanings.leaving.union(tensors))


def _slowed(draft: Draft, engine: tuple[int, int]) -> Draft:
    others = {other for other in draft.leanings.slowed if other[0] != engine[0]}
    return draft.leaning(slowed=frozenset({*others, engine}))


def _coming(draft: Draft, sketch: Sketch) -> Iterator[Draft]:
    """Drafts in which large tensors that start and end in host memory are on the device then: one, or several."""
    residency = sketch.layout.residency
    schedule, size = residency.schedule, residency.size
    away = {schedule.values[v].tensor for v in residency.in_host if v < len(schedule.step.sources)}
    large = sorted((t for t in away if size[t] >= SMALL_BYTES), key=lambda t: (-size[t], t))[:MOST_TENSORS]
    for chosen in (*((t,) for t in large), *(large[:count] for count in range(2, len(large) + 1))):
        yield draft.leaning(coming=draft.leanings.coming.union(chosen))


def _less(draft: Draft) -> Iterator[Draft]:
    """The draft with one leaning less each."""
    leanings = draft.leanings
    for tensor in sorted(leanings.staying):
        yield draft.leaning(staying=leanings.staying - {tensor})
    for tensor in sorted(leanings.leaving):
        yield draft.leaning(leaving=leanings.leaving - {tensor})
    for tensor in sorted(leanings.coming):
        yield draft.leaning(coming=leanings.coming - {tensor})
    for engine in sorted(leanings.slowed):
        yield draft.leaning(slowed=leanings.slowed - {engine})


class _Late:
    """What copies ops wait for, and what the link moved before those."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.arrival, self.departure = waits(sketch.layout)
        self.first = _first_values(sketch)

    def waited_for(self, loss: Loss) -> list[int]:
        """Tensors whose copies end when the op of a loss begins, or later."""
        times, position = self.sketch.estimate, loss.position
        values = self.sketch.layout.residency.schedule.values
        start = times.start[position]
        before = start - loss.us
        held = {b: v for v, buffers in enumerate(self.sketch.layout.stay_buffer) for b in buffers}
        late = [held[b] for b in self.arrival[position] if times.fetched.get(b, 0) > before]
        late += [v for v in self.departure[position] if times.sent.get(v, 0) > before]
        return self._tensors(late, values)

    def ahead(self, loss: Loss) -> list[int]:
        """Tensors that the link fetched while or shortly before the op of a loss waited, the largest first."""
        times, residency = self.sketch.estimate, self.sketch.layout.residency
        start = times.start[loss.position]
        since = start - 3 * loss.us
        values = [c.value for c in self.sketch.layout.prefetches if since < times.fetched[c.buffer] <= start]
        values += [v for v, end in times.sent.items() if since < end <= start]
        values.sort(key=lambda v: (-residency.size[residency.schedule.values[v].tensor], v))
        return self._tensors(values, residency.schedule.values)

    def _tensors(self, found: list[int], values: Sequence[Value]) -> list[int]:
        return list(dict.fromkeys(self.first.get(values[v].tensor, values[v].tensor) for v in found))


def _first_values(sketch: Sketch) -> dict[int, int]:
    """Next value of a persistent tensor -> the tensor."""
    becomes = sketch.layout.residency.schedule.step.becomes
    return {after: tensor for tensor, after in becomes.items()}


def _idle(sketch: Sketch, loss: Loss) -> list[int]:
    """Large tensors on the device at the pinch of a loss that its op does not use, the largest first."""
    layout = sketch.layout
    residency, first = layout.residency, _first_values(sketch)
    found: dict[int, int] = {}
    for value, (events, record) in enumerate(zip(residency.events, residency.schedule.values, strict=True)):
        if not events[0] < loss.pinch < events[-1] or loss.pinch in events:
            continue
        if any(layout.buffers[b].start <= loss.pinch < layout.buffers[b].stop for b in layout.stay_buffer[value]):
            found[first.get(record.tensor, record.tensor)] = residency.size[record.tensor]
    large = [tensor for tensor, size in found.items() if size >= SMALL_BYTES]
    return sorted(large, key=lambda t: (-found[t], t))[:MOST_TENSORS]


def _slower(sketch: Sketch, loss: Loss) -> list[tuple[int, int]]:
    """Ops up to the one of a loss with the next slower engine, those with most workspace near the pinch."""
    residency = sketch.layout.residency
    schedule = residency.schedule
    low, high = sorted((loss.pinch, loss.position))
    near = schedule.runs[max(low - AROUND, 0) : high + 1]
    ops = [op for op in dict.fromkeys(near) if schedule.step.engines[op] and residency.engine[op] > 0]
    ops.sort(key=lambda op: (-schedule.step.engines[op][residency.engine[op]].workspace, op))
    return [(op, residency.engine[op] - 1) for op in ops[:AROUND]]
