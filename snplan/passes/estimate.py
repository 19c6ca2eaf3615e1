"""The timeline of a layout without addresses: what the search compares; final candidates are simulated exactly.

The same three streams and the same simulator, but reuse of bytes is guessed: an op waits for every offload whose buffer
is freed before it, and a prefetch starts no earlier than the op before the position where it is issued ends.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from snplan.cost.device import Device
from snplan.cost.replay import COMPUTE, D2H, H2D, Work, replay
from snplan.passes.layout import Layout, by_position, fetched_stays, op_times


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """When everything ran, in microseconds.

    start, end  of the op at each position
    sent        value -> when its offload ended
    fetched     buffer -> when its prefetch ended
    step_us     when the last of them ended
    """

    start: list[int]
    end: list[int]
    sent: dict[int, int]
    fetched: dict[int, int]
    step_us: int


def estimate(layout: Layout, device: Device) -> Estimate:
    """The timeline of `layout` on `device`, about."""
    work, ops, offloads, prefetches = _encode(layout)
    start, end = replay(work, device)
    return Estimate(
        start=[start[i] for i in ops],
        end=[end[i] for i in ops],
        sent={value: end[i] for value, i in offloads.items()},
        fetched={buffer: end[i] for buffer, i in prefetches.items()},
        step_us=max((0, *end)),
    )


def _encode(layout: Layout) -> tuple[Work, list[int], dict[int, int], dict[int, int]]:
    """The layout as work; the actions of positions, of offloads by value and of prefetches by buffer."""
    residency = layout.residency
    schedule, size = residency.schedule, residency.size
    times = op_times(layout)
    fetched, sent = by_position(layout.prefetches), by_position(layout.offloads)
    arrival, departure = waits(layout)
    streams: list[int] = []
    amounts: list[int] = []
    after: list[int] = []
    after_start = [0]
    ops: list[int] = []
    offloads: dict[int, int] = {}
    prefetches: dict[int, int] = {}

    def append(stream: int, amount: int) -> None:
        """Add an action that waits for what `after` has had since the one before."""
        streams.append(stream)
        amounts.append(amount)
        after_start.append(len(after))

    for position, us in enumerate(times):
        for copy in fetched.get(position, ()):
            prefetches[copy.buffer] = len(streams)
            after += ops[-1:]
            if copy.value in offloads:
                after.append(offloads[copy.value])
            append(H2D, size[schedule.values[copy.value].tensor])
        ops.append(len(streams))
        if position in arrival:
            after += [prefetches[b] for b in arrival[position] if b in prefetches]
        if position in departure:
            after += [offloads[v] for v in departure[position]]
        append(COMPUTE, us)
        for copy in sent.get(position, ()):
            offloads[copy.value] = len(streams)
            if residency.events[copy.value][0] >= 0:
                after.append(ops[-1])
            append(D2H, size[schedule.values[copy.value].tensor])
    work = Work(streams=streams, amounts=amounts, after_start=after_start, after=after)
    return work, ops, offloads, prefetches


def waits(layout: Layout) -> tuple[defaultdict[int, list[int]], defaultdict[int, list[int]]]:
    """Buffers whose prefetch each position waits for, and values whose offload it waits for (their buffer is gone)."""
    arrival: defaultdict[int, list[int]] = defaultdict(list)
    for start, value, index in fetched_stays(layout):
        arrival[start].append(layout.stay_buffer[value][index])
    departure: defaultdict[int, list[int]] = defaultdict(list)
    for copy in layout.offloads:
        departure[max(layout.buffers[copy.buffer].stop, copy.position + 1)].append(copy.value)
    return arrival, departure
