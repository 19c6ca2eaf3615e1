"""Element types as CUDA C++ knows them (templates/intrinsics.cu.j2 defines the 16-bit ones), and number literals."""

from __future__ import annotations

from collections.abc import Iterable
from math import isinf, isnan

from snplan.errors import RunError
from snplan.ir import DType

C_TYPES = {
    DType.FLOAT64: "double",
    DType.FLOAT32: "float",
    DType.FLOAT16: "half_t",
    DType.BFLOAT16: "bfloat_t",
    DType.INT64: "i64",
    DType.INT32: "int",
    DType.INT16: "short",
    DType.INT8: "signed char",
    DType.UINT64: "u64",
    DType.UINT32: "u32",
    DType.UINT16: "unsigned short",
    DType.UINT8: "unsigned char",
    DType.BOOL: "bool",
}
_WIDE_UNSIGNED = (DType.UINT64, DType.UINT32)
_BY_SIZE = {1: "unsigned char", 2: "unsigned short", 4: "u32", 8: "u64"}
SIZES = {"float": 4, "double": 8, "int": 4, "i64": 8, "u32": 4, "u64": 8}


def c_type(dtype: DType) -> str:
    """The C++ type of an element. Raises RunError (SNP-R040) for types that no kernel computes with."""
    if dtype not in C_TYPES:
        raise RunError("SNP-R040", f"the CUDA backend has no arithmetic for {dtype}; cast it in the model")
    return C_TYPES[dtype]


def carrier(dtype: DType) -> str:
    """An unsigned type of the element's size, for kernels that only move it. Raises RunError (SNP-R040)."""
    if dtype.bits not in (8, 16, 32, 64):
        raise RunError("SNP-R040", f"the CUDA backend cannot move elements of type {dtype}; cast it in the model")
    return _BY_SIZE[dtype.bits // 8]


def item_bytes(dtype: DType) -> int:
    """Bytes of an element."""
    return dtype.bits // 8


def compute_type(dtypes: Iterable[DType]) -> str:
    """The type that arithmetic on `dtypes` runs in: double if any is, else float if any is a float, else an integer."""
    found = tuple(dtypes)
    if DType.FLOAT64 in found:
        return "double"
    if any(dtype.is_float for dtype in found):
        return "float"
    return accumulator(found[0]) if len(set(found)) == 1 else "i64"


def accumulator(dtype: DType) -> str:
    """The type that sums of `dtype` run in. Small integers use 32 bits: what is stored is right modulo their range."""
    if dtype.is_float:
        return "double" if dtype is DType.FLOAT64 else "float"
    if dtype.bits == 64:
        return "u64" if dtype in _WIDE_UNSIGNED else "i64"
    return "u32" if dtype in _WIDE_UNSIGNED else "int"


def literal(value: float | bool, kind: str = "A") -> str:
    """`value` as a constant of the C++ type `kind`, exact in double and in integers of 64 bits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{kind}({_integer(value)})"
    if isnan(value):
        return f"{kind}(not_a_number())"
    if isinf(value):
        return f"{kind}({'-' if value < 0 else ''}infinity())"
    return f"{kind}({value!r})"


def _integer(value: int) -> str:
    if value == -(2**63):
        return "(-9223372036854775807LL - 1)"
    return f"{value}ULL" if value >= 2**63 else f"{value}LL"


def quotient(value: int, divisor: int) -> int:
    """`value / divisor`, rounded up."""
    return -(-value // divisor)
