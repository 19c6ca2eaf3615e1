"""What the doctor asks of a GPU, on a stand-in."""

from __future__ import annotations

import pytest
from cuda_fake import FakeGpu

import snplan.runtime.cuda.doctor as module
import snplan.runtime.cuda.links as links
from snplan.cli.doctor import doctor_lines
from snplan.runtime.cuda.doctor import examine_gpu, pinnable_bytes


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, and a host of 64 of them."""
    monkeypatch.setattr(module, "_PIECE", 1 << 16)
    monkeypatch.setattr(module, "available_bytes", lambda: 1 << 22)
    monkeypatch.setattr(links, "_LARGE", 1 << 16)
    monkeypatch.setattr(links, "load_kernels", lambda gpu, sources: object())


def test_facts() -> None:
    """Memory as the driver says, speeds as measured; everything is given back."""
    gpu = FakeGpu(total=1 << 30, used=1 << 20)
    found = examine_gpu(gpu)
    assert found["total_bytes"] == 1 << 30
    assert found["free_bytes"] == (1 << 30) - (1 << 20)
    assert found["pinned_bytes"] == 1 << 20
    assert found["architecture"] == "sm_90"
    assert not gpu.blocks
    assert not gpu.pinned
    assert gpu.depth == 0


def test_small_pinned_limit() -> None:
    """A limit is found by asking, and what was pinned until then is given back."""
    gpu = FakeGpu()
    pin = gpu.pin
    taken: list[int] = []

    def limited(size: int) -> object:
        if len(taken) == 3:
            raise MemoryError("cuMemHostAlloc failed")
        taken.append(size)
        return pin(size)

    gpu.pin = limited  # type: ignore[method-assign, assignment]
    with gpu.current():
        assert pinnable_bytes(gpu) == 3 << 16
    assert not gpu.pinned


def test_for_people() -> None:
    """Units that people read."""
    lines = doctor_lines({"measured": {"h2d_bytes_per_s": 55_500_000_000, "launch_us": 7, "free_bytes": 1 << 30}})
    assert lines[1].split() == ["h2d_bytes_per_s", "55.5", "GB/s"]
    assert lines[2].split() == ["launch_us", "7", "us"]
    assert "1.00 GiB" in lines[3]
