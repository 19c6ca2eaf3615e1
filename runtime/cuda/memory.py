"""All memory of a run, taken before the first step: one device arena, one pinned host arena, and the executor's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from snplan.errors import RunError
from snplan.plan.model import Extent, StepPlan
from snplan.runtime.cuda.gpu import Array, Gpu
from snplan.units import GRANULE, format_bytes, round_up

# A pinned host arena is registered in pieces of about this size: drivers and containers refuse larger ones at times.
_PIECE = 4 << 30
# The device gave this part less than was asked for: the rest is elsewhere (Windows drivers put it into host memory).
_RESIDENT_SHARE = 0.9
# Small takings come out of what the driver holds already, and say nothing.
_RESIDENT_FROM = 256 << 20


class Memory:
    """Takes memory, counts the blocks, and gives all back at once."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._addresses: list[int] = []
        self._pinned: list[Array] = []
        self.blocks = 0

    def device(self, size: int, what: str) -> int:
        """Address of `size` bytes of the device, 0 for none. Raises RunError (SNP-R052)."""
        if size == 0:
            return 0
        try:
            address = self._gpu.allocate(size)
        except MemoryError as error:
            free, total = self._gpu.memory()
            message = (
                f"{what} of {format_bytes(size)} cannot be taken in one piece: {format_bytes(free)} of "
                f"{format_bytes(total)} are free; lower --gpu-mem, or stop other programs on the device"
            )
            raise RunError("SNP-R052", message, {"bytes": size, "free_bytes": free, "total_bytes": total}) from error
        if address % GRANULE:
            self._gpu.release(address)
            raise RunError("SNP-R052", f"{what} is at {address:#x}, which is not a multiple of {GRANULE}: a driver bug")
        self._addresses.append(address)
        self.blocks += 1
        return address

    def pinned(self, size: int) -> Array:
        """`size` bytes of page-locked host memory. Raises RunError (SNP-R053)."""
        try:
            block = self._gpu.pin(size)
        except MemoryError as error:
            available = available_bytes()
            known = "an unknown amount" if available is None else format_bytes(available)
            message = (
                f"{format_bytes(size)} of pinned HOST memory were refused ({known} of host memory is available); "
                "raise the limit of locked memory (snplan doctor shows it), or compile with a smaller --host-mem"
            )
            raise RunError("SNP-R053", message, {"bytes": size, "available_bytes": available}) from error
        self._pinned.append(block)
        self.blocks += 1
        return block

    def release(self) -> None:
        """Give everything back, the latest first."""
        while self._pinned:
            self._gpu.unpin(self._pinned.pop())
        while self._addresses:
            self._gpu.release(self._addresses.pop())


def check_room(gpu: Gpu, plan: StepPlan, extra: int) -> int:
    """Bytes free on the device now, which hold the arena and `extra` bytes of the executor.

    Raises RunError (SNP-R052) where they do not, with what the device has and what others hold.
    """
    free, total = gpu.memory()
    wanted = plan.arena_bytes + extra
    if wanted <= free:
        return free
    message = (
        f"the plan's arena of {format_bytes(plan.arena_bytes)} does not fit {gpu.title}: of {format_bytes(total)} only "
        f"{format_bytes(free)} are free; {format_bytes(total - free)} are held by other programs and by this one's "
        f"CUDA context (planned for it: {format_bytes(plan.reserve_bytes)}); compile for --gpu-mem "
        f"{max(0, free + plan.reserve_bytes - extra) >> 20}M or less, or stop the other programs"
    )
    raise RunError("SNP-R052", message, {"bytes": wanted, "free_bytes": free, "total_bytes": total})


def is_resident(free_before: int, free_after: int, size: int) -> bool:
    """Whether the device's own memory went down by about what was taken."""
    return size < _RESIDENT_FROM or free_before - free_after >= size * _RESIDENT_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class HostArena:
    """The pinned host arena: pieces of it by the offset at which each starts, cut between slots."""

    pieces: Mapping[int, Array]

    def bytes_of(self, offset: int, size: int) -> Array:
        """`size` bytes at `offset`; no copy."""
        start = max(piece for piece in self.pieces if piece <= offset)
        return self.pieces[start][offset - start : offset - start + size]


def take_host_arena(memory: Memory, size: int, slots: Iterable[Extent]) -> HostArena:
    """A pinned arena of `size` bytes. Raises RunError (SNP-R053) where the host does not have or give them."""
    if size == 0:
        return HostArena(pieces={})
    cuts = [*host_cuts(slots, size, _PIECE), size]
    pieces = {}
    for start, end in zip([0, *cuts[:-1]], cuts, strict=True):
        _check_host(end - start, size)
        pieces[start] = memory.pinned(end - start)
    return HostArena(pieces=pieces)


def host_cuts(slots: Iterable[Extent], size: int, piece: int) -> list[int]:
    """Offsets between slots at which an arena may be cut so that no piece is larger than needed above `piece` bytes."""
    cuts, start = [], 0
    for low, high in _runs(slots):
        if high - start > piece and low > start:
            cuts.append(low)
            start = low
    return [cut for cut in cuts if cut < size]


def _runs(slots: Iterable[Extent]) -> Iterator[tuple[int, int]]:
    """Extents that overlap, merged: (low, high) in ascending order."""
    low = high = 0
    for slot in sorted(slots, key=lambda s: (s.offset, s.bytes)):
        if slot.offset >= high:
            if high > low:
                yield low, high
            low = slot.offset
        high = max(high, slot.offset + slot.bytes)
    if high > low:
        yield low, high


def _check_host(size: int, whole: int) -> None:
    """Raises RunError (SNP-R053) where the host has not even `size` bytes to spare: it would end in its OOM killer."""
    available = available_bytes()
    if available is not None and size > available:
        message = (
            f"the plan keeps {format_bytes(whole)} in pinned HOST memory, of which the next {format_bytes(size)} are "
            f"not there: {format_bytes(available)} are available; compile with a smaller --host-mem"
        )
        raise RunError("SNP-R053", message, {"bytes": whole, "available_bytes": available})


def available_bytes(path: Path = Path("/proc/meminfo")) -> int | None:
    """Host memory that can be taken without swapping; None where the system does not say."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Two pinned blocks for one input: one is copied to the device while the next step's values go into the other."""

    blocks: tuple[Array, Array]

    def block(self, step: int) -> Array:
        """The block of a step."""
        return self.blocks[step % 2]


def take_staging(memory: Memory, sizes: Sequence[int]) -> list[Staging]:
    """Staging for inputs of these bytes."""
    return [
        Staging(blocks=(memory.pinned(round_up(max(size, 1))), memory.pinned(round_up(max(size, 1))))) for size in sizes
    ]
