"""Memory taken once: one byte array, and views of it at the offsets that the plan says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from snplan.errors import RunError
from snplan.plan.model import Extent
from snplan.units import GRANULE, format_bytes

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# Every floating-point type reads these bytes as NaN.
POISON = 0xFF


class Arena:
    """One block of bytes whose base is aligned to the granule; buffers (or slots) are views of it."""

    def __init__(self, size: int, what: str) -> None:
        """Take `size` bytes. Raises RunError (SNP-R009) where the machine does not give them."""
        try:
            block = np.empty(size + GRANULE, np.uint8)
        except MemoryError:
            message = (
                f"the {what} of {format_bytes(size)} does not fit this machine's memory; compile for a smaller budget"
            )
            raise RunError("SNP-R009", message, {"bytes": size}) from None
        start = -block.ctypes.data % GRANULE
        self.memory: Array = block[start : start + size]
        self.allocations = 1

    def view(self, extent: Extent, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
        """The first bytes of `extent` as an array; no copy."""
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return self.memory[extent.offset : extent.offset + size].view(dtype).reshape(tuple(shape))

    def bytes_of(self, extent: Extent) -> Array:
        """All bytes of `extent`; no copy."""
        return self.memory[extent.offset : extent.offset + extent.bytes]

    def poison(self) -> None:
        """Fill every byte with the NaN pattern."""
        self.memory.fill(POISON)
