"""Time of work on the device, by its own clock."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from snplan.runtime.cuda.gpu import Gpu, Issue, Stream

# A stopwatch: microseconds of one issue.
Timer = Callable[[Issue], float]


def time_us(gpu: Gpu, stream: Stream, issue: Issue, *, repeats: int = 3, inner: int = 1) -> float:
    """The median microseconds of `issue` over `repeats` runs of `inner` issues each, after one that does not count."""
    issue()
    times = []
    for _ in range(repeats):
        start, end = gpu.event(timing=True), gpu.event(timing=True)
        gpu.record(start, stream)
        for _ in range(inner):
            issue()
        gpu.record(end, stream)
        times.append(gpu.elapsed_us(start, end) / inner)
    return statistics.median(times)
