"""Files that commands read and write, checked before the work starts so that no late surprise wastes it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from snplan.errors import UsageError


def existing(path: str, *, what: str) -> Path:
    """The path of a file that is there. Raises UsageError (SNP-U010) where it is missing, a folder or a device."""
    found = Path(path)
    if not found.is_file():
        reason = "is a folder" if found.is_dir() else "is no regular file" if found.exists() else "is not there"
        raise UsageError("SNP-U010", f"the {what} {path} {reason}")
    return found


def writable(path: str | Path, *, what: str, keep: Sequence[Path] = (), device: bool = False) -> Path:
    """A path that a file can be written to.

    Raises UsageError (SNP-U011) where the folder is missing or not writable, where the path is a folder, where it is a
    pipe or a device, which a rename would replace (`device`: the caller writes through it), and where writing would
    replace a file of `keep`, which the same command reads.
    """
    target = Path(path)
    folder = target.parent
    if not folder.is_dir():
        raise _refused(what, target, f"the folder {folder} is not there; make it first")
    if target.is_dir():
        raise _refused(what, target, "it is a folder; name a file")
    if target.exists() and not target.is_file() and not device:
        raise _refused(what, target, "it is no regular file; name a file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _refused(what, target, f"the folder {folder} does not allow it; choose another folder")
    if target.exists() and any(path.exists() and target.samefile(path) for path in keep):
        raise _refused(what, target, "it would replace a file that the command reads; choose another name")
    return target


def distinct(outputs: Mapping[str, str | Path | None]) -> None:
    """Raises UsageError (SNP-U013) where two options name one output file: the second would replace the first."""
    taken: dict[Path, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        other = taken.setdefault(Path(path).resolve(), option)
        if other != option:
            raise UsageError("SNP-U013", f"{other} and {option} both name {path}; give each a file of its own")


def folder(path: str, *, what: str) -> Path:
    """The path of a folder that is there or can be made. Raises UsageError (SNP-U012) where it is a file."""
    found = Path(path)
    if found.exists() and not found.is_dir():
        raise UsageError("SNP-U012", f"the {what} {path} is a file; name a folder")
    return found


def _refused(what: str, path: Path, reason: str) -> UsageError:
    return UsageError("SNP-U011", f"the {what} {path} cannot be written: {reason}")


def sha256(path: Path) -> str:
    """The sha256 of a file's bytes, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
