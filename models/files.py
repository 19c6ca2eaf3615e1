"""Model files: written beside their final name and renamed, with large weights in a data file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from onnx import ModelProto, TensorProto

EXTERNAL_ABOVE_BYTES = 1_500_000_000
"""Weights of more bytes than this in all go to a data file; a protobuf file ends at 2 GiB."""

ALIGNMENT_BYTES = 4096
"""Offsets in the data file are multiples of the page size, so that weights can be mapped."""

INLINE_BYTES = 1024
"""Weights up to this size stay in the model file even when the others leave it."""


def save(model: ModelProto, path: str | os.PathLike[str], *, external_above: int = EXTERNAL_ABOVE_BYTES) -> None:
    """Writes the model to `path`; over `external_above` bytes the weights go to `path` + ".data" beside it.

    Each file is written under a temporary name and renamed, the data file first, so that no reader sees half a model.
    The model in memory is not changed. Raises OSError as the file system does.
    """
    target = Path(path)
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) <= external_above:
        with _replacing(target) as file:
            file.write(_serialized(model))
        return
    data = target.with_name(target.name + ".data")
    with _replacing(data) as file:
        slim = _moved_out(model, file, data.name)
    with _replacing(target) as file:
        file.write(_serialized(slim))


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _serialized(model: ModelProto) -> bytes:
    return bytes(model.SerializeToString(deterministic=True))


def _moved_out(model: ModelProto, data: BinaryIO, location: str) -> ModelProto:
    """A copy of the model whose larger initializers are in the data file; never copies the weights in memory."""
    slim = ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy(slim, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy(slim.graph, field.name, value)
    for tensor in model.graph.initializer:
        slim.graph.initializer.append(_external(tensor, data, location))
    return slim


def _copy(message: object, name: str, value: object) -> None:
    part = getattr(message, name)
    if hasattr(part, "extend"):
        part.extend(value)
    elif hasattr(part, "CopyFrom"):
        part.CopyFrom(value)
    else:
        setattr(message, name, value)


def _external(tensor: TensorProto, data: BinaryIO, location: str) -> TensorProto:
    if len(tensor.raw_data) <= INLINE_BYTES:
        return tensor
    data.write(bytes(-data.tell() % ALIGNMENT_BYTES))
    entry = TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    entry.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", data.tell()), ("length", len(tensor.raw_data))):
        entry.external_data.add(key=key, value=str(value))
    data.write(tensor.raw_data)
    return entry
