"""Discrete-event simulation of a step plan: when each action starts and ends on its stream.

Model. Three streams (compute, h2d, d2h) run their own actions in order; an action starts when the one before it on its
stream and all actions of its `after` list have ended. A copy first waits the link's latency, then moves its bytes;
while both directions move bytes each runs at the rate of `*_both_bytes_per_s`, and rates change exactly when a copy
begins or ends (bytes that remain are kept as integers, ends round up to whole microseconds). `alloc`, `free` and
`algorithm` take no time. In graph mode the durations of ops are all there is; in eager mode the host issues one action
after another and nothing starts before it is issued.

`snplan.cost.replay` has the loop, over arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from snplan.cost.device import Device
from snplan.cost.replay import COMPUTE, D2H, H2D, INSTANT, Work, replay, step_time
from snplan.plan.model import Action, Algorithm, Offload, Prefetch, Recompute, Run

__all__ = ["LaunchMode", "OpTime", "Timeline", "encode", "issue_times", "simulate", "step_time"]

OpTime: TypeAlias = Callable[[str, "int | None"], int]
LaunchMode: TypeAlias = Literal["graph", "eager"]

STREAMS = {"compute": COMPUTE, "h2d": H2D, "d2h": D2H}
_STREAM_OF: dict[type, tuple[str | None, int]] = {
    Run: ("compute", COMPUTE),
    Recompute: ("compute", COMPUTE),
    Offload: ("d2h", D2H),
    Prefetch: ("h2d", H2D),
}


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
    slot_pools: Mapping[int, str] | None = None,
) -> Timeline:
    """The timeline of `actions`.

    `op_us` gives the time of an op by name, or is called with the op's name and the engine that an `algorithm` action
    chose for this execution (None where none did). `tensor_bytes` gives the bytes of offloaded and prefetched tensors,
    `slot_pools` the pool of each slot where the device has pools: copies then run over the pool's link.
    Raises ValueError when actions wait for each other for ever.
    """
    work = encode(actions, op_us, tensor_bytes)
    if slot_pools:
        numbers = {pool.name: number for number, pool in enumerate(device.pools)}
        copies = ((i, action) for i, action in enumerate(actions) if isinstance(action, Offload | Prefetch))
        work.links.update((i, numbers[slot_pools[action.slot]]) for i, action in copies)
    release = issue_times(work.streams, device) if launch == "eager" else None
    start, end = replay(work, device, release, device.pools)
    return _timeline(work, start, end)


def encode(actions: Sequence[Action], op_us: Mapping[str, int] | OpTime, tensor_bytes: Mapping[str, int]) -> Work:
    """`actions` as arrays: stream, microseconds or bytes, and `after` lists. ValueError: a stream that is not there."""
    time = op_us if callable(op_us) else lambda op, engine: op_us[op]
    engines: dict[str, int] = {}
    work = Work(streams=[], amounts=[], after_start=[0], after=[])
    for action in actions:
        amount = 0
        if isinstance(action, Algorithm):
            engines[action.op] = action.engine
        elif isinstance(action, Run | Recompute):
            amount = time(action.op, engines.pop(action.op, None))
            work.after.extend(action.after)
        elif isinstance(action, Offload | Prefetch):
            amount = tensor_bytes[action.tensor]
            work.after.extend(action.after)
        work.amounts.append(amount)
        work.streams.append(_stream(action))
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
    name, stream = _STREAM_OF.get(type(action), (None, INSTANT))
    if name is not None and action.stream != name:  # type: ignore[union-attr]  # actions in the table have one
        kind = type(action).__name__.lower()
        raise ValueError(f"an action of kind {kind} cannot run on stream {action.stream!r}")  # type: ignore[union-attr]
    return stream


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
