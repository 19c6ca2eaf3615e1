"""Actions put on their streams: what each waits for, its work, and the event that others wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snplan.errors import RunError, SnplanError
from snplan.plan.index import PlanIndex
from snplan.plan.model import Offload, Prefetch, Recompute, Run
from snplan.runtime.cuda.gpu import Gpu, Issue, Stream
from snplan.runtime.cuda.order import STREAMS, Edges

# Called with an action's id before its work, to put a delay on its stream.
Delay = Callable[[int, Stream], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The three streams of a plan."""

    compute: Stream
    d2h: Stream
    h2d: Stream

    def named(self, name: str) -> Stream:
        """The stream that an action's `stream` names."""
        stream: Stream = getattr(self, name)
        return stream


def make_streams(gpu: Gpu) -> Streams:
    """Three new streams."""
    return Streams(**{name: gpu.stream() for name in STREAMS})


class Issuer:
    """Puts a step's actions on the streams, in the plan's order."""

    def __init__(
        self,
        gpu: Gpu,
        streams: Streams,
        index: PlanIndex,
        edges: Edges,
        work: Mapping[int, Sequence[Issue]],
        delay: Delay | None = None,
        flags: Mapping[int, Any] | None = None,
    ) -> None:
        """`flags` are raised after actions."""
        self._gpu, self._streams, self._index, self._edges, self._work = gpu, streams, index, edges, work
        self._delay, self._flags = delay, flags or {}
        self._stream = {
            number: streams.named(action.stream)
            for number, action in enumerate(index.plan.actions)
            if isinstance(action, (Run, Recompute, Offload, Prefetch))
        }
        self._events: dict[int, Any] = {number: gpu.event() for number in sorted(edges.records)}
        self._start = gpu.event()
        self._ends = {name: gpu.event() for name in STREAMS if name in edges.last and name != "compute"}

    def begin(self) -> None:
        """All streams start after what is on the compute stream now."""
        self._gpu.record(self._start, self._streams.compute)
        for name in self._ends:
            self._gpu.wait(self._streams.named(name), self._start)

    def action(self, number: int) -> None:
        """Put one action on its stream. Raises RunError (SNP-R057) naming it where that fails."""
        stream = self._stream[number]
        for other in self._edges.waits.get(number, ()):
            self._gpu.wait(stream, self._events[other])
        if self._delay is not None:
            self._delay(number, stream)
        try:
            for issue in self._work[number]:
                issue()
        except SnplanError:
            raise
        except Exception as error:
            raise RunError("SNP-R057", f"{self.describe(number)} failed: {error}", {"action": number}) from error
        if number in self._events:
            self._gpu.record(self._events[number], stream)
        if number in self._flags:
            self._gpu.raise_flag(self._flags[number], stream)

    def end(self) -> None:
        """The compute stream ends after the others."""
        for name, event in self._ends.items():
            self._gpu.record(event, self._streams.named(name))
            self._gpu.wait(self._streams.compute, event)

    def whole_step(self) -> None:
        """All actions, from begin to end."""
        self.begin()
        for number in self._stream:
            self.action(number)
        self.end()

    def describe(self, number: int) -> str:
        """An action in words."""
        return describe_action(self._index, number)


def describe_action(index: PlanIndex, number: int) -> str:
    """An action in words, for messages."""
    action = index.plan.actions[number]
    if isinstance(action, (Run, Recompute)):
        op = index.ops[action.op]
        nodes = f", node {', '.join(op.nodes)}" if op.nodes else ""
        return f"action {number}, op {op.name} ({op.kind}{nodes}),"
    if isinstance(action, (Offload, Prefetch)):
        return f"action {number}, {type(action).__name__.lower()} of {action.tensor},"
    return f"action {number}"
