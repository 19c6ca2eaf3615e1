"""The driver calls of tests and benchmarks, on a stand-in for libcuda."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from snplan.codegen.driver import Driver, available
from snplan.errors import RunError


class FakeCuda:
    """Answers as a device of architecture 8.6 with one byte array as its memory; `fails` names a call that fails."""

    def __init__(self, fails: str = "", devices: int = 1) -> None:
        self.fails, self.devices = fails, devices
        self.memory = bytearray(4096)
        self.launches: list[tuple[Any, ...]] = []
        self.elapsed = iter([3.0, 1.0, 2.0])

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            if name == self.fails:
                return 700
            answer = getattr(self, f"do_{name}", None)
            if answer is not None:
                answer(*arguments)
            return 0

        return call

    def do_cuDeviceGetCount(self, count: Any) -> None:
        count._obj.value = self.devices

    def do_cuDeviceGetAttribute(self, value: Any, number: int, device: Any) -> None:
        value._obj.value = {75: 8, 76: 6}[number]

    def do_cuDeviceGetName(self, text: Any, size: int, device: Any) -> None:
        text.value = b"a device"

    def do_cuGetErrorName(self, code: int, text: Any) -> None:
        text._obj.value = b"CUDA_ERROR_ILLEGAL_ADDRESS"

    def do_cuModuleGetFunction(self, function: Any, loaded: Any, name: bytes) -> None:
        function._obj.value = len(name)

    def do_cuMemAlloc_v2(self, address: Any, size: Any) -> None:
        address._obj.value = 512

    def do_cuMemcpyHtoD_v2(self, address: Any, data: bytes, size: Any) -> None:
        self.memory[address.value : address.value + size.value] = data

    def do_cuMemcpyDtoH_v2(self, buffer: Any, address: Any, size: Any) -> None:
        buffer.raw = bytes(self.memory[address.value : address.value + size.value])

    def do_cuLaunchKernel(self, function: Any, *rest: Any) -> None:
        pointers = rest[8]
        first = ctypes.c_uint64.from_address(pointers[0]).value, ctypes.c_float.from_address(pointers[1]).value
        self.launches.append((function.value, rest[:7], first))

    def do_cuEventElapsedTime(self, value: Any, start: Any, end: Any) -> None:
        value._obj.value = next(self.elapsed)


def use(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> FakeCuda:
    """`fake` in libcuda's place."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: fake)
    return fake


def test_why_nothing_can_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert available() == "the CUDA driver (libcuda.so.1) is not there"
    use(monkeypatch, FakeCuda(fails="cuInit"))
    assert available() == "the CUDA driver does not start"
    use(monkeypatch, FakeCuda(devices=0))
    assert available() == "there is no CUDA device"
    use(monkeypatch, FakeCuda())
    assert available() is None


def test_memory_launches_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, FakeCuda())
    driver = Driver()
    assert (driver.arch, driver.name) == ("sm_86", "a device")
    address = driver.allocate(16)
    driver.write(address, b"abcd")
    assert driver.read(address, 4) == b"abcd"
    driver.load(b"cubin", ["kernel_1"])
    driver.launch("kernel_1", (2, 3, 4), (32, 1, 1), (np.uint64(address), np.float32(0.5)), 64)
    assert fake.launches == [(8, (2, 3, 4, 32, 1, 1, 64), (address, 0.5))]
    assert driver.time(lambda: None, 3) == 2.0
    driver.copy(address, address + 16, 8)
    driver.free(address)


def test_a_failed_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeCuda(fails="cuCtxSynchronize"))
    with pytest.raises(RunError, match=r"cuCtxSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS \(700\)") as caught:
        Driver().synchronize()
    assert caught.value.code == "SNP-R051"
