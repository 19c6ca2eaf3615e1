"""The step time of a layout without addresses: what the search compares; final candidates are simulated exactly.

The same three streams as the simulator's, but reuse of bytes is guessed: an op waits for every offload whose buffer is
freed before it, and a prefetch starts no earlier than the op before the position where it is issued ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from snplan.passes.layout import Layout


def estimate_us(layout: Layout, copy_us: Callable[[int], int]) -> int:
    """Microseconds that the step takes, about."""
    residency = layout.residency
    schedule, size = residency.schedule, residency.size
    times = op_times(layout)
    fetched, sent = _copies_by_position(layout)
    arrival, departure = _ready_lists(layout)
    ready: dict[int, int] = {}  # buffer -> when its prefetch is done
    saved: dict[int, int] = {}  # value -> when its offload is done
    clock = h2d = d2h = 0
    for position in range(schedule.end):
        for value, buffer in fetched[position]:
            amount = copy_us(size[schedule.values[value].tensor])
            h2d = max(h2d, clock, saved.get(value, 0)) + amount
            ready[buffer] = h2d
        for buffer in arrival[position]:
            clock = max(clock, ready.get(buffer, 0))
        for value in departure[position]:
            clock = max(clock, saved[value])
        clock += times[position]
        for value, _ in sent[position]:
            d2h = max(d2h, clock) + copy_us(size[schedule.values[value].tensor])
            saved[value] = d2h
    return max(clock, h2d, d2h)


def op_times(layout: Layout) -> list[int]:
    """Microseconds of each position with the engines that the layout chose."""
    residency = layout.residency
    step = residency.schedule.step
    chosen = [choices[residency.engine[op]].us if choices else step.cost[op] for op, choices in enumerate(step.engines)]
    return [chosen[op] for op in residency.schedule.runs]


def _copies_by_position(
    layout: Layout,
) -> tuple[defaultdict[int, list[tuple[int, int]]], defaultdict[int, list[tuple[int, int]]]]:
    """(value, buffer) of the prefetches and of the offloads issued at each position."""
    fetched: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    sent: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for copies, found in ((layout.prefetches, fetched), (layout.offloads, sent)):
        for copy in copies:
            found[copy.position].append((copy.value, copy.buffer))
    return fetched, sent


def _ready_lists(layout: Layout) -> tuple[defaultdict[int, list[int]], defaultdict[int, list[int]]]:
    """Buffers whose prefetch each position waits for, and values whose offload it waits for (their buffer is gone)."""
    arrival: defaultdict[int, list[int]] = defaultdict(list)
    for value, stays in enumerate(layout.stays):
        for index, stay in enumerate(stays):
            if index > 0 or layout.residency.starts_in_host(value):
                arrival[stay.start].append(layout.stay_buffer[value][index])
    departure: defaultdict[int, list[int]] = defaultdict(list)
    for copy in layout.offloads:
        departure[max(layout.buffers[copy.buffer].stop, copy.position + 1)].append(copy.value)
    return arrival, departure
