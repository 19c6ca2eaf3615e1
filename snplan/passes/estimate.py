"""The step time of a layout without addresses: what the search compares; final candidates are simulated exactly.

The same three streams as the simulator's, but reuse of bytes is guessed: an op waits for every offload whose buffer is
freed before it, and a prefetch starts no earlier than the op before the position where it is issued ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from snplan.passes.layout import Layout, by_position, fetched_stays


def estimate_us(layout: Layout, copy_us: Callable[[int], int]) -> int:
    """Microseconds that the step takes, about."""
    residency = layout.residency
    schedule, size = residency.schedule, residency.size
    times = op_times(layout)
    fetched, sent = by_position(layout.prefetches), by_position(layout.offloads)
    arrival, departure = _ready_lists(layout)
    ready: dict[int, int] = {}  # buffer -> when its prefetch is done
    saved: dict[int, int] = {}  # value -> when its offload is done
    clock = h2d = d2h = 0
    for position in range(schedule.end):
        for copy in fetched[position]:
            amount = copy_us(size[schedule.values[copy.value].tensor])
            h2d = max(h2d, clock, saved.get(copy.value, 0)) + amount
            ready[copy.buffer] = h2d
        for buffer in arrival[position]:
            clock = max(clock, ready.get(buffer, 0))
        for value in departure[position]:
            clock = max(clock, saved[value])
        clock += times[position]
        for copy in sent[position]:
            d2h = max(d2h, clock) + copy_us(size[schedule.values[copy.value].tensor])
            saved[copy.value] = d2h
    return max(clock, h2d, d2h)


def op_times(layout: Layout) -> list[int]:
    """Microseconds of each position with the engines that the layout chose."""
    residency = layout.residency
    step = residency.schedule.step
    chosen = [choices[residency.engine[op]].us if choices else step.cost[op] for op, choices in enumerate(step.engines)]
    return [chosen[op] for op in residency.schedule.runs]


def _ready_lists(layout: Layout) -> tuple[defaultdict[int, list[int]], defaultdict[int, list[int]]]:
    """Buffers whose prefetch each position waits for, and values whose offload it waits for (their buffer is gone)."""
    arrival: defaultdict[int, list[int]] = defaultdict(list)
    for start, value, index in fetched_stays(layout):
        arrival[start].append(layout.stay_buffer[value][index])
    departure: defaultdict[int, list[int]] = defaultdict(list)
    for copy in layout.offloads:
        departure[max(layout.buffers[copy.buffer].stop, copy.position + 1)].append(copy.value)
    return arrival, departure
