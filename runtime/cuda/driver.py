"""The device through PyCUDA and the driver's bindings: the primary context, shared with whoever else uses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from snplan.codegen.launch import Launch
from snplan.errors import RunError
from snplan.runtime.cuda.gpu import Array, Issue, Stream
from snplan.runtime.cuda.packages import cuda_driver, pycuda_driver

# A kernel may use this much shared memory without asking.
_SHARED_DEFAULT = 48 << 10


def driver_version(path: Path = Path("/sys/module/nvidia/version")) -> str | None:
    """The kernel driver's version; None where the system does not show it."""
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


class DriverGpu:
    """Device `ordinal`. Its primary context is retained, and current only inside `current()`."""

    def __init__(self, ordinal: int = 0) -> None:
        """Raises RunError: SNP-R050 where packages are missing, SNP-R051 where there is no usable device."""
        self._cu = pycuda_driver()
        self._bindings = cuda_driver()
        self._allocations: dict[int, Any] = {}
        self._functions: dict[tuple[int, str], Any] = {}
        self._capturing = False
        try:
            self._cu.init()
            self._device = self._cu.Device(ordinal)
            self._context = self._device.retain_primary_context()
        except self._cu.Error as error:
            raise RunError("SNP-R051", f"CUDA device {ordinal} cannot be used: {error}; see snplan doctor") from error
        major, minor = self._device.compute_capability()
        self.architecture = 10 * major + minor
        self.title = str(self._device.name())

    @contextmanager
    def current(self) -> Iterator[None]:
        """The context, current; the one before it comes back at the end."""
        self._context.push()
        try:
            yield
        except self._cu.Error as error:
            raise RunError("SNP-R051", f"the CUDA driver failed on {self.title}: {error}") from error
        finally:
            self._cu.Context.pop()

    def versions(self) -> dict[str, str]:
        """Versions of the driver (where the system says it), of the newest CUDA that it runs, and of PyCUDA's CUDA."""
        newest = int(self._cu.get_driver_version())
        found = {"cuda-driver": f"{newest // 1000}.{newest % 1000 // 10}"}
        found["cuda"] = ".".join(map(str, self._cu.get_version()))
        driver = driver_version()
        return found if driver is None else {**found, "driver": driver}

    def memory(self) -> tuple[int, int]:
        """Bytes free now, and bytes in all."""
        free, total = self._cu.mem_get_info()
        return int(free), int(total)

    def allocate(self, size: int) -> int:
        """Address of `size` fresh bytes. Raises MemoryError."""
        try:
            allocation = self._cu.mem_alloc(size)
        except self._cu.MemoryError as error:
            raise MemoryError(str(error)) from error
        self._allocations[int(allocation)] = allocation
        return int(allocation)

    def release(self, address: int) -> None:
        """Give back what `allocate` returned."""
        self._allocations.pop(address).free()

    def pin(self, size: int) -> Array:
        """Page-locked bytes. Raises MemoryError; the error that the refused call left is cleared by the driver."""
        try:
            block: Array = self._cu.pagelocked_empty(size, np.uint8)
        except (self._cu.MemoryError, self._cu.RuntimeError, self._cu.LogicError) as error:
            raise MemoryError(str(error)) from error
        return block

    def unpin(self, block: Array) -> None:
        """Give a page-locked block back now rather than when it is collected."""
        base: Any = block
        while not hasattr(base, "free"):
            base = base.base
        base.free()

    def stream(self) -> Stream:
        """A new stream; PyCUDA's own flag keeps it apart from the default stream."""
        stream: Stream = self._cu.Stream(self._bindings.CUstream_flags.CU_STREAM_NON_BLOCKING.value)
        return stream

    def event(self, *, timing: bool = False) -> Any:
        """A new event."""
        flags = self._cu.event_flags
        return self._cu.Event(flags.DEFAULT if timing else flags.DISABLE_TIMING)

    def record(self, event: Any, stream: Stream) -> None:
        """Record on the stream."""
        event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        """Make the stream wait."""
        stream.wait_for_event(event)

    def follow(self, stream: Stream, handle: int) -> None:
        """Through an event of the driver's: PyCUDA has no objects for streams that it did not make."""
        names = self._bindings
        (event,) = self._checked(names.cuEventCreate(names.CUevent_flags.CU_EVENT_DISABLE_TIMING), "event", "SNP-R051")
        try:
            self._checked(names.cuEventRecord(event, names.CUstream(handle)), "record", "SNP-R051")
            self._checked(names.cuStreamWaitEvent(names.CUstream(stream.handle), event, 0), "wait", "SNP-R051")
        finally:
            names.cuEventDestroy(event)

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Microseconds between two timing events."""
        end.synchronize()
        return float(start.time_till(end)) * 1000

    def synchronize(self, stream: Any) -> None:
        """Wait until the stream is empty."""
        stream.synchronize()

    def to_device(self, address: int, block: Array, stream: Stream) -> None:
        """Copy in, asynchronously."""
        self._cu.memcpy_htod_async(address, block, stream)

    def to_host(self, block: Array, address: int, stream: Stream) -> None:
        """Copy out, asynchronously."""
        self._cu.memcpy_dtoh_async(block, address, stream)

    def put(self, address: int, block: Array) -> None:
        """Copy in. Small copies return before they are done, and other streams do not wait for them: so wait here."""
        self._cu.memcpy_htod(address, block)
        self._cu.Context.synchronize()

    def get(self, block: Array, address: int) -> None:
        """Copy out."""
        self._cu.memcpy_dtoh(block, address)

    def move(self, target: int, source: int, size: int, stream: Stream) -> None:
        """Copy on the device, asynchronously."""
        self._cu.memcpy_dtod_async(target, source, size, stream)

    def fill(self, address: int, size: int, value: int, stream: Stream) -> None:
        """Set bytes, asynchronously."""
        self._cu.memset_d8_async(address, value, size, stream)

    def load(self, binary: bytes, what: str) -> Any:
        """A module. Raises RunError (SNP-R056) saying which architecture was expected."""
        try:
            return self._cu.module_from_buffer(binary)
        except self._cu.Error as error:
            message = (
                f"{what} cannot be loaded on {self.title} (sm_{self.architecture}, driver "
                f"{self._cu.get_driver_version()}): {error}; it was built for another GPU or by a newer toolkit"
            )
            raise RunError("SNP-R056", message, {"architecture": self.architecture}) from error

    def launcher(self, module: Any, launch: Launch, values: Sequence[Any], stream: Stream) -> Issue:
        """A call that launches with these values."""
        function = self._function(module, launch)
        types = [value.dtype for value in values]
        function.prepare(types)
        arguments = tuple(value.item() for value in values)

        def issue() -> None:
            function.prepared_async_call(launch.grid, launch.block, stream, *arguments, shared_size=launch.shared)

        return issue

    def _function(self, module: Any, launch: Launch) -> Any:
        key = id(module), launch.function
        if key not in self._functions:
            self._functions[key] = module.get_function(launch.function)
        function = self._functions[key]
        if launch.shared > _SHARED_DEFAULT:
            function.set_attribute(self._cu.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared)
        return function

    def flag(self) -> Any:
        """An event of the driver's: PyCUDA's cannot become nodes of a graph."""
        names = self._bindings
        return self._checked(names.cuEventCreate(names.CUevent_flags.CU_EVENT_DISABLE_TIMING), "event", "SNP-R051")[0]

    def raise_flag(self, flag: Any, stream: Stream) -> None:
        """Record; in a capture as a node, whose event others than the graph may wait for."""
        names = self._bindings
        kinds = names.CUevent_record_flags
        kind = kinds.CU_EVENT_RECORD_EXTERNAL if self._capturing else kinds.CU_EVENT_RECORD_DEFAULT
        done = names.cuEventRecordWithFlags(flag, names.CUstream(stream.handle), kind.value)
        self._checked(done, "record", "SNP-R058" if self._capturing else "SNP-R051")

    def wait_flag(self, stream: Stream, flag: Any) -> None:
        """Make the stream wait."""
        names = self._bindings
        self._checked(names.cuStreamWaitEvent(names.CUstream(stream.handle), flag, 0), "wait", "SNP-R051")

    def drop_flag(self, flag: Any) -> None:
        """Destroy the event."""
        self._bindings.cuEventDestroy(flag)

    def begin_capture(self, stream: Stream) -> None:
        """Start recording. Thread-local: what other threads do meanwhile is theirs."""
        mode = self._bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._checked(self._bindings.cuStreamBeginCapture(self._bindings.CUstream(stream.handle), mode), "begin")
        self._capturing = True

    def end_capture(self, stream: Stream) -> Any:
        """The recording, instantiated. The graph itself is dropped: only the executable form is replayed."""
        self._capturing = False
        (graph,) = self._checked(self._bindings.cuStreamEndCapture(self._bindings.CUstream(stream.handle)), "end")
        try:
            (executable,) = self._checked(self._bindings.cuGraphInstantiate(graph, 0), "instantiate")
        finally:
            self._bindings.cuGraphDestroy(graph)
        return executable

    def replay(self, graph: Any, stream: Stream) -> None:
        """Launch the graph."""
        self._checked(self._bindings.cuGraphLaunch(graph, self._bindings.CUstream(stream.handle)), "launch")

    def drop(self, graph: Any) -> None:
        """Destroy the graph."""
        self._bindings.cuGraphExecDestroy(graph)

    def _checked(self, result: tuple[Any, ...], what: str, code: str = "SNP-R058") -> tuple[Any, ...]:
        status, *values = result
        if int(status) != 0:
            name = getattr(status, "name", str(status))
            failed = "the step could not be captured as a CUDA graph" if code == "SNP-R058" else "the driver failed"
            raise RunError(code, f"{failed} ({what}): {name}")
        return tuple(values)
