"""Schedules: the executions of one step in order, first runs and recomputes, and the values they read and write.

A *value* is one assignment of a tensor: the first run of an op and each recompute of it make values of their own. A
value's lifetime is decided later (`snplan.analysis.residency`); here are only its birth and its uses.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from snplan.analysis.index import IndexedStep
from snplan.ir import Phase

SOURCE_BIRTH = -1


@dataclass(slots=True)
class Value:
    """One assignment of `tensor`: its birth (SOURCE_BIRTH for sources) and the ascending positions of its `uses`."""

    tensor: int
    birth: int
    uses: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Executions by position.

    runs        op index of each position
    first       whether the position is the op's first execution
    reads       value ids that each position reads (in the order of `IndexedStep.reads`)
    writes      value ids that each position writes
    values      all values; `final` maps a tensor that must exist at the end of the step to its value
    """

    step: IndexedStep
    runs: list[int]
    first: list[bool]
    reads: list[list[int]]
    writes: list[list[int]]
    values: list[Value]
    final: dict[int, int]

    @cached_property
    def end(self) -> int:
        """The position after the last execution."""
        return len(self.runs)

    @cached_property
    def starts(self) -> list[int]:
        """Microsecond at which each position starts when nothing stalls; one more entry for the end."""
        cost = self.step.cost
        return list(accumulate([cost[op] for op in self.runs], initial=0))

    @cached_property
    def choosers(self) -> dict[int, list[int]]:
        """Positions of every execution of the ops that have engines."""
        engines = self.step.engines
        found: dict[int, list[int]] = {}
        for position, op in enumerate(self.runs):
            if engines[op]:
                found.setdefault(op, []).append(position)
        return found

    def least_us(self) -> int:
        """Microseconds of all executions: no plan of the schedule takes less."""
        return sum(self.step.cost) + self.recompute_us()

    def recompute_us(self) -> int:
        """Microseconds of all recomputes."""
        return sum(self.step.cost[op] for op, first in zip(self.runs, self.first, strict=True) if not first)


class _Builder:
    """State of `build_schedule`: the current value of each tensor (-1: none), and the lists being filled."""

    def __init__(self, step: IndexedStep) -> None:
        self.step = step
        self.recomputed: list[int] = []
        self.current = [-1] * len(step.names)
        self.runs: list[int] = []
        self.first: list[bool] = []
        self.reads: list[list[int]] = []
        self.writes: list[list[int]] = []
        self.values: list[Value] = []
        for tensor in step.sources:
            self._value(tensor, SOURCE_BIRTH)

    def _value(self, tensor: int, birth: int) -> int:
        value = len(self.values)
        self.values.append(Value(tensor, birth))
        self.current[tensor] = value
        return value

    def execute(self, op: int, *, first: bool) -> None:
        """Append one execution of `op`; all that it reads must have a current value."""
        position, current, values = len(self.runs), self.current, self.values
        reads = [current[t] for t in self.step.reads[op]]
        for value in reads:
            values[value].uses.append(position)
        writes = []
        for tensor in self.step.writes[op]:
            kept = current[tensor]
            writes.append(self._value(tensor, position))
            if not first:
                self._recomputed(tensor, kept)
        self.runs.append(op)
        self.first.append(first)
        self.reads.append(reads)
        self.writes.append(writes)

    def _recomputed(self, tensor: int, kept: int) -> None:
        """After a recompute wrote `tensor`: readers go on using the value that was kept, where there is one."""
        if kept >= 0:
            self.current[tensor] = kept
        else:
            self.recomputed.append(tensor)

    def forget(self, kept: Container[int]) -> None:
        """End of the forward pass: forward tensors outside `kept` have no value any more."""
        for op, writes in zip(self.step.ops[: self.step.backward], self.step.writes, strict=False):
            if op.phase is not Phase.FORWARD:
                continue
            for tensor in writes:
                if tensor not in kept:
                    self.current[tensor] = -1

    def drop_transient(self, transient: Container[int]) -> None:
        """Forget the values of `transient` tensors that were recomputed for the op that has just run."""
        for tensor in self.recomputed:
            if tensor in transient:
                self.current[tensor] = -1
        self.recomputed.clear()

    def materialise(self, tensor: int) -> None:
        """Recompute what is missing for `tensor`, inputs first (depth first, without recursion)."""
        stack = [self.step.producer[tensor]]
        while stack:
            op = stack[-1]
            missing = [t for t in self.step.reads[op] if self.current[t] < 0]
            if missing:
                stack.extend(self.step.producer[t] for t in reversed(missing))
                continue
            stack.pop()
            if any(self.current[t] < 0 for t in self.step.writes[op]):
                self.execute(op, first=False)


def build_schedule(
    step: IndexedStep, kept: Container[int] | None = None, transient: Container[int] = frozenset()
) -> Schedule:
    """The schedule that runs every op once and recomputes what the backward pass needs beyond `kept`.

    `kept` (None: everything) are forward tensors whose first value lives on into the backward pass. A recomputed value
    is shared by all later readers (the paper's speed-centric recompute, SuperNeurons section 3.4), but for `transient`
    tensors: those are recomputed for one reader at a time and dropped again (its memory-centric recompute).
    """
    builder = _Builder(step)
    pinned = needed_at_end(step)
    for op in range(len(step.ops)):
        if op == step.backward and kept is not None:
            builder.forget(_Either(kept, pinned))
        for tensor in step.reads[op]:
            if builder.current[tensor] < 0:
                builder.materialise(tensor)
        builder.execute(op, first=True)
        builder.drop_transient(transient)
    final = {tensor: builder.current[tensor] for tensor in (*step.becomes.values(), *step.outputs)}
    return Schedule(
        step=step,
        runs=builder.runs,
        first=builder.first,
        reads=builder.reads,
        writes=builder.writes,
        values=builder.values,
        final=final,
    )


@dataclass(frozen=True, slots=True)
class _Either:
    """Membership in one of two containers."""

    left: Container[int]
    right: Container[int]

    def __contains__(self, item: object) -> bool:
        return item in self.left or item in self.right


def needed_at_end(step: IndexedStep) -> frozenset[int]:
    """Tensors that must exist when the step ends: results and what persists."""
    return frozenset(step.outputs) | frozenset(step.becomes.values())


def saved_tensors(step: IndexedStep) -> list[int]:
    """Forward tensors that the backward pass reads and could recompute, in order of first use."""
    pinned = needed_at_end(step)
    tensors: dict[int, None] = {}
    for op in range(step.backward, len(step.ops)):
        for tensor in step.reads[op]:
            producer = step.producer[tensor]
            if 0 <= producer < step.backward and step.ops[producer].phase is Phase.FORWARD and tensor not in pinned:
                tensors[tensor] = None
    return list(tensors)


def start_times(schedule: Schedule) -> Sequence[int]:
    """Microsecond at which each position starts when nothing stalls; one more entry for the end."""
    return schedule.starts
