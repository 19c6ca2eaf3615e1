"""Table 2: the preallocated pool against cudaMalloc and cudaFree, as an experiment on three ways to find addresses."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from snplan.plan.model import Alloc, Free
from superneurons.layers import MIB
from superneurons.networks import SIX, TITLES
from superneurons.pool import Pool
from superneurons.result import Cell, Check, Result
from superneurons.steps import DEVICE, PAPER_BATCH, prepared

REPEATS = 5
POOL_BYTES = 12 << 30
BATCH = 16
MALLOC_SHARE = 0.3628
"""Part of ResNet-50's training time in cudaMalloc and cudaFree (the paper, section 3.2)."""
LINEAR = ("alexnet", "vgg16")

PUBLISHED = {
    "alexnet": (359.4, 401.6),
    "vgg16": (12.1, 14.4),
    "inception_v4": (6.77, 10.0),
    "resnet50": (21.5, 32.9),
    "resnet101": (11.3, 18.95),
    "resnet152": (7.46, 13.2),
}
"""Images a second with cudaMalloc and cudaFree, and with the pool."""


@dataclass(frozen=True, kw_only=True)
class Requests:
    """The allocs and frees of one training step: (buffer, bytes), with 0 bytes for a free. Residents come first."""

    resident: Sequence[tuple[int, int]]
    events: Sequence[tuple[int, int]]
    offset: Sequence[int]
    arena_bytes: int
    step_us: int

    @property
    def allocs(self) -> int:
        """Allocations of one step."""
        return sum(size > 0 for _, size in self.events)

    @property
    def peak_live(self) -> int:
        """The most bytes live at once."""
        live = highest = sum(size for _, size in self.resident)
        held: dict[int, int] = {}
        for buffer, size in self.events:
            if size:
                held[buffer] = size
            live += size or -held.pop(buffer)
            highest = max(highest, live)
        return highest


def requests(name: str) -> Requests:
    """The requests of a network's keep-all plan at Table 2's batch. Every buffer is allocated once and freed once."""
    plan = prepared(name, PAPER_BATCH.get(name, BATCH)).everything
    size = {buffer.id: buffer.bytes for buffer in plan.body.buffers}
    resident = {place.buffer for place in plan.body.resident if place.buffer is not None}
    # What is there for the whole step is no traffic.
    freed = {action.buffer for action in plan.body.actions if isinstance(action, Free)}
    events = [
        (action.buffer, size[action.buffer] if isinstance(action, Alloc) else 0)
        for action in plan.body.actions
        if isinstance(action, Alloc) or (isinstance(action, Free) and action.buffer not in resident)
    ]
    begun = {buffer for buffer, count in events if count}
    events += [(buffer, 0) for buffer in sorted(begun - freed)]
    offset = [0] * (1 + max(size))
    for buffer in plan.body.buffers:
        offset[buffer.id] = buffer.offset
    return Requests(
        resident=[(buffer, size[buffer]) for buffer in sorted(resident)],
        events=events,
        offset=offset,
        arena_bytes=plan.body.arena_bytes,
        step_us=plan.step_us,
    )


def pool_replay(asked: Requests, *, best: bool) -> int:
    """The extent in bytes that the paper's pool needs for a step."""
    pool = Pool(bytes=POOL_BYTES, best=best)
    for buffer, size in asked.resident:
        pool.allocate(buffer, size)
    for buffer, size in asked.events:
        if size:
            pool.allocate(buffer, size)
        else:
            pool.free(buffer)
    return pool.top


def static_replay(asked: Requests) -> int:
    """The extent in bytes with addresses that were fixed beforehand: an allocation is a look-up, a free nothing."""
    offset = asked.offset
    for buffer, size in asked.events:
        if size:
            offset[buffer]
    return asked.arena_bytes


COLUMNS = (
    *("network", "batch", "allocs a step", "live MiB", "first fit MiB", "best fit MiB", "static MiB"),
    *("first fit us", "best fit us", "static us", "img/s malloc", "img/s pool", "gain", "published img/s"),
    "published gain",
)


def table2() -> Result:
    """Table 2: extents, time a request, and modelled images a second."""
    traces = {name: requests(name) for name in SIX}
    call_us = _call_us(traces["resnet50"])
    rows = {name: _row(name, asked, call_us) for name, asked in traces.items()}
    gain = {name: float(row[COLUMNS.index("gain")] or 0) for name, row in rows.items()}
    checks = [
        Check(
            what=f"{TITLES[name]}: static addresses take no more than first fit",
            passed=float(row[COLUMNS.index("static MiB")] or 0) <= float(row[COLUMNS.index("first fit MiB")] or 0),
        )
        for name, row in rows.items()
    ]
    checks.append(
        Check(
            what="the pool wins more on nonlinear networks than on linear ones",
            passed=min(gain[name] for name in SIX if name not in LINEAR) > max(gain[name] for name in LINEAR),
        )
    )
    return Result(
        name="table2",
        title="preallocated pool against cudaMalloc and cudaFree",
        columns=COLUMNS,
        digits=2,
        rows=list(rows.values()),
        checks=checks,
        notes=(
            "The allocs and frees of each keep-all plan, replayed in Python: MiB are the extents used, us the time of "
            "one alloc with its free (median of 5). The pool has blocks of 1 KB; static addresses are snplan.arena's.",
            f"img/s: simulated step with {DEVICE} data, and an assumed {call_us:.0f} us for a cudaMalloc with its "
            f"cudaFree: what makes the {MALLOC_SHARE:.2%} of ResNet-50's time that the paper states. "
            "ResNet-50's own gain is therefore no prediction; the others are.",
        ),
    )


def _row(name: str, asked: Requests, call_us: float) -> list[Cell]:
    """The row of one network: what COLUMNS says."""
    replays = (partial(pool_replay, asked, best=False), partial(pool_replay, asked, best=True))
    tops, times = zip(*(_timed(replay, asked) for replay in (*replays, partial(static_replay, asked))), strict=True)
    batch = PAPER_BATCH.get(name, BATCH)
    with_malloc = asked.step_us + call_us * asked.allocs
    malloc, pool = PUBLISHED[name]
    return [
        *(TITLES[name], batch, asked.allocs, round(asked.peak_live / MIB, 2)),
        *(round(top / MIB, 2) for top in tops),
        *(round(us, 2) for us in times),
        *(round(batch * 1e6 / us, 2) for us in (with_malloc, asked.step_us)),
        round(with_malloc / asked.step_us, 2),
        f"{malloc} -> {pool}",
        round(pool / malloc, 2),
    ]


def _call_us(asked: Requests) -> float:
    """Microseconds of one cudaMalloc with its cudaFree, such that they take MALLOC_SHARE of the step."""
    return asked.step_us * MALLOC_SHARE / (1 - MALLOC_SHARE) / asked.allocs


def _timed(replay: Callable[[], int], asked: Requests) -> tuple[int, float]:
    """The extent of a replay, and microseconds for each allocation."""
    seconds = []
    top = 0
    for _ in range(REPEATS):
        begin = time.perf_counter()
        top = replay()
        seconds.append(time.perf_counter() - begin)
    return top, median(seconds) * 1e6 / asked.allocs
