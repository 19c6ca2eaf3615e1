"""The space of plans that the exact solver searches: which saved tensors are dropped and which gaps are evicted.

Positions are op indices of the step's own order. A *gap* lies between two consecutive events of a tensor there (birth,
uses, the end of the step); recomputed values share the gaps of the first value. Everything else of a plan (when copies
are issued, engines, addresses) follows from these decisions by the passes that realise them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor
from typing import NamedTuple

from snplan.analysis.index import IndexedStep
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import SOURCE_BIRTH, Schedule, build_schedule, needed_at_end, saved_tensors
from snplan.cost.device import Device
from snplan.ir import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Dropped tensors (indices) and evicted gaps (indices of `Space.gaps`)."""

    dropped: frozenset[int] = frozenset()
    evicted: frozenset[int] = frozenset()


class SpaceGap(NamedTuple):
    """A gap of `tensor` between events at ops `start` and `stop` (-1: the step's start; number of ops: its end).

    `needs` are gaps that are evicted whenever this one is; `out` and `back` tell whether it costs a copy to the host
    (one for all gaps of a tensor) and a copy from it.
    """

    tensor: int
    start: int
    stop: int
    needs: tuple[int, ...]
    out: bool
    back: bool


class Saved(NamedTuple):
    """A tensor that may be dropped: its op, last forward use, first and last backward use, and the gap between."""

    tensor: int
    op: int
    last_forward: int
    first_backward: int
    last_backward: int
    gap: int | None


@dataclass(frozen=True, kw_only=True)
class Space:
    """The decisions that are open for a step, in integers.

    live      bytes live while each op runs with nothing dropped or evicted and the smallest workspaces
    working   of these, bytes that the op itself needs: no decision changes them
    joinable  op -> (tensor, bytes) that an in-place write saves there once the tensor is dropped
    feeding   op -> (tensor, producing op) of its inputs that a recompute may have to recompute first
    """

    step: IndexedStep
    device: Device
    gaps: list[SpaceGap]
    saved: list[Saved]
    live: list[int]
    joinable: dict[int, list[tuple[int, int]]]
    feeding: dict[int, list[tuple[int, int]]]

    @property
    def end(self) -> int:
        """The number of ops."""
        return len(self.step.ops)

    def bytes_of(self, tensor: int) -> int:
        """Exact bytes of `tensor`: what a copy moves."""
        return self.step.step.graph.tensors[self.step.names[tensor]].bytes

    def out_us(self, tensor: int) -> int:
        """Least microseconds of a copy of `tensor` to the host."""
        return _copy_us(self.bytes_of(tensor), self.device.d2h_bytes_per_s)

    def back_us(self, tensor: int) -> int:
        """Least microseconds of a copy of `tensor` from the host."""
        return _copy_us(self.bytes_of(tensor), self.device.h2d_bytes_per_s)

    def closed(self, evicted: Iterable[int], dropped: frozenset[int]) -> frozenset[int]:
        """`evicted` with the gaps they need, without the gaps that `dropped` tensors do not have."""
        chosen: set[int] = set()
        for gap in evicted:
            chosen.update((gap, *self.gaps[gap].needs))
        return frozenset(chosen - {s.gap for s in self.saved if s.tensor in dropped})


def _copy_us(size: int, rate: int) -> int:
    return floor(size * 10**6 / rate)


def make_space(step: IndexedStep, device: Device) -> Space:
    """The space of plans of `step` on `device`."""
    schedule = build_schedule(step)
    residency = Residency(schedule)
    for op, choices in enumerate(step.engines):
        if choices:
            residency.set_engine(op, 0, [op])
    gaps = _gaps(residency)
    saved = _saved(schedule, gaps)
    return Space(
        step=step,
        device=device,
        gaps=gaps,
        saved=saved,
        live=residency.live.tolist(),
        joinable=_joinable(step, saved),
        feeding=_feeding(step),
    )


def _gaps(residency: Residency) -> list[SpaceGap]:
    """The gaps of the keep-all schedule, with what follows from evicting each."""
    values = residency.schedule.values
    found = list(residency.gaps())
    number = {(gap.value, gap.index): i for i, gap in enumerate(found)}
    gaps = []
    for gap in found:
        events = residency.events[gap.value]
        homes = _homes(residency, gap.value)
        source = events[0] == SOURCE_BIRTH
        gaps.append(
            SpaceGap(
                tensor=values[gap.value].tensor,
                start=events[gap.index],
                stop=events[gap.index + 1],
                needs=tuple(number[key] for key in homes if key in number),
                out=not source,
                back=events[gap.index + 1] < residency.schedule.end,
            )
        )
    return gaps


def _homes(residency: Residency, value: int) -> list[tuple[int, int]]:
    """(value, gap index) at the ends of the step that are in host memory once a gap of `value` is."""
    if value in residency.partner:
        source, last = residency.partner[value]
        return [(source, 0), (last, len(residency.events[last]) - 2)]
    return [(value, 0)] if residency.events[value][0] == SOURCE_BIRTH else []


def _saved(schedule: Schedule, gaps: Sequence[SpaceGap]) -> list[Saved]:
    """What may be dropped."""
    step = schedule.step
    value_of = {value.tensor: value for value in schedule.values}
    gap_of = {(gap.tensor, gap.start): i for i, gap in enumerate(gaps)}
    found = []
    for tensor in saved_tensors(step):
        value = value_of[tensor]
        forward = [value.birth, *(use for use in value.uses if use < step.backward)]
        backward = [use for use in value.uses if use >= step.backward]
        gap = gap_of.get((tensor, forward[-1]))
        found.append(Saved(tensor, step.producer[tensor], forward[-1], backward[0], backward[-1], gap))
    return found


def _joinable(step: IndexedStep, saved: Sequence[Saved]) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    last = {s.tensor: s.last_forward for s in saved}
    for op, pairs in enumerate(step.overwrites):
        for tensor in dict.fromkeys(read for _, read in pairs):
            if last.get(tensor) == op:
                found.setdefault(op, []).append((tensor, step.size[tensor]))
    return found


def _feeding(step: IndexedStep) -> dict[int, list[tuple[int, int]]]:
    pinned = needed_at_end(step)
    found: dict[int, list[tuple[int, int]]] = {}
    for op in range(step.backward):
        inputs = [(t, step.producer[t]) for t in step.reads[op] if step.producer[t] >= 0 and t not in pinned]
        found[op] = [(t, p) for t, p in inputs if step.ops[p].phase is Phase.FORWARD]
    return found


def residency_of(space: Space, decisions: Decisions) -> Residency:
    """The residency that follows from `decisions`: the schedule with its recomputes, and the gaps evicted in it."""
    step = space.step
    kept = frozenset(s.tensor for s in space.saved) - decisions.dropped
    schedule = build_schedule(step, kept if decisions.dropped else None)
    residency = Residency(schedule)
    spans: dict[int, list[tuple[int, int]]] = {}
    for number in sorted(decisions.evicted):
        gap = space.gaps[number]
        spans.setdefault(gap.tensor, []).append((2 * gap.start, 2 * gap.stop))
    if not spans:
        return residency
    base = _base_times(schedule, space.end)
    for value, events in enumerate(residency.events):
        for low, high in spans.get(schedule.values[value].tensor, ()):
            for index in range(len(events) - 1):
                inside = low <= base[events[index]] and base[events[index + 1]] <= high
                if inside and events[index + 1] - events[index] > 1:
                    residency.evict(value, index)
    return residency


def _base_times(schedule: Schedule, end: int) -> dict[int, int]:
    """Twice the op index of each first run; recomputes come just before the next one; -1 and the end as they are."""
    base = {SOURCE_BIRTH: 2 * SOURCE_BIRTH, schedule.end: 2 * end}
    for position, op in enumerate(upcoming(schedule, end)):
        base[position] = 2 * op if schedule.first[position] else 2 * op - 1
    return base


def upcoming(schedule: Schedule, end: int) -> list[int]:
    """The op of the first run at each position or, at recomputes, of the next one after it (`end` after the last)."""
    found = [end] * schedule.end
    op = end
    for position in range(schedule.end - 1, -1, -1):
        if schedule.first[position]:
            op = schedule.runs[position]
        found[position] = op
    return found


def decisions_of(space: Space, residency: Residency) -> Decisions:
    """The decisions that `residency` amounts to, as far as the space can say it."""
    schedule = residency.schedule
    forward: set[int] = set()
    backward: set[int] = set()
    for position, op in enumerate(schedule.runs):
        if op >= space.step.backward and schedule.first[position]:
            backward.update(schedule.reads[position])
    for value, record in enumerate(schedule.values):
        if value in backward and record.birth >= 0 and schedule.first[record.birth]:
            forward.add(record.tensor)
    dropped = frozenset(s.tensor for s in space.saved if s.tensor not in forward)
    base = _base_times(schedule, space.end)
    away: dict[int, list[tuple[int, int]]] = {}
    for value, gaps in enumerate(residency.evicted):
        for index in gaps:
            events = residency.events[value]
            span = (base[events[index]], base[events[index + 1]])
            away.setdefault(schedule.values[value].tensor, []).append(span)
    evicted = [
        number
        for number, gap in enumerate(space.gaps)
        if any(low >= 2 * gap.start and high <= 2 * gap.stop for low, high in away.get(gap.tensor, ()))
    ]
    return Decisions(dropped=dropped, evicted=space.closed(evicted, dropped))
