"""Snapshots of a training session: its state between two steps, in safetensors files that other tools read too.

A session that resumes from a snapshot goes on bit for bit as the one that wrote it: parameters, running statistics,
optimiser state, the number of steps done and the seed are all that a step depends on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from snplan.errors import RunError
from snplan.runtime.dtypes import numpy_dtype
from snplan.runtime.files import write_whole
from snplan.runtime.session import TrainingSession

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# The format's words for element types, by NumPy's.
_CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_NAMES = {code: name for name, code in _CODES.items()}
_FILE = re.compile(r"step-(\d{8})\.safetensors")


def save_snapshot(session: TrainingSession, folder: Path) -> Path:
    """The file, `step-NNNNNNNN.safetensors` in `folder` (made where it is missing), that holds the session's state.

    Raises RunError (SNP-R030) where it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            "SNP-R030", f"folder {folder} cannot be made: {(error.strerror or str(error)).lower()}"
        ) from error
    path = folder / f"step-{session.steps_done:08d}.safetensors"
    notes = {
        "format": "snplan-snapshot-1",
        "model_sha256": session.index.plan.model.sha256,
        "seed": str(session.seed),
        "steps_done": str(session.steps_done),
    }
    write_whole(path, lambda file: _write(file, session.state(), notes))
    return path


def _write(file: IO[bytes], arrays: Mapping[str, Array], notes: Mapping[str, str]) -> None:
    """A safetensors file: the length of a JSON header, the header, the arrays' bytes."""
    header: dict[str, Any] = {"__metadata__": dict(notes)}
    end = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": _CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for array in arrays.values():
        file.write(array.tobytes())


def latest_snapshot(folder: Path) -> Path | None:
    """The snapshot of the latest step in `folder`, or None."""
    if not folder.is_dir():
        return None
    return max(
        (path for path in folder.iterdir() if _FILE.fullmatch(path.name)), key=lambda path: path.name, default=None
    )


def load_snapshot(session: TrainingSession, path: Path) -> None:
    """Put a snapshot's state into `session`, and its steps done and seed.

    Raises RunError (SNP-R021) for a file that is broken, of another model, or without a tensor that the plan needs.
    """
    notes, arrays = _read(path)
    sha256 = session.index.plan.model.sha256
    if notes.get("format") != "snplan-snapshot-1" or notes.get("model_sha256") != sha256:
        raise _broken(path, f"it is no snapshot of the plan's model (sha256 {sha256})")
    missing = sorted(set(session.state_names()) - set(arrays))
    if missing:
        raise _broken(path, f"it holds no {missing[0]}, which the plan needs; was it written with another optimizer?")
    kept = {name: arrays[name] for name in session.state_names()}
    session.restore(kept, steps_done=int(notes["steps_done"]), seed=int(notes["seed"]))


def _read(path: Path) -> tuple[dict[str, str], dict[str, Array]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            notes = file.metadata() or {}
        return notes, dict(_arrays(path.read_bytes()))
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise _broken(path, f"it cannot be read: {error}") from error


def _arrays(data: bytes) -> Iterator[tuple[str, Array]]:
    from safetensors import deserialize

    for name, row in deserialize(data):  # type: ignore[no-untyped-call]
        yield name, np.frombuffer(row["data"], numpy_dtype(_NAMES[row["dtype"]])).reshape(row["shape"])


def _broken(path: Path, why: str) -> RunError:
    return RunError("SNP-R021", f"snapshot {path} cannot be used: {why}")
