"""Tensors of an ONNX file: element types, specs, and values of small ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, numpy_helper

from snplan.errors import ModelError
from snplan.frontend import codes
from snplan.ir import DType, Spec, nbytes

Array: TypeAlias = npt.NDArray[Any]

MOST_ELEMENTS = 4096
"""Constants of up to this many elements are values at compile time; larger ones stay tensors."""

MOST_BYTES = 1 << 50
"""A single tensor of more bytes is taken for a mistake."""

MOST_RANK = 64
"""NumPy's own limit: a tensor of more dimensions could be planned and never run."""

DTYPES = {
    TensorProto.FLOAT: DType.FLOAT32,
    TensorProto.DOUBLE: DType.FLOAT64,
    TensorProto.FLOAT16: DType.FLOAT16,
    TensorProto.BFLOAT16: DType.BFLOAT16,
    TensorProto.FLOAT8E4M3FN: DType.FLOAT8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ: DType.FLOAT8E4M3FNUZ,
    TensorProto.FLOAT8E5M2: DType.FLOAT8E5M2,
    TensorProto.FLOAT8E5M2FNUZ: DType.FLOAT8E5M2FNUZ,
    TensorProto.INT64: DType.INT64,
    TensorProto.INT32: DType.INT32,
    TensorProto.INT16: DType.INT16,
    TensorProto.INT8: DType.INT8,
    TensorProto.INT4: DType.INT4,
    TensorProto.UINT64: DType.UINT64,
    TensorProto.UINT32: DType.UINT32,
    TensorProto.UINT16: DType.UINT16,
    TensorProto.UINT8: DType.UINT8,
    TensorProto.UINT4: DType.UINT4,
    TensorProto.BOOL: DType.BOOL,
    TensorProto.COMPLEX64: DType.COMPLEX64,
    TensorProto.COMPLEX128: DType.COMPLEX128,
}
"""Element types by their number in ONNX files."""

_STORED_WIDE = {
    "float_data": frozenset({TensorProto.FLOAT, TensorProto.COMPLEX64}),
    "double_data": frozenset({TensorProto.DOUBLE, TensorProto.COMPLEX128}),
    "int64_data": frozenset({TensorProto.INT64}),
    "uint64_data": frozenset({TensorProto.UINT64, TensorProto.UINT32}),
}


@cache
def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """NumPy's type of `dtype` (ml_dtypes' where NumPy has none)."""
    try:
        return np.dtype(dtype.value)
    except TypeError:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype.value))
        return found


def type_name(elem_type: int) -> str:
    """ONNX's name of an element type, or its number."""
    try:
        return str(TensorProto.DataType.Name(elem_type)).lower()
    except ValueError:
        return f"number {elem_type}"


def checked_spec(dtype: DType, shape: Sequence[int], what: str) -> Spec:
    """The spec; raises ModelError (SNP-I013) for negative dimensions and sizes that are out of all range."""
    if len(shape) > MOST_RANK:
        raise ModelError(codes.SIZE, f"{what} has {len(shape):,} dimensions; a tensor may have at most {MOST_RANK}")
    if any(size < 0 for size in shape):
        raise ModelError(codes.SIZE, f"{what} has a negative dimension: {list(shape)}")
    if nbytes(dtype, [max(size, 1) for size in shape]) > MOST_BYTES:
        raise ModelError(
            codes.SIZE,
            f"{what} of type {dtype} and shape {list(shape)} would take {nbytes(dtype, shape):,} bytes; "
            f"a tensor may take at most {MOST_BYTES:,}",
        )
    return Spec(dtype, tuple(shape))


def tensor_spec(tensor: TensorProto, what: str) -> Spec | None:
    """The spec of a stored tensor; None where its element type (string) is not a number."""
    dtype = DTYPES.get(tensor.data_type)  # type: ignore[call-overload]
    return None if dtype is None else checked_spec(dtype, tensor.dims, what)


def stored_elements(tensor: TensorProto) -> int | None:
    """How many numbers a tensor's typed field holds; None where it has none (raw or external data, or no data)."""
    for field, types in _STORED_WIDE.items():
        if tensor.data_type in types:
            return len(getattr(tensor, field)) or None
    return len(tensor.int32_data) or None


def data_problem(tensor: TensorProto, spec: Spec) -> str | None:
    """What is wrong with the data stored in the file for `tensor`, in words; absent data is not wrong."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return None
    if tensor.raw_data:
        found, wanted, unit = len(tensor.raw_data), spec.bytes, "bytes"
    else:
        count = stored_elements(tensor)
        if count is None:
            return None
        packed = spec.dtype.bits < 8
        double = 2 if spec.dtype in (DType.COMPLEX64, DType.COMPLEX128) else 1
        found, wanted, unit = count, (spec.bytes if packed else spec.elements * double), "elements"
    return None if found == wanted else f"it stores {found:,} {unit}, its shape {list(spec.shape)} needs {wanted:,}"


def has_data(tensor: TensorProto) -> bool:
    """Whether the values are in this message itself."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return False
    return bool(tensor.raw_data) or stored_elements(tensor) is not None or 0 in tensor.dims


def tensor_array(tensor: TensorProto, spec: Spec) -> Array:
    """The values of a tensor whose data is in the message; raises ModelError (SNP-I020) where it does not fit."""
    problem = data_problem(tensor, spec) or (None if has_data(tensor) else "its data is missing")
    if problem is not None:
        raise ModelError(codes.TENSOR_DATA, f"tensor {tensor.name!r}: {problem}")
    if 0 in spec.shape:
        return np.zeros(spec.shape, numpy_dtype(spec.dtype))
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise ModelError(codes.TENSOR_DATA, f"tensor {tensor.name!r} cannot be read: {error}") from None
    return np.asarray(array, numpy_dtype(spec.dtype)).reshape(spec.shape)
