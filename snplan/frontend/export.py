"""Models with other weights: what was trained goes back into the ONNX file that it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from snplan.errors import RunError
from snplan.frontend import codes
from snplan.frontend.load import LoadedModel
from snplan.frontend.structure import bodies, constant_tensor
from snplan.frontend.tensors import Array
from snplan.frontend.weights import outside_bytes
from snplan.models.files import save

_DATA_FIELDS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "external_data")


def export_model(loaded: LoadedModel, values: Mapping[str, Array], target: Path) -> None:
    """Write `target`: the model, its stored tensors named in `values` replaced, everything else as it was.

    A ConstantOfShape that stands for a weight becomes an initializer. Weights of more than 1.5 GB in all go to a file
    beside it, of the same name with `.data`. Raises RunError (SNP-R030) where it cannot be written, ModelError where
    weights that stay cannot be read.
    """
    model = ModelProto()
    model.CopyFrom(loaded.proto)
    for graph, nodes in bodies(model):
        for tensor in _stored(graph, nodes):
            _fill(tensor, values.get(tensor.name), loaded)
        if graph is not None:
            _store_weights(graph, values)
    try:
        save(model, target)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"model {target} cannot be written: {reason}; make room or choose another path"
        raise RunError(codes.RESULT, message) from error


def _stored(graph: GraphProto | None, nodes: Sequence[NodeProto]) -> list[TensorProto]:
    constants = [tensor for node in nodes if (tensor := constant_tensor(node)) is not None]
    return [*(graph.initializer if graph is not None else ()), *constants]


def _fill(tensor: TensorProto, value: Array | None, loaded: LoadedModel) -> None:
    """Put bytes into the message: new ones, or those that lie elsewhere in the file or in external data."""
    data = outside_bytes(loaded, tensor) if value is None else _little_endian(value)
    if data is None:
        return
    for field in _DATA_FIELDS:
        tensor.ClearField(field)
    tensor.data_location = TensorProto.DEFAULT
    tensor.raw_data = data


def _little_endian(value: Array) -> bytes:
    order = value.dtype.byteorder
    return value.astype(value.dtype.newbyteorder("<")).tobytes() if order == ">" else value.tobytes()


def _store_weights(graph: GraphProto, values: Mapping[str, Array]) -> None:
    """ConstantOfShape nodes whose results have values become initializers."""
    standing = [node for node in graph.node if node.op_type == "ConstantOfShape" and node.output[0] in values]
    for node in standing:
        name = node.output[0]
        value = values[name]
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        graph.initializer.append(
            TensorProto(name=name, dims=value.shape, data_type=kind, raw_data=_little_endian(value))
        )
        graph.node.remove(node)
