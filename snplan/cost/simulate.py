"""Discrete-event simulation of a step plan: when each action starts and ends on its stream.

Model. Three streams (compute, h2d, d2h) run their own actions in order; an action starts when the one before it on its
stream and all actions of its `after` list have ended. A copy first waits the link's latency, then moves its bytes;
while both directions move bytes each runs at the rate of `*_both_bytes_per_s`, and rates change exactly when a copy
begins or ends (bytes that remain are kept as integers, ends round up to whole microseconds). `alloc`, `free` and
`algorithm` take no time. In graph mode the durations of ops are all there is; in eager mode the host issues one action
after another and nothing starts before it is issued.

`simulate` is the plain event loop over all streams; `snplan.cost.replay` has the same model as a loop over arrays, for
planners.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from snplan.cost.device import Device
from snplan.cost.replay import COMPUTE, D2H, H2D, INSTANT, Work, step_time
from snplan.plan.model import Action, Algorithm, Offload, Prefetch, Recompute, Run

__all__ = ["LaunchMode", "OpTime", "Timeline", "encode", "issue_times", "simulate", "step_time"]

OpTime: TypeAlias = Callable[[str, "int | None"], int]
LaunchMode: TypeAlias = Literal["graph", "eager"]

STREAMS = {"compute": COMPUTE, "h2d": H2D, "d2h": D2H}
_SCALE = 10**6  # a rate of 1 B/s moves one scaled byte a microsecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When actions ran, in microseconds; `start` and `end` are -1 for actions that take no time.

    step_time_us   end of the last action
    stall_us       time the compute stream was idle before its last action ended
    busy_us        stream name -> time it was running an action
    """

    start: tuple[int, ...]
    end: tuple[int, ...]
    step_time_us: int
    stall_us: int
    busy_us: Mapping[str, int]


def simulate(
    actions: Sequence[Action],
    op_us: Mapping[str, int] | OpTime,
    tensor_bytes: Mapping[str, int],
    device: Device,
    *,
    launch: LaunchMode = "graph",
) -> Timeline:
    """The timeline of `actions`.

    `op_us` gives the time of an op by name, or is called with the op's name and the engine that an `algorithm` action
    chose for this execution (None where none did). `tensor_bytes` gives the bytes of offloaded and prefetched tensors.
    Raises ValueError when actions wait for each other for ever.
    """
    work = encode(actions, op_us, tensor_bytes)
    release = issue_times(work.streams, device) if launch == "eager" else [0] * len(actions)
    start, end = _Events(work, device, release).run()
    return _timeline(work, start, end)


def encode(actions: Sequence[Action], op_us: Mapping[str, int] | OpTime, tensor_bytes: Mapping[str, int]) -> Work:
    """`actions` as arrays: stream, microseconds or bytes, and `after` lists. ValueError: a stream that is not there."""
    time = op_us if callable(op_us) else lambda op, engine: op_us[op]
    engines: dict[str, int] = {}
    work = Work(streams=[], amounts=[], after_start=[0], after=[])
    for action in actions:
        if isinstance(action, Algorithm):
            engines[action.op] = action.engine
        if isinstance(action, Run | Recompute):
            amount = time(action.op, engines.pop(action.op, None))
        else:
            amount = tensor_bytes[action.tensor] if isinstance(action, Offload | Prefetch) else 0
        work.amounts.append(amount)
        work.streams.append(_stream(action))
        work.after.extend(getattr(action, "after", ()))
        work.after_start.append(len(work.after))
    return work


def issue_times(streams: Sequence[int], device: Device) -> list[int]:
    """When the host has issued each action in eager mode: the sum of launch costs up to and with it."""
    cost = {INSTANT: 0, COMPUTE: device.launch_us, H2D: device.copy_launch_us, D2H: device.copy_launch_us}
    now, times = 0, []
    for stream in streams:
        now += cost[stream]
        times.append(now)
    return times


def _stream(action: Action) -> int:
    name = getattr(action, "stream", None)
    if name is None:
        return INSTANT
    allowed = {"offload": "d2h", "prefetch": "h2d"}.get(type(action).__name__.lower(), "compute")
    if name != allowed:
        raise ValueError(f"an action of kind {type(action).__name__.lower()} cannot run on stream {name!r}")
    return STREAMS[name]


def _timeline(work: Work, start: Sequence[int], end: Sequence[int]) -> Timeline:
    busy = dict.fromkeys(STREAMS, 0)
    last = 0
    names = {number: name for name, number in STREAMS.items()}
    for stream, begun, ended in zip(work.streams, start, end, strict=True):
        if stream == INSTANT:
            continue
        busy[names[stream]] += ended - begun
        last = max(last, ended) if stream == COMPUTE else last
    return Timeline(
        start=tuple(start),
        end=tuple(end),
        step_time_us=max((0, *end)),
        stall_us=last - busy["compute"],
        busy_us=busy,
    )


class _Events:
    """The event loop. Time moves from one event to the next; between two events no rate changes."""

    def __init__(self, work: Work, device: Device, release: Sequence[int]) -> None:
        self.work, self.device, self.release = work, device, release
        self.now = 0
        self.queues = {s: deque(i for i, stream in enumerate(work.streams) if stream == s) for s in STREAMS.values()}
        self.running: dict[int, int] = {}  # stream -> action
        self.left: dict[int, int] = {}  # stream -> scaled bytes that remain, or microseconds
        self.begin: dict[int, int] = {}  # stream -> when its action's bytes begin to move
        self.start = [-1] * len(work.streams)
        self.end = [-1] * len(work.streams)

    def run(self) -> tuple[list[int], list[int]]:
        """Start and end of each action."""
        while any(self.queues.values()) or self.running:
            self._start_ready()
            self._advance(self._next_event())
        return self.start, self.end

    def _start_ready(self) -> None:
        for stream, queue in self.queues.items():
            if stream in self.running or not queue or not self._ready(queue[0]) or self.release[queue[0]] > self.now:
                continue
            action = queue.popleft()
            self.running[stream] = action
            self.start[action] = self.now
            self.begin[stream] = self.now + (0 if stream == COMPUTE else self.device.copy_latency_us)
            self.left[stream] = self.work.amounts[action] * (1 if stream == COMPUTE else _SCALE)

    def _ready(self, action: int) -> bool:
        return all(self.work.streams[i] == INSTANT or self.end[i] >= 0 for i in self.work.waits(action))

    def _rate(self, stream: int) -> int:
        """Scaled bytes (or, on the compute stream, microseconds) a microsecond."""
        if stream == COMPUTE:
            return 1
        other = D2H if stream == H2D else H2D
        both = other in self.running and self.begin[other] <= self.now
        way = self.device
        if stream == H2D:
            return way.h2d_both_bytes_per_s if both else way.h2d_bytes_per_s
        return way.d2h_both_bytes_per_s if both else way.d2h_bytes_per_s

    def _next_event(self) -> int:
        times = []
        for stream in self.running:
            waiting = self.begin[stream] > self.now
            times.append(self.begin[stream] if waiting else self.now - (-self.left[stream] // self._rate(stream)))
        for stream, queue in self.queues.items():
            if queue and stream not in self.running and self._ready(queue[0]):
                times.append(self.release[queue[0]])
        if not times:
            stuck = [queue[0] for queue in self.queues.values() if queue]
            raise ValueError(f"actions {stuck} wait for each other")
        return min(times)

    def _advance(self, to: int) -> None:
        moving = [stream for stream in self.running if self.begin[stream] <= self.now]
        moved = {stream: self._rate(stream) * (to - self.now) for stream in moving}
        self.now = to
        for stream in moving:
            self.left[stream] -= moved[stream]
            if self.left[stream] <= 0:
                self.end[self.running.pop(stream)] = to
