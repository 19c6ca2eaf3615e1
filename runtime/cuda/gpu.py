"""What the backend asks of a CUDA device, small enough that tests can stand in for one.

Addresses are integers. Everything but `current` is called inside `with gpu.current()`. Sizes of zero never get here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np

from snplan.codegen.launch import Launch

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
# Puts work on a stream and returns at once.
Issue: TypeAlias = Callable[[], None]


class Stream(Protocol):
    """A queue of work; `handle` is the driver's."""

    @property
    def handle(self) -> int:
        """The driver's CUstream as an integer."""


class Gpu(Protocol):
    """One device, its context, and the calls that the backend makes."""

    @property
    def title(self) -> str:
        """The device's name, for people."""

    @property
    def architecture(self) -> int:
        """Compute capability as one number: 90 for 9.0."""

    def versions(self) -> dict[str, str]:
        """Versions of the driver and of CUDA."""

    def current(self) -> AbstractContextManager[None]:
        """Make the device's primary context current, and the previous one again at the end, whatever happens.

        Failures of the driver leave the block as RunError (SNP-R051).
        """

    def memory(self) -> tuple[int, int]:
        """Bytes free now, and bytes in all."""

    def allocate(self, size: int) -> int:
        """Address of `size` fresh bytes. Raises MemoryError."""

    def release(self, address: int) -> None:
        """Give back what `allocate` returned."""

    def pin(self, size: int) -> Array:
        """`size` bytes of page-locked host memory. Raises MemoryError."""

    def unpin(self, block: Array) -> None:
        """Give back what `pin` returned; the array must not be used any more."""

    def stream(self) -> Stream:
        """A new stream that does not wait for the default stream."""

    def event(self, *, timing: bool = False) -> Any:
        """A new event."""

    def record(self, event: Any, stream: Stream) -> None:
        """The event happens when all that is on the stream now is done."""

    def wait(self, stream: Stream, event: Any) -> None:
        """What comes on the stream from now on waits for the event as last recorded."""

    def follow(self, stream: Stream, handle: int) -> None:
        """What comes on the stream from now on waits for what is now on another program's stream, by its handle."""

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Microseconds between two timing events; waits for the second."""

    def synchronize(self, stream: Stream) -> None:
        """Wait until the stream is empty."""

    def to_device(self, address: int, block: Array, stream: Stream) -> None:
        """Copy a page-locked block to the device, asynchronously."""

    def to_host(self, block: Array, address: int, stream: Stream) -> None:
        """Copy from the device to a page-locked block, asynchronously."""

    def put(self, address: int, block: Array) -> None:
        """Copy any contiguous array to the device and wait."""

    def get(self, block: Array, address: int) -> None:
        """Copy from the device into any contiguous array and wait."""

    def move(self, target: int, source: int, size: int, stream: Stream) -> None:
        """Copy on the device, asynchronously."""

    def fill(self, address: int, size: int, value: int, stream: Stream) -> None:
        """Set `size` bytes to `value`, asynchronously."""

    def load(self, binary: bytes, what: str) -> Any:
        """A module of compiled kernels. Raises RunError (SNP-R056) where it is for another architecture."""

    def launcher(self, module: Any, launch: Launch, values: Sequence[Any], stream: Stream) -> Issue:
        """A call that puts one kernel launch with these argument values on the stream."""

    def flag(self) -> Any:
        """A new event that is raised on streams of a recording, and waited for outside of it."""

    def raise_flag(self, flag: Any, stream: Stream) -> None:
        """The flag is up when all that is on the stream now is done; a recording raises it anew in each replay."""

    def wait_flag(self, stream: Stream, flag: Any) -> None:
        """What comes on the stream from now on waits for the flag as last raised, or replayed."""

    def drop_flag(self, flag: Any) -> None:
        """Give a flag back."""

    def begin_capture(self, stream: Stream) -> None:
        """From now on work on the stream, and on streams that wait for it, is recorded instead of done."""

    def end_capture(self, stream: Stream) -> Any:
        """What was recorded, ready to be replayed. Raises RunError (SNP-R058)."""

    def replay(self, graph: Any, stream: Stream) -> None:
        """Put recorded work on the stream."""

    def drop(self, graph: Any) -> None:
        """Give a recording back."""
