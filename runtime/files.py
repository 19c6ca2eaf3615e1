"""Files that a run writes: whole or not at all."""

from __future__ import annotations

import os
import secrets
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from snplan.errors import RunError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def write_whole(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write a file beside its name and rename it. Raises RunError (SNP-R030) where that fails; an old file stays."""
    beside = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.tmp")
    try:
        with open(beside, "xb") as file:
            write(file)
        os.replace(beside, path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RunError("SNP-R030", f"{path} cannot be written: {reason}; make room or choose another path") from error
    finally:
        with suppress(OSError):
            beside.unlink()


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as an NPZ file that `np.load(path)[name]` reads, whatever their names.

    NumPy files know no bfloat16 or float8: such arrays are written as float32, which holds each of their values.
    """

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in arrays.items():
                # A fixed date: equal arrays give equal files.
                entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
                with archive.open(entry, "w", force_zip64=True) as target:
                    np.lib.format.write_array(target, _plain(array), allow_pickle=False)

    write_whole(path, write)


def _plain(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.kind == "V" or array.dtype.name.startswith("float8") else array
