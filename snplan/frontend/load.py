"""Model files read with care: they come from anywhere, and a broken one ends in one clear error."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # no stubs
from onnx import ModelProto

from snplan.errors import ModelError, UsageError
from snplan.frontend import codes
from snplan.frontend.external import check_external
from snplan.frontend.structure import check_names
from snplan.frontend.wire import Outline, outline, slim

MOST_NODES = 500_000
"""Nodes of the main graph that are accepted without `allow_large`."""

MOST_STRUCTURE_BYTES = 1 << 29
"""Bytes of a model besides the raw data of its weights that are accepted without `allow_large`."""

OLDEST_IR, OLDEST_OPSET = 3, 6

_SLIM_ABOVE_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A parsed model file. `path` is None where the model was given as bytes (`data`).

    `sha256` is of the file's bytes, `name` its file name. `raw` says where in the file the raw data of large
    initializers is, which the message itself is without; external data has been checked, not read.
    """

    proto: ModelProto
    sha256: str
    name: str
    path: Path | None = None
    data: bytes | None = field(default=None, repr=False)
    raw: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def load_model(source: Path | str | bytes, *, allow_large: bool = False) -> LoadedModel:
    """The model in a file, or in bytes; weights are not read.

    Raises UsageError (SNP-U060) where there is no such file, ModelError for anything that is not a sound ONNX model of
    IR 3 and opset 6 or later. `allow_large` lifts the limits on nodes and structure, not those of the format.
    """
    if isinstance(source, bytes):
        proto, digest, raw = _parsed(memoryview(source), allow_large)
        loaded = LoadedModel(proto=proto, sha256=digest, name="model.onnx", data=source, raw=raw)
    else:
        path = Path(source)
        proto, digest, raw = _parsed_file(path, allow_large)
        loaded = LoadedModel(proto=proto, sha256=digest, name=path.name, path=path, raw=raw)
    check_names(proto)
    _check_versions(proto)
    check_external(proto, loaded.path)
    return loaded


def _parsed_file(path: Path, allow_large: bool) -> tuple[ModelProto, str, dict[str, tuple[int, int]]]:
    try:
        with open(path, "rb", opener=_regular) as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelError(codes.PARSE, f"{path.name} is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
                return _parsed(view, allow_large)
    except OSError as error:
        raise UsageError(codes.FILE, f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(codes.FILE, f"{str(path)!r} cannot be read: {error}") from None


def _regular(path: str, flags: int) -> int:
    """Opens a regular file; never waits on a pipe or a device."""
    handle = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "it is not a regular file")
    return handle


def _parsed(data: memoryview, allow_large: bool) -> tuple[ModelProto, str, dict[str, tuple[int, int]]]:
    if not data:
        raise ModelError(codes.PARSE, "this is not an ONNX model: it is empty")
    found = outline(data, _most(allow_large))
    raw: dict[str, tuple[int, int]] = {}
    body: memoryview | bytes = data
    if len(data) > _SLIM_ABOVE_BYTES:
        body, raw = slim(data, found)
    _check_size(len(body), found, allow_large)
    proto = ModelProto()
    try:
        proto.ParseFromString(bytes(body))
    except DecodeError:
        raise ModelError(
            codes.PARSE, "this is not an ONNX model: its bytes do not parse, or are nested too deeply"
        ) from None
    return proto, hashlib.sha256(data).hexdigest(), raw


def _most(allow_large: bool) -> int:
    return 1 << 62 if allow_large else MOST_NODES


def _check_size(size: int, found: Outline, allow_large: bool) -> None:
    limit = (1 << 31) - 1 if allow_large else MOST_STRUCTURE_BYTES
    if size > limit:
        raise ModelError(
            codes.TOO_LARGE,
            f"the model has {size:,} bytes in {found.nodes:,} nodes besides its weights; the limit is {limit:,}",
        )


def _check_versions(proto: ModelProto) -> None:
    if proto.ir_version < OLDEST_IR:
        raise ModelError(
            codes.VERSION, f"IR version {proto.ir_version} is older than {OLDEST_IR}; convert or export the model again"
        )
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions:
        raise ModelError(codes.VERSION, "the model imports no opset of ai.onnx")
    if max(versions) < OLDEST_OPSET:
        raise ModelError(
            codes.VERSION,
            f"opset {max(versions)} is older than {OLDEST_OPSET}; convert it (onnx.version_converter) or export again",
        )
    if not proto.graph.output:
        raise ModelError(codes.NO_GRAPH, "the graph has no outputs, so there is nothing to plan")
