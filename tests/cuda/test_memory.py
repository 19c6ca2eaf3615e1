"""Memory taken once: room that is checked, host memory that is refused, pieces cut between slots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cuda_fake import FakeGpu
from hypothesis import given
from hypothesis import strategies as st
from runtime_support import Draft

import snplan.runtime.cuda.memory as module
from snplan.errors import RunError
from snplan.plan.model import Extent, StepPlan
from snplan.runtime.cuda.memory import (
    Memory,
    available_bytes,
    check_room,
    host_cuts,
    is_resident,
    take_host_arena,
    take_staging,
)

GIB = 1 << 30


def plan(arena: int, reserve: int = 0) -> StepPlan:
    """A plan of a size."""
    import msgspec

    return msgspec.structs.replace(Draft().plan(), arena_bytes=arena, reserve_bytes=reserve)


def test_blocks_are_counted_and_given_back() -> None:
    """Each taking is one block; release forgets all."""
    gpu = FakeGpu()
    memory = Memory(gpu)
    with gpu.current():
        assert memory.device(0, "nothing") == 0
        first = memory.device(1024, "a block")
        assert first % 512 == 0
        memory.pinned(100)
        assert memory.blocks == 2
        memory.release()
    assert not gpu.blocks
    assert not gpu.pinned


def test_room_is_free_memory_now() -> None:
    """A budget that others leave no room for is refused with all numbers, before anything is taken."""
    gpu = FakeGpu(total=16 * GIB, used=5 * GIB)
    with gpu.current():
        assert check_room(gpu, plan(10 * GIB), 0) == 11 * GIB
        with pytest.raises(RunError) as caught:
            check_room(gpu, plan(12 * GIB, 700 << 20), 1 << 20)
    assert caught.value.code == "SNP-R052"
    for text in ("12.00 GiB", "16.00 GiB", "11.00 GiB", "5.00 GiB", "700.00 MiB", "--gpu-mem 11963M"):
        assert text in caught.value.message
    assert caught.value.details["free_bytes"] == 11 * GIB
    assert not gpu.blocks


def test_fragmented_device() -> None:
    """Room in all, but not in one piece, is told as that."""
    gpu = FakeGpu(total=GIB)
    with gpu.current(), pytest.raises(RunError, match="in one piece"):
        Memory(gpu).device(2 * GIB, "the arena")


def test_refused_pinned_memory_is_called_so() -> None:
    """The message is about HOST memory, and never says that the GPU is out of memory."""
    gpu = FakeGpu(pin_limit=512 << 20)
    with gpu.current(), pytest.raises(RunError) as caught:
        Memory(gpu).pinned(12 * GIB)
    assert caught.value.code == "SNP-R053"
    assert "pinned HOST memory" in caught.value.message
    assert "12.00 GiB" in caught.value.message
    assert "CUDA out of memory" not in caught.value.message


def test_large_host_arena_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one large registration fails, pieces that end between slots do not; together they are what was asked."""
    monkeypatch.setattr(module, "_PIECE", 4 << 20)
    slots = [Extent(id=i, offset=i * (1 << 20), bytes=1 << 20) for i in range(12)]
    gpu = FakeGpu(pin_limit=4 << 20)
    memory = Memory(gpu)
    with gpu.current():
        host = take_host_arena(memory, 12 << 20, slots)
    assert [block.nbytes for block in gpu.pinned] == [4 << 20] * 3
    for slot in slots:
        host.bytes_of(slot.offset, slot.bytes)[:] = slot.id
    assert sorted(np.unique(np.concatenate(list(host.pieces.values())))) == list(range(12))


def test_host_without_room_is_refused_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking what is not there would wake the kernel's killer."""
    monkeypatch.setattr(module, "available_bytes", lambda: 2 * GIB)
    gpu = FakeGpu()
    slots = [Extent(id=0, offset=0, bytes=3 * GIB)]
    with gpu.current(), pytest.raises(RunError, match=r"3\.00 GiB.*HOST.*2\.00 GiB") as caught:
        take_host_arena(Memory(gpu), 3 * GIB, slots)
    assert caught.value.code == "SNP-R053"
    assert not gpu.pinned


SLOTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), min_size=1, max_size=12)


@given(rows=SLOTS, piece=st.integers(1, 20))
def test_cuts_hurt_no_slot(rows: list[tuple[int, int]], piece: int) -> None:
    """Every slot lies in one piece; pieces are larger than wanted only where slots that overlap need it."""
    slots = [Extent(id=i, offset=low, bytes=size) for i, (low, size) in enumerate(rows)]
    size = max(slot.offset + slot.bytes for slot in slots)
    cuts = host_cuts(slots, size, piece)
    assert cuts == sorted(set(cuts))
    assert all(0 < cut < size for cut in cuts)
    for slot in slots:
        assert not any(slot.offset < cut < slot.offset + slot.bytes for cut in cuts)


def test_no_host_arena() -> None:
    """A plan that moves nothing pins nothing."""
    gpu = FakeGpu()
    assert take_host_arena(Memory(gpu), 0, []).pieces == {}


def test_staging_alternates() -> None:
    """Two blocks for each input, one after the other."""
    gpu = FakeGpu()
    with gpu.current():
        (first, empty) = take_staging(Memory(gpu), [1000, 0])
    assert first.block(0) is first.block(2)
    assert first.block(0) is not first.block(1)
    assert empty.block(0).nbytes > 0


def test_residency() -> None:
    """A driver that spills shows in the free memory; a small arena cannot tell."""
    assert is_resident(16 * GIB, 4 * GIB, 12 * GIB)
    assert not is_resident(16 * GIB, 10 * GIB, 12 * GIB)
    assert is_resident(16 * GIB, 16 * GIB, 1 << 20)


def test_available_bytes(tmp_path: Path) -> None:
    """From the kernel's own words."""
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:       100 kB\nMemAvailable:    42 kB\n")
    assert available_bytes(path) == 42 * 1024
    assert available_bytes(tmp_path / "missing") is None
    path.write_text("MemTotal: 100 kB\n")
    assert available_bytes(path) is None
