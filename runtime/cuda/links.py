"""Speeds of copies and launches, measured: what a profile says of the device beside its ops."""

from __future__ import annotations

import time
from collections.abc import Callable

from snplan.codegen.launch import Addresses, Launch, Scalar, source, values
from snplan.runtime.cuda.gpu import Array, Gpu, Issue
from snplan.runtime.cuda.issue import Streams
from snplan.runtime.cuda.memory import Memory
from snplan.runtime.cuda.modules import load_kernels
from snplan.runtime.cuda.timing import time_us

_LARGE = 256 << 20
_SMALL = 4096
_LAUNCHES = 200


def measure_links(gpu: Gpu, streams: Streams, memory: Memory, size: int | None = None) -> dict[str, int]:
    """The fields of a device that are about copies and launches, as integers.

    Copies are of `size` bytes (default: 256 MiB), pinned; the two directions are measured alone and both at once, where
    each is counted until the later one ends.
    """
    size = _LARGE if size is None else size
    out, back = memory.pinned(size), memory.pinned(size)
    first, second = memory.device(size, "a block to copy"), memory.device(size, "a block to copy")

    def inward() -> None:
        gpu.to_device(first, out, streams.h2d)

    def outward() -> None:
        gpu.to_host(back, second, streams.d2h)

    h2d = time_us(gpu, streams.h2d, inward)
    d2h = time_us(gpu, streams.d2h, outward)
    both = time_us(gpu, streams.compute, lambda: _joined(gpu, streams, inward, outward))
    latency = time_us(gpu, streams.h2d, lambda: gpu.to_device(first, out[:_SMALL], streams.h2d), inner=20)
    launch, host_launch = measure_launches(gpu, streams)
    speed = {"h2d": round(size * 1e6 / h2d), "d2h": round(size * 1e6 / d2h)}
    return {
        "h2d_bytes_per_s": speed["h2d"],
        "d2h_bytes_per_s": speed["d2h"],
        "h2d_both_bytes_per_s": min(speed["h2d"], round(size * 1e6 / both)),
        "d2h_both_bytes_per_s": min(speed["d2h"], round(size * 1e6 / both)),
        "copy_latency_us": max(1, round(latency)),
        "copy_launch_us": max(1, round(_host_us(lambda: _small_copy(gpu, streams, first, out)))),
        "graph_launch_us": max(1, round(launch)),
        "launch_us": max(1, round(host_launch)),
    }


def measure_launches(gpu: Gpu, streams: Streams) -> tuple[float, float]:
    """Microseconds between kernels of a replayed graph, and of the host for one launch."""
    empty = source("spin", "spin")
    launch = Launch(source=empty, grid=(1, 1, 1), block=(1, 1, 1), arguments=(Scalar("int64", 0),))
    issue = gpu.launcher(
        load_kernels(gpu, [empty]), launch, values(launch, Addresses(inputs=(), outputs=())), streams.compute
    )
    host = _host_us(issue)
    gpu.synchronize(streams.compute)
    return graph_time_us(gpu, streams, issue, _LAUNCHES), host


def graph_time_us(gpu: Gpu, streams: Streams, issue: Issue, inner: int, repeats: int = 3) -> float:
    """Microseconds of `issue` among `inner` of them in a replayed graph."""
    gpu.synchronize(streams.compute)
    gpu.begin_capture(streams.compute)
    try:
        for _ in range(inner):
            issue()
    finally:
        graph = gpu.end_capture(streams.compute)
    try:
        replay = time_us(gpu, streams.compute, lambda: gpu.replay(graph, streams.compute), repeats=repeats)
    finally:
        gpu.synchronize(streams.compute)
        gpu.drop(graph)
    return replay / inner


def _joined(gpu: Gpu, streams: Streams, inward: Issue, outward: Issue) -> None:
    """Both copies at once, between two points of the compute stream."""
    start = gpu.event()
    gpu.record(start, streams.compute)
    for stream, copy in ((streams.h2d, inward), (streams.d2h, outward)):
        gpu.wait(stream, start)
        copy()
        end = gpu.event()
        gpu.record(end, stream)
        gpu.wait(streams.compute, end)


def _small_copy(gpu: Gpu, streams: Streams, address: int, block: Array) -> None:
    gpu.to_device(address, block[:_SMALL], streams.h2d)


def _host_us(call: Callable[[], None]) -> float:
    """Microseconds of the host for one call that only queues work."""
    call()
    start = time.perf_counter_ns()
    for _ in range(_LAUNCHES):
        call()
    return (time.perf_counter_ns() - start) / 1000 / _LAUNCHES
