"""The few calls of the CUDA driver that running one module needs, through ctypes: for tests and benchmarks of kernels.

Executors use `snplan.runtime.cuda`. Everything here is synchronous, in the device's primary context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snplan.errors import RunError

_MAJOR, _MINOR = 75, 76


def available() -> str | None:
    """Why no kernel can run here; None where one can."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "the CUDA driver (libcuda.so.1) is not there"
    if cuda.cuInit(0):
        return "the CUDA driver does not start"
    count = ctypes.c_int()
    return None if cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value else "there is no CUDA device"


class Driver:
    """Device 0. Raises RunError (SNP-R051) naming the call that failed."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        self._device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self._functions: dict[str, ctypes.c_void_p] = {}

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, ctypes.byref(text))
            raise RunError("SNP-R051", f"{name} failed: {(text.value or b'?').decode()} ({code})")

    @property
    def arch(self) -> str:
        """The device's architecture, such as "sm_90"."""
        return f"sm_{self._attribute(_MAJOR)}{self._attribute(_MINOR)}"

    @property
    def name(self) -> str:
        """The device's name."""
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, 256, self._device)
        return text.value.decode()

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def load(self, cubin: bytes, names: Sequence[str]) -> None:
        """Load a module and look its functions up."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        for name in names:
            function = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            self._functions[name] = function

    def allocate(self, size: int) -> int:
        """Address of `size` bytes of device memory."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        """Give memory back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address: int, data: bytes) -> None:
        """Copy `data` to the device."""
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes from the device."""
        buffer = ctypes.create_string_buffer(max(size, 1))
        self._call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return buffer.raw[:size]

    def copy(self, target: int, origin: int, size: int) -> None:
        """Queue a copy from device memory to device memory."""
        self._call(
            "cuMemcpyDtoDAsync_v2", ctypes.c_uint64(target), ctypes.c_uint64(origin), ctypes.c_size_t(size), None
        )

    def launch(
        self, function: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any], shared: int = 0
    ) -> None:
        """Queue one launch on the default stream; arguments are NumPy scalars."""
        held = [np.array(value) for value in arguments]
        pointers = (ctypes.c_void_p * len(held))(*(value.ctypes.data for value in held))
        self._call("cuLaunchKernel", self._functions[function], *grid, *block, shared, None, pointers, None)

    def synchronize(self) -> None:
        """Wait for all that was queued."""
        self._call("cuCtxSynchronize")

    def time(self, work: Callable[[], None], repeats: int) -> float:
        """Median milliseconds of `repeats` runs of `work`, each between two events."""
        events = [ctypes.c_void_p() for _ in range(2 * repeats)]
        for event in events:
            self._call("cuEventCreate", ctypes.byref(event), 0)
        for start, end in zip(events[::2], events[1::2], strict=True):
            self._call("cuEventRecord", start, None)
            work()
            self._call("cuEventRecord", end, None)
        self.synchronize()
        times = [self._elapsed(start, end) for start, end in zip(events[::2], events[1::2], strict=True)]
        for event in events:
            self._call("cuEventDestroy_v2", event)
        return sorted(times)[len(times) // 2]

    def _elapsed(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        value = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(value), start, end)
        return value.value
