"""Arrays that are in a GPU's memory already: `__cuda_array_interface__`, and DLPack on a CUDA device."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from snplan.runtime.dtypes import numpy_dtype

# kDLCUDA, and kDLCUDAManaged.
_CUDA_DEVICES = (2, 13)
# DLPack's type codes: signed, unsigned, float, bfloat16, bool.
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
# The driver's word for the default stream that all others wait for.
_DEFAULT_STREAM = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceArray:
    """A tensor at `address`; `strides` are in elements, one of none is row-major.

    Work on `stream`, a driver's handle, writes it (None: nothing has to be waited for). `owner` keeps the memory.
    """

    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    stream: int | None
    owner: Any

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize


def device_array(value: Any) -> DeviceArray | None:
    """`value` as an array in device memory; None where it says nothing of being one."""
    described = _interface(value)
    if described is not None:
        return _from_interface(value, described)
    device = getattr(value, "__dlpack_device__", None)
    if device is not None and int(device()[0]) in _CUDA_DEVICES:
        return _from_dlpack(value)
    return None


def _interface(value: Any) -> dict[str, Any] | None:
    """The description; objects that cannot give one (tensors of other types) raise one of these errors."""
    try:
        found = getattr(value, "__cuda_array_interface__", None)
    except (TypeError, RuntimeError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _from_interface(value: Any, described: dict[str, Any]) -> DeviceArray:
    """Version 3 names a stream or says that there is none; before it the default stream was meant."""
    dtype = np.dtype(described["typestr"])
    shape = tuple(int(n) for n in described["shape"])
    strides = described.get("strides")
    return DeviceArray(
        address=int(described["data"][0] or 0),
        dtype=dtype,
        shape=shape,
        strides=_row_major(shape) if strides is None else tuple(int(n) // dtype.itemsize for n in strides),
        stream=described.get("stream") if described.get("version", 2) >= 3 else _DEFAULT_STREAM,
        owner=value,
    )


class _DLTensor(ctypes.Structure):
    """The start of a DLManagedTensor."""

    _fields_: ClassVar[list[tuple[str, Any]]] = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def _from_dlpack(value: Any) -> DeviceArray:
    """The tensor behind a capsule, which keeps it alive and frees it; the default stream waits for its producer."""
    capsule = value.__dlpack__(stream=_DEFAULT_STREAM)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = ctypes.cast(pointer(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    return DeviceArray(
        address=(tensor.data or 0) + tensor.byte_offset,
        dtype=_dlpack_dtype(tensor.code, tensor.bits),
        shape=shape,
        strides=tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else _row_major(shape),
        stream=_DEFAULT_STREAM,
        owner=(capsule, value),
    )


def _dlpack_dtype(code: int, bits: int) -> np.dtype[Any]:
    """NumPy's type; one that plans do not have becomes bytes of that size, which fit no tensor."""
    name = _CODES.get(code)
    if name is None:
        return np.dtype(f"V{bits // 8}")
    return numpy_dtype("bool" if name == "bool" else f"{name}{bits}")


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
