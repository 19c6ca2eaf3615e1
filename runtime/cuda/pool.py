"""Memory for measuring one op at a time: one block in which each op's operands are laid out afresh and filled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from snplan.codegen.operand import Operand
from snplan.ir import DType
from snplan.runtime.cuda.gpu import Array, Gpu, Stream
from snplan.runtime.dtypes import numpy_dtype
from snplan.units import round_up

# Elements of the pattern that fills floating-point operands, over and over.
_PATTERN = 1 << 20


class Pool:
    """Operands of one op in a block at `address` of `size` bytes; what they leave is workspace."""

    def __init__(self, gpu: Gpu, stream: Stream, address: int, size: int) -> None:
        self._gpu, self._stream, self._address, self._size = gpu, stream, address, size
        self._used = 0
        self._patterns: dict[DType, Array] = {}

    def place(self, operands: Sequence[Operand]) -> list[int] | None:
        """Addresses of operands filled with numbers; None where they do not fit."""
        sizes = [bytes_of(operand) for operand in operands]
        self._used = sum(sizes)
        if self._used > self._size:
            return None
        addresses, at = [], self._address
        for operand, size in zip(operands, sizes, strict=True):
            addresses.append(at if size else 0)
            self._fill(at, operand)
            at += size
        self._gpu.synchronize(self._stream)
        return addresses

    @property
    def workspace(self) -> tuple[int, int]:
        """Address and bytes of what the operands leave."""
        return self._address + self._used, self._size - self._used

    def _fill(self, address: int, operand: Operand) -> None:
        """Normal numbers, and zeros for everything that is not floating point: indices and labels stay in range."""
        size = operand.elements * operand.dtype.bits // 8
        if not size:
            return
        if not operand.dtype.is_float:
            self._gpu.fill(address, size, 0, self._stream)
            return
        pattern = self._pattern(operand.dtype)
        self._gpu.synchronize(self._stream)
        self._gpu.put(address, pattern[:size])
        done = min(size, pattern.nbytes)
        while done < size:
            step = min(done, size - done)
            self._gpu.move(address + done, address, step, self._stream)
            done += step

    def _pattern(self, dtype: DType) -> Array:
        if dtype not in self._patterns:
            numbers = np.random.default_rng(0).standard_normal(_PATTERN)
            self._patterns[dtype] = numbers.astype(numpy_dtype(dtype.value)).view(np.uint8)
        return self._patterns[dtype]


def bytes_of(operand: Operand) -> int:
    """Bytes of an operand's buffer."""
    return round_up(operand.elements * operand.dtype.bits // 8)
