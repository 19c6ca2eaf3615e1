"""Element types and the exact number of bytes that a tensor of them takes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import prod


class DType(StrEnum):
    """Element type; the value is NumPy's name (ml_dtypes' where NumPy has none)."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8E4M3FN = "float8_e4m3fn"
    FLOAT8E4M3FNUZ = "float8_e4m3fnuz"
    FLOAT8E5M2 = "float8_e5m2"
    FLOAT8E5M2FNUZ = "float8_e5m2fnuz"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    INT4 = "int4"
    UINT64 = "uint64"
    UINT32 = "uint32"
    UINT16 = "uint16"
    UINT8 = "uint8"
    UINT4 = "uint4"
    BOOL = "bool"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"

    @property
    def bits(self) -> int:
        """Bits an element takes when packed."""
        return _BITS[self]

    @property
    def is_float(self) -> bool:
        """Whether gradients can flow through tensors of this type."""
        return self in _FLOATS


_FLOATS = frozenset({DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})
_BITS = {
    DType.COMPLEX128: 128,
    **dict.fromkeys((DType.FLOAT64, DType.INT64, DType.UINT64, DType.COMPLEX64), 64),
    **dict.fromkeys((DType.FLOAT32, DType.INT32, DType.UINT32), 32),
    **dict.fromkeys((DType.FLOAT16, DType.BFLOAT16, DType.INT16, DType.UINT16), 16),
    **dict.fromkeys((DType.INT8, DType.UINT8, DType.BOOL), 8),
    **dict.fromkeys((DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ), 8),
    **dict.fromkeys((DType.INT4, DType.UINT4), 4),
}


def elements(shape: Sequence[int]) -> int:
    """Number of elements of a tensor of `shape` (1 for a scalar)."""
    return prod(shape)


def nbytes(dtype: DType, shape: Sequence[int]) -> int:
    """Exact bytes of a tensor: packed (two 4-bit elements a byte), not rounded to the granule."""
    return -(-elements(shape) * dtype.bits // 8)
