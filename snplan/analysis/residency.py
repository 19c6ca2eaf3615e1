"""Where values are over time: which gaps between uses they spend on the device, and which in host memory.

A value's *events* are its birth, its uses and, where it must exist at the end of the step, the end. Between two events
lies a gap. A gap is kept (the value stays in its buffer) or evicted (it is in a host slot meanwhile). A maximal run of
events with kept gaps is a *stay*: the value is in one buffer from its first to its last event. An *isolated* position
keeps nothing across: all that it touches comes from and goes to host memory, so its buffers can be packed afresh. With
every position isolated, any budget from the floor up is met: this is the fallback that makes planning complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from snplan.analysis.index import match_in_place
from snplan.analysis.schedule import SOURCE_BIRTH, Schedule
from snplan.ir import Role

Live = npt.NDArray[np.int64]


class Gap(NamedTuple):
    """Gap `index` of `value`, between its events `index` and `index + 1`; evicting it frees positions [start, stop)."""

    value: int
    index: int  # type: ignore[assignment]  # hides the method of tuples, which nobody needs here
    start: int
    stop: int


class Stay(NamedTuple):
    """A run of events of `value` in one buffer: event indices and positions, first to last, inclusive."""

    value: int
    first_event: int
    last_event: int
    start: int
    stop: int


class Residency:
    """Mutable choice of evicted gaps over one schedule, with the live bytes of each position kept up to date.

    `engine` has the engine of each op as an index of `IndexedStep.engines`, `ceiling` the last one that it may have.
    `returning` are persistent values that start and end the step on the device even where they leave it in between.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.size = schedule.step.size
        self.events = _events(schedule)
        self.evicted: list[frozenset[int]] = [frozenset()] * len(schedule.values)
        self.isolated: set[int] = set()
        self._isolated_sorted: list[int] = []
        self.partner = _partners(schedule)
        self.in_host: set[int] = set()
        self.returning: set[int] = set()
        self.joins = _dying_joins(schedule, self.events)
        self.ceiling = [len(choices) - 1 for choices in schedule.step.engines]
        self.engine = list(self.ceiling)
        self.live = self._initial_live()
        self._change: Live | None = None
        self._outlived: set[int] = set()
        self._send_outlived_home()

    def _send_outlived_home(self) -> None:
        """Persistent tensors whose old value outlives its update (a recompute reads it) start and end in host memory.

        Their update cannot go in place, so on the device the new value would end where the next step does not look.
        """
        for source, last in dict.fromkeys(self.partner.values()):
            birth = self.schedule.values[last].birth
            if source != last and birth >= 0 and (last, source) not in self.joins[birth]:
                self.send_home_to_host(source)
                self._outlived.add(source)

    def _initial_live(self) -> Live:
        """Live bytes of each position with every gap kept."""
        end, size, values = self.schedule.end, self.size, self.schedule.values
        sizes = np.asarray([size[value.tensor] for value in values], np.int64)
        first = np.asarray([events[0] for events in self.events], np.int64)
        last = np.asarray([events[-1] for events in self.events], np.int64)
        delta = np.zeros(end + 2, np.int64)
        np.add.at(delta, np.maximum(first, 0), sizes)
        np.add.at(delta, np.minimum(last + 1, end), -sizes)
        held = self.workspaces()
        extra = [held[op] for op in self.schedule.runs]
        for position, pairs in enumerate(self.joins):
            for written, _ in pairs:
                extra[position] -= size[values[written].tensor]
        return np.cumsum(delta[:end]) + np.asarray(extra, np.int64)

    def workspace(self, position: int) -> int:
        """Workspace bytes of the engine chosen for the op at `position`."""
        op = self.schedule.runs[position]
        choices = self.schedule.step.engines[op]
        return choices[self.engine[op]].workspace if choices else 0

    def workspaces(self) -> list[int]:
        """Workspace bytes of each op with the engine chosen for it."""
        engines = self.schedule.step.engines
        return [
            choices[chosen].workspace if choices else 0 for choices, chosen in zip(engines, self.engine, strict=True)
        ]

    def set_engine(self, op: int, index: int, positions: Iterable[int]) -> None:
        """Choose engine `index` for `op`, which is executed at `positions`."""
        choices = self.schedule.step.engines[op]
        change = choices[index].workspace - choices[self.engine[op]].workspace
        for position in positions:
            self.live[position] += change
        self.engine[op] = index

    def gap(self, value: int, index: int) -> Gap:
        """Gap `index` of `value`."""
        events = self.events[value]
        return Gap(value, index, events[index] + 1, min(events[index + 1], self.schedule.end))

    def gaps(self) -> Iterable[Gap]:
        """All gaps that free at least one position."""
        end = self.schedule.end
        for value, events in enumerate(self.events):
            for index in range(len(events) - 1):
                start, stop = events[index] + 1, events[index + 1]
                if stop > start:
                    yield Gap(value, index, start, stop if stop < end else end)

    def all_gaps(self) -> Live:
        """The same as `gaps`, as four rows of numbers."""
        counts = np.fromiter(map(len, self.events), np.int64, len(self.events))
        at = np.fromiter(chain.from_iterable(self.events), np.int64, int(counts.sum()))
        value = np.repeat(np.arange(counts.size), counts)
        index = np.arange(at.size) - (np.cumsum(counts) - counts)[value]
        rows = np.stack([value[:-1], index[:-1], at[:-1] + 1, np.minimum(at[1:], self.schedule.end)])
        return rows[:, (value[:-1] == value[1:]) & (rows[3] > rows[2])]

    def is_persistent(self, value: int) -> bool:
        """Whether the value is a tensor's content at the start or the end of every step."""
        return value in self.partner

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Many gaps are evicted or restored inside: `live` is brought up to date at the end, not for each of them."""
        self._change = np.zeros(self.schedule.end + 1, np.int64)
        yield
        self.live += np.cumsum(self._change)[:-1]
        self._change = None

    def evict(self, value: int, index: int) -> list[Gap]:
        """Put gap `index` of `value` into host memory; a persistent value that does not return starts and ends there.

        Returns the gaps that this evicted.
        """
        if index in self.evicted[value]:
            return []
        gaps = [self._toggle(value, index, evict=True)]
        if value in self.partner and value not in self.in_host and not self._returns(value, index):
            gaps += self.send_home_to_host(value)
        return gaps

    def let_return(self, source: int) -> None:
        """Let a persistent tensor, given by its value at the start, leave and be back where it was when the step ends.

        Without effect where its update cannot go in place: then the new value has bytes of its own.
        """
        last = self.partner[source][1]
        birth = self.schedule.values[last].birth
        if source == last or (birth >= 0 and (last, source) in self.joins[birth]):
            self.returning.update((source, last))

    def _returns(self, value: int, index: int) -> bool:
        return value in self.returning and not self.is_home(value, index)

    def send_home_to_host(self, value: int) -> list[Gap]:
        """Make host memory the place where a persistent tensor starts and ends its step; the gaps this evicted."""
        source, last = self.partner[value]
        self.in_host.update((source, last))
        return [
            self._toggle(end, index, evict=True)
            for end, index in dict.fromkeys(self._homes(value))
            if len(self.events[end]) > 1 and index not in self.evicted[end]
        ]

    def away(self, value: int) -> list[Gap]:
        """The gaps that a persistent tensor spends in host memory; none where it must start and end its step there."""
        source, last = self.partner[value]
        if value not in self.in_host or source in self._outlived:
            return []
        return [self.gap(v, index) for v in dict.fromkeys((source, last)) for index in sorted(self.evicted[v])]

    def bring_home(self, value: int) -> None:
        """Undo all evictions of a persistent tensor, which then starts and ends its step on the device."""
        for gap in self.away(value):
            self._toggle(gap.value, gap.index, evict=False)
        self.in_host.difference_update(self.partner[value])

    def _homes(self, value: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """(value, gap) at the start and at the end of the step of a persistent tensor."""
        source, last = self.partner[value]
        return (source, 0), (last, len(self.events[last]) - 2)

    def is_home(self, value: int, index: int) -> bool:
        """Whether a gap is where a persistent value is between steps: it is evicted with all others of its value."""
        return value in self.partner and (value, index) in self._homes(value)

    def restore(self, value: int, index: int) -> None:
        """Undo the eviction of a gap that `is_home` does not hold for."""
        self._toggle(value, index, evict=False)

    def _toggle(self, value: int, index: int, *, evict: bool) -> Gap:
        gap = self.gap(value, index)
        size = self.size[self.schedule.values[value].tensor]
        amount = -size if evict else size
        if self._change is None:
            self.live[gap.start : gap.stop] += amount
        else:
            self._change[gap.start] += amount
            self._change[max(gap.start, gap.stop)] -= amount
        self.evicted[value] = self.evicted[value] ^ {index}
        return gap

    def isolate(self, positions: Iterable[int]) -> None:
        """Isolate positions: nothing stays on the device across them."""
        chosen = sorted(set(positions) - self.isolated)
        if not chosen:
            return
        self.isolated.update(chosen)
        self._isolated_sorted = sorted(self.isolated)
        marks = np.zeros(self.schedule.end + 2, np.int64)
        marks[np.asarray(chosen) + 1] = 1
        before = np.cumsum(marks)
        for value, events in enumerate(self.events):
            self._cut_around(value, events, before)
        for position in chosen:
            self._rejoin(position)

    def isolated_sorted(self) -> list[int]:
        """Isolated positions, ascending."""
        return self._isolated_sorted

    def _cut_around(self, value: int, events: list[int], before: Live) -> None:
        """Evict every gap of `value` at or across an isolated position (`before[p + 1]`: how many are <= p)."""
        for index in range(len(events) - 1):
            low, high = max(events[index], 0), min(events[index + 1], self.schedule.end - 1)
            if before[high + 1] - before[low] > 0:
                self.evict(value, index)

    def _rejoin(self, position: int) -> None:
        """At an isolated position every in-place rule holds: what is overwritten is in host memory."""
        schedule = self.schedule
        pairs = _value_pairs(schedule, position)
        for written, _ in self.joins[position]:
            self.live[position] += self.size[schedule.values[written].tensor]
        self.joins[position] = match_in_place(pairs)
        for written, _ in self.joins[position]:
            self.live[position] -= self.size[schedule.values[written].tensor]

    def stays(self, value: int) -> list[Stay]:
        """The stays of `value` in order; a source that starts in host memory has no stay before its first prefetch."""
        events, end = self.events[value], self.schedule.end
        if not self.evicted[value] and events[-1] >= 0:
            return [Stay(value, 0, len(events) - 1, max(events[0], 0), min(events[-1], end - 1))]
        found: list[Stay] = []
        first = 0
        for index in range(len(events)):
            if index < len(events) - 1 and index not in self.evicted[value]:
                continue
            start, stop = events[first], events[index]
            if not (start == stop == SOURCE_BIRTH or start == end):
                found.append(Stay(value, first, index, max(start, 0), min(stop, end - 1)))
            first = index + 1
        return found

    def all_stays(self) -> list[list[Stay]]:
        """The stays of each value."""
        end = self.schedule.end
        found: list[list[Stay]] = []
        for value, (events, evicted) in enumerate(zip(self.events, self.evicted, strict=True)):
            start, stop = events[0], events[-1]
            if evicted or stop < 0:
                found.append(self.stays(value))
            else:
                stay = Stay(value, 0, len(events) - 1, start if start > 0 else 0, stop if stop < end else end - 1)
                found.append([stay])
        return found

    def starts_in_host(self, value: int) -> bool:
        """Whether a source is in host memory when the step starts."""
        return self.events[value][0] == SOURCE_BIRTH and (value in self.in_host or 0 in self.evicted[value])

    def ends_in_host(self, value: int) -> bool:
        """Whether a value that must exist at the end is in host memory then."""
        events = self.events[value]
        return events[-1] == self.schedule.end and (value in self.in_host or len(events) - 2 in self.evicted[value])


def _events(schedule: Schedule) -> list[list[int]]:
    """Event positions of each value: birth, uses, and the end where the value must exist then."""
    events = [[value.birth, *value.uses] for value in schedule.values]
    for value in set(schedule.final.values()):
        events[value].append(schedule.end)
    return events


def _partners(schedule: Schedule) -> dict[int, tuple[int, int]]:
    """For each value of a persistent tensor: (its value at the start, its value at the end)."""
    at_start = {schedule.values[v].tensor: v for v in range(len(schedule.step.sources))}
    partner: dict[int, tuple[int, int]] = {}
    for tensor, becomes in schedule.step.becomes.items():
        pair = (at_start[tensor], schedule.final[becomes])
        partner[pair[0]] = partner[pair[1]] = pair
    return partner


def _value_pairs(schedule: Schedule, position: int) -> list[tuple[int, int]]:
    """(written, read) values of a position that its op's in-place rules allow to share a buffer."""
    writes, reads = schedule.writes[position], schedule.reads[position]
    return [(writes[a], reads[b]) for a, b in schedule.step.overwriting[schedule.runs[position]]]


def _dying_joins(schedule: Schedule, events: list[list[int]]) -> list[list[tuple[int, int]]]:
    """In-place pairs of each position whose read value is not needed any more."""
    overwriting = schedule.step.overwriting
    found: list[list[tuple[int, int]]] = []
    for position, op in enumerate(schedule.runs):
        rules = overwriting[op]
        if rules:
            writes, reads = schedule.writes[position], schedule.reads[position]
            dying = [(writes[a], reads[b]) for a, b in rules if events[reads[b]][-1] == position]
            found.append(match_in_place(dying) if len(dying) > 1 else dying)
        else:
            found.append([])
    return found


_CLASSES = {Role.OPTIMIZER: 1, Role.GRADIENT: 2, Role.PARAMETER: 3, Role.STATE: 3, Role.CONSTANT: 3}


def role_class(role: Role) -> int:
    """Order in which tensors are considered for eviction: activations, optimiser state, gradients, then parameters."""
    return _CLASSES.get(role, 0)
