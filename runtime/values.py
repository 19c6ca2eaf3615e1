"""Arrays from outside, checked against the tensors that they are for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from snplan.errors import RunError
from snplan.ir import Role
from snplan.plan.index import PlanIndex
from snplan.plan.model import PlanTensor
from snplan.runtime.calls import layout
from snplan.runtime.device_array import DeviceArray, device_array

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

Complaint: TypeAlias = Callable[[str], RunError]


def sources(index: PlanIndex, *, inputs: bool) -> list[PlanTensor]:
    """The tensors that are resident when the step starts: those that a user feeds, or all others."""
    tensors = [index.tensors[place.tensor] for place in index.plan.resident]
    return [tensor for tensor in tensors if (tensor.role == Role.INPUT) is inputs]


def start_values(index: PlanIndex, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Values of all that persists: from `weights` by name, zeros for optimiser state that is not among them.

    Raises RunError (SNP-R001) naming a tensor that is missing or of another type or shape.
    """
    values = {}
    for tensor in sources(index, inputs=False):
        if tensor.name not in weights and tensor.role == Role.OPTIMIZER:
            dtype, shape = layout(tensor)
            values[tensor.name] = np.zeros(shape, dtype)
        else:
            values[tensor.name] = checked(tensor, weights.get(tensor.name), weight_error)
    return values


def input_values(index: PlanIndex, inputs: Mapping[str, Any]) -> dict[str, Array | DeviceArray]:
    """One array for each input tensor, where it is: in host memory, or on a device.

    Raises RunError (SNP-R002) naming one that is missing, unknown or unfit.
    """
    wanted = sources(index, inputs=True)
    unknown = sorted(set(inputs) - {tensor.name for tensor in wanted})
    if unknown:
        names = ", ".join(tensor.name for tensor in wanted) or "none"
        raise _input_error(f"{unknown[0]} is not an input of the plan's model; its inputs are {names}")
    return {tensor.name: _input_value(tensor, inputs.get(tensor.name)) for tensor in wanted}


def host_inputs(index: PlanIndex, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """The same of inputs that are all in host memory."""
    return {name: value for name, value in input_values(index, inputs).items() if not isinstance(value, DeviceArray)}


def _input_value(tensor: PlanTensor, value: Any) -> Array | DeviceArray:
    found = device_array(value)
    if found is None:
        return checked(tensor, value, _input_error)
    dtype, shape = layout(tensor)
    if found.dtype != dtype or found.shape != shape:
        raise _input_error(
            f"{tensor.role} {tensor.name} must be {dtype}{list(shape)}; on the device it is "
            f"{found.dtype}{list(found.shape)}, and is not converted there"
        )
    return found


def checked(tensor: PlanTensor, value: Any, complain: Complaint) -> Array:
    """`value` as an array of the tensor's type and shape; only its type may change, and only without loss."""
    dtype, shape = layout(tensor)
    if value is None:
        raise complain(f"{tensor.role} {tensor.name} ({dtype}{list(shape)}) is missing")
    array = as_array(value)
    if array.shape != shape:
        raise complain(
            f"{tensor.role} {tensor.name} must be {dtype}{list(shape)}, it is {array.dtype}{list(array.shape)}"
        )
    return converted(tensor, array, complain)


def as_array(value: Any) -> Array:
    """`value` as an array: arrays, what NumPy converts, and host memory offered through DLPack only (no copy)."""
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def converted(tensor: PlanTensor, array: Array, complain: Complaint) -> Array:
    """`array` in the tensor's type, where no value changes: wider types, and integers that fit."""
    dtype = layout(tensor)[0]
    if array.dtype == dtype:
        return array
    result = array.astype(dtype) if _convertible(array, dtype) else None
    if result is None or (array.dtype.kind in "iu" and not np.array_equal(result, array)):
        raise complain(
            f"{tensor.role} {tensor.name} is {array.dtype} and may lose values as {dtype}; convert it to {dtype} first"
        )
    return result


def _convertible(array: Array, dtype: np.dtype[Any]) -> bool:
    integers = array.dtype.kind in "iu" and dtype.kind in "iu"
    return integers or np.can_cast(array.dtype, dtype, "safe")


def weight_error(message: str) -> RunError:
    """The error of a weight that is missing or does not fit."""
    return RunError("SNP-R001", f"{message}; the plan needs the weights of the model that it was made from")


def _input_error(message: str) -> RunError:
    return RunError("SNP-R002", message)
