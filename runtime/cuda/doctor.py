"""What the GPU gives, for `snplan doctor`: memory, copy speeds, and how much host memory can be pinned."""

from __future__ import annotations

from snplan.runtime.cuda.driver import DriverGpu
from snplan.runtime.cuda.gpu import Array, Gpu
from snplan.runtime.cuda.issue import make_streams
from snplan.runtime.cuda.links import measure_links
from snplan.runtime.cuda.memory import Memory, available_bytes

_PIECE = 256 << 20
# Pinning takes about half a second a GiB: this much shows every small limit.
_MOST = 4 << 30


def examine_gpu(gpu: Gpu | None = None) -> dict[str, int | str]:
    """Facts that need a context: sizes in bytes, speeds in bytes a second, times in microseconds.

    `pinned_bytes` is what could be pinned, at most 4 GiB and a quarter of what the host has. Raises RunError where
    there is no device, or the driver fails.
    """
    gpu = DriverGpu() if gpu is None else gpu
    memory = Memory(gpu)
    with gpu.current():
        free, total = gpu.memory()
        try:
            links = measure_links(gpu, make_streams(gpu), memory)
        finally:
            memory.release()
        facts: dict[str, int | str] = {"device": gpu.title, "architecture": f"sm_{gpu.architecture}"}
        facts |= {"total_bytes": total, "free_bytes": free, "pinned_bytes": pinnable_bytes(gpu), **links}
    return facts


def pinnable_bytes(gpu: Gpu) -> int:
    """Bytes of host memory that the driver pins, up to a bound; the refused call leaves no error behind."""
    available = available_bytes()
    most = _MOST if available is None else min(_MOST, available // 4)
    blocks: list[Array] = []
    try:
        while (len(blocks) + 1) * _PIECE <= most:
            blocks.append(gpu.pin(_PIECE))
    except MemoryError:
        pass
    for block in blocks:
        gpu.unpin(block)
    return len(blocks) * _PIECE
