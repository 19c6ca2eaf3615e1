"""Tensors whose data is in a file beside the model: where that may be, and whether it is all there.

A model is untrusted, so a location must stay inside the model's folder. Links are judged by what they lead to: the data
must really be in the folder of the model, or, where the model file itself is a link (a hub's cache of blobs), in the
folder that the model file really is in. Hard links are refused, since they hide what they lead to. Checks read file
attributes only; nothing is opened before the weights themselves are wanted.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from onnx import ModelProto, TensorProto

from snplan.errors import ModelError
from snplan.frontend import codes
from snplan.frontend.structure import stored_tensors
from snplan.frontend.tensors import tensor_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Bytes of a tensor in a data file whose real path is `path`."""

    path: Path
    offset: int
    length: int


def locate(tensor: TensorProto, file: Path | None, known: dict[str, tuple[Path, int]] | None = None) -> Extent:
    """Where the data of an external tensor is; `file` is the model's own path.

    `known` remembers real paths and sizes by location, for a model of many tensors.

    Raises ModelError: SNP-I006 for a location that leaves the model's folder, SNP-I007 for a missing or too short file,
    SNP-I008 for a model without a folder.
    """
    what = f"tensor {tensor.name!r}"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if file is None:
        raise ModelError(
            codes.EXTERNAL_FOLDER,
            f"{what} has its data in {location!r}, but the model was given as bytes and has no folder; give a file",
        )
    known = {} if known is None else known
    if location not in known:
        path = _real_path(what, location, file)
        known[location] = path, path.stat().st_size
    path, size = known[location]
    spec = tensor_spec(tensor, what)
    needed = spec.bytes if spec is not None else 0
    offset = _number(what, entries, "offset", 0)
    length = _number(what, entries, "length", needed)
    if length < needed:
        raise ModelError(
            codes.EXTERNAL_RANGE,
            f"{what} of {needed:,} bytes says that it has {length:,} in {location!r}; the file is not the model's",
        )
    if offset + needed > size:
        raise ModelError(
            codes.EXTERNAL_RANGE,
            f"{what} ends at byte {offset + needed:,} of {location!r}, which has {size:,}; is the download complete?",
        )
    return Extent(path=path, offset=offset, length=needed)


def _number(what: str, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ModelError(codes.EXTERNAL_RANGE, f"{what} has {key} {text[:40]!r}; it must be a number of bytes")
    return int(text)


def _real_path(what: str, location: str, file: Path) -> Path:
    if not _stays_inside(location):
        raise ModelError(
            codes.EXTERNAL_PATH,
            f"{what} has its data in {location[:200]!r}, which is outside the model's folder; it is not opened",
        )
    real = Path(os.path.realpath(file.parent / location))
    folders = {Path(os.path.realpath(file.parent)), Path(os.path.realpath(file)).parent}
    if not any(real.is_relative_to(folder) for folder in folders):
        raise ModelError(
            codes.EXTERNAL_PATH,
            f"{what} has its data in {location!r}, a link that leads out of the model's folder; it is not opened",
        )
    try:
        found = os.lstat(real)
    except OSError:
        raise ModelError(
            codes.EXTERNAL_RANGE, f"{what} has its data in {location!r}, which is not there; put it beside {file.name}"
        ) from None
    if not stat.S_ISREG(found.st_mode):
        raise ModelError(codes.EXTERNAL_PATH, f"{what} has its data in {location!r}, which is not a regular file")
    if found.st_nlink > 1:
        raise ModelError(
            codes.EXTERNAL_PATH,
            f"{what} has its data in {location!r}, a file of {found.st_nlink} hard links; "
            "one of them may be outside the model's folder: copy the file",
        )
    return real


def _stays_inside(location: str) -> bool:
    if not location or "\0" in location:
        return False
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    rooted = posix.is_absolute() or windows.drive or windows.root
    return not rooted and ".." not in posix.parts and ".." not in windows.parts


def check_external(model: ModelProto, file: Path | None) -> None:
    """Raise ModelError for the first tensor whose external data may not be read or is not all there."""
    known: dict[str, tuple[Path, int]] = {}
    for tensor in stored_tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            locate(tensor, file, known)
