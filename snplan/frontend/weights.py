"""Values of a model's weights, read when a run needs them: the only place that opens external data."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from onnx import NodeProto, TensorProto

from snplan.errors import ModelError
from snplan.frontend import codes
from snplan.frontend.external import locate
from snplan.frontend.load import LoadedModel
from snplan.frontend.structure import bodies, constant_tensor
from snplan.frontend.tensors import Array, data_problem, has_data, numpy_dtype, tensor_array, tensor_spec
from snplan.ir import DType, Spec

Reader: TypeAlias = Callable[[], Array]


def read_weights(loaded: LoadedModel, names: Iterable[str]) -> dict[str, Array]:
    """Arrays by tensor name: of initializers, of ConstantOfShape nodes that stand for weights, of Constant nodes.

    Raises ModelError: SNP-I021 for a name without values, SNP-I020 for data that does not fit its tensor, and
    SNP-I006 to SNP-I008 for external data that may not be read or is not all there.
    """
    readers = dict(_readers(loaded))
    found: dict[str, Array] = {}
    for name in names:
        reader = readers.get(name)
        if reader is None:
            raise ModelError(codes.WEIGHTS, f"{loaded.name} has no values for tensor {name!r}; is it the plan's model?")
        found[name] = reader()
    return found


def read_tensor(loaded: LoadedModel, tensor: TensorProto) -> Array:
    """The values of a stored tensor, wherever they are; see `read_weights` for what is raised."""
    spec = tensor_spec(tensor, f"tensor {tensor.name!r}")
    if spec is None:
        raise ModelError(codes.TENSOR_DATA, f"tensor {tensor.name!r} holds strings, numbers are needed")
    data = outside_bytes(loaded, tensor)
    if data is not None:
        if tensor.data_location != TensorProto.EXTERNAL and len(data) != spec.bytes:
            message = f"{len(data):,} bytes are stored, shape {list(spec.shape)} needs {spec.bytes:,}"
            raise ModelError(codes.TENSOR_DATA, f"tensor {tensor.name!r}: {message}")
        return decoded(data, spec)
    return tensor_array(tensor, spec)


def outside_bytes(loaded: LoadedModel, tensor: TensorProto) -> bytes | None:
    """A stored tensor's bytes where they are not in the message: external data, or raw data left in the file."""
    if tensor.data_location == TensorProto.EXTERNAL:
        extent = locate(tensor, loaded.path)
        return _read(extent.path, extent.offset, extent.length, _no_link)
    where = loaded.raw.get(tensor.name)
    return None if where is None or has_data(tensor) else _from_file(loaded, *where)


def peek(
    loaded: LoadedModel, initializers: Mapping[str, TensorProto], name: str, spec: Spec, places: Sequence[int]
) -> list[bytes] | None:
    """Bytes of single elements of one of `initializers`, by flat position; None where it has no data of its shape.

    Of data in a file only these elements are read. Raises ModelError (SNP-I006 to SNP-I008) as `read_weights` does.
    """
    size = spec.dtype.bits // 8
    where = loaded.raw.get(name)
    if where is not None:
        return None if where[1] != spec.bytes else [_from_file(loaded, where[0] + at * size, size) for at in places]
    tensor = initializers.get(name)
    if tensor is None:
        return None
    if tensor.data_location == TensorProto.EXTERNAL:
        extent = locate(tensor, loaded.path)
        return [_read(extent.path, extent.offset + at * size, size, _no_link) for at in places]
    if not has_data(tensor) or data_problem(tensor, spec) is not None:
        return None
    elements = tensor_array(tensor, spec).reshape(-1)
    return [elements[at].tobytes() for at in places]


def _from_file(loaded: LoadedModel, offset: int, length: int) -> bytes:
    if loaded.path is None:
        assert loaded.data is not None, "a model without a path was given as bytes"
        return loaded.data[offset : offset + length]
    return _read(loaded.path, offset, length)


def _read(path: Path, offset: int, length: int, opener: Callable[[str, int], int] | None = None) -> bytes:
    try:
        with open(path, "rb", opener=opener) as file:
            file.seek(offset)
            data = file.read(length)
    except OSError as error:
        raise ModelError(codes.WEIGHTS, f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) != length:
        raise ModelError(codes.WEIGHTS, f"{path} ended {length - len(data):,} bytes early while it was read")
    return data


def _no_link(path: str, flags: int) -> int:
    """Opens what was checked: a link put in its place meanwhile is refused."""
    return os.open(path, flags | os.O_NOFOLLOW)


def decoded(data: bytes, spec: Spec) -> Array:
    """Little-endian bytes as an array of `spec`; 4-bit elements are packed two a byte, the lower half first."""
    if spec.dtype in (DType.INT4, DType.UINT4):
        packed = np.frombuffer(data, np.uint8)
        halves = np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(-1)[: spec.elements]
        if spec.dtype is DType.INT4:
            halves = ((halves ^ 8).astype(np.int16) - 8).astype(np.int8)
        return halves.astype(numpy_dtype(spec.dtype)).reshape(spec.shape)
    little = numpy_dtype(spec.dtype)
    if little.byteorder == ">":
        little = little.newbyteorder("<")
    return np.frombuffer(data, little).reshape(spec.shape).copy()


def _readers(loaded: LoadedModel) -> Iterator[tuple[str, Reader]]:
    """Readers by tensor name, over all graphs of the model."""
    for graph, nodes in bodies(loaded.proto):
        stored = {tensor.name: tensor for tensor in (graph.initializer if graph is not None else ())}
        constants = [(node, constant_tensor(node)) for node in nodes]
        stored.update((node.output[0], tensor) for node, tensor in constants if tensor is not None)
        for name, tensor in stored.items():
            yield name, partial(read_tensor, loaded, tensor)
        for node in nodes:
            if node.op_type == "ConstantOfShape" and node.output and node.input and node.input[0] in stored:
                yield node.output[0], partial(_filled, loaded, node, stored[node.input[0]])


def _filled(loaded: LoadedModel, node: NodeProto, shape: TensorProto) -> Array:
    sizes = [int(size) for size in read_tensor(loaded, shape).reshape(-1)]
    fill = np.zeros(1, np.float32) if not node.attribute else read_tensor(loaded, node.attribute[0].t)
    if any(size < 0 for size in sizes) or fill.size != 1 or math.prod(sizes) > 1 << 40:
        raise ModelError(codes.TENSOR_DATA, f"tensor {node.output[0]!r}: its shape {sizes} or its value cannot be")
    return np.full(sizes, fill.reshape(())[()], fill.dtype)
