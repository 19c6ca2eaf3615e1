"""Plan files: canonical JSON (the same plan gives the same bytes), plain, gzip (`.gz`) or Zstandard (`.zst`) by suffix.

Files are untrusted: unknown keys, wrong types, numbers that JSON cannot hold, and more than `limit` bytes once
decompressed are refused. Whether the plan is sound is for `snplan.plan.verify` to say.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from snplan.errors import PlanError, UsageError, unwritten
from snplan.plan.model import FORMAT, StepPlan

MAX_BYTES = 1 << 31
"""Most bytes of JSON that are read: a plan of ten million actions."""

_CHUNK = 1 << 20
_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(StepPlan)
_TABLES = frozenset({"tensors", "ops", "buffers", "slots", "resident", "persistent", "outputs", "actions"})


class _Head(msgspec.Struct):
    format: Any = None


def encode_plan(plan: StepPlan) -> bytes:
    """The plan as canonical JSON: keys in the order of the records, one line for each key and each row of a table.

    Keys of `options`, `device` and `attrs` are sorted. Raises PlanError (SNP-V004) for numbers that are not finite and
    text that is not Unicode, which JSON cannot hold.
    """
    check_finite(plan, "the plan")
    try:
        lines = [_field(name, getattr(plan, name)) for name in StepPlan.__struct_fields__]
    except (TypeError, ValueError, OverflowError) as error:
        raise PlanError("SNP-V004", f"the plan cannot be written as JSON: {error}") from error
    return b"{\n" + b",\n".join(lines) + b"\n}\n"


def _field(name: str, value: Any) -> bytes:
    key = _ENCODER.encode(name) + b":"
    if name not in _TABLES or not value:
        return key + _ENCODER.encode(value)
    return key + b"[\n" + b",\n".join(map(_ENCODER.encode, value)) + b"\n]"


def decode_plan(data: bytes, *, source: str = "the plan") -> StepPlan:
    """The plan that JSON text says; `source` names it in errors.

    Raises PlanError: SNP-V001 where `data` is no JSON, SNP-V002 for another format, SNP-V003 for keys or types that a
    plan does not have, SNP-V004 for numbers that are not finite.
    """
    try:
        plan = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _broken(data, source, error) from error
    if plan.format != FORMAT:
        raise _other_format(source, plan.format)
    check_finite(plan, source)
    return plan


def _broken(data: bytes, source: str, error: Exception) -> PlanError:
    if not isinstance(error, msgspec.ValidationError):
        hint = "the file is cut off or no plan; a compressed plan needs the suffix .gz or .zst"
        return PlanError("SNP-V001", f"{source} is not JSON: {_first_line(error)}; {hint}")
    with suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        head = msgspec.json.decode(data, type=_Head)
        if head.format != FORMAT:
            return _other_format(source, head.format)
    return PlanError("SNP-V003", f"{source} is not a plan of format {FORMAT}: {_first_line(error)}; compile it again")


def _other_format(source: str, found: object) -> PlanError:
    message = f"{source} has format {found!r:.40}; this version of snplan reads format {FORMAT}; compile it again"
    return PlanError("SNP-V002", message)


def _first_line(error: Exception) -> str:
    text = str(error)
    return (text.splitlines() or [type(error).__name__])[0][:300]


def check_finite(plan: StepPlan, source: str) -> None:
    """Raises PlanError (SNP-V004) where options, device or attributes hold NaN or an infinite number."""
    for where, value in _free_form(plan):
        if not _is_finite(value):
            raise PlanError("SNP-V004", f"{source} holds a number that is not finite, in {where}; leave it out")


def _free_form(plan: StepPlan) -> Iterator[tuple[str, Any]]:
    yield "options", plan.options
    yield "device", plan.device
    for op in plan.ops:
        if op.attrs:
            yield f"attrs of op {op.name}", op.attrs


def _is_finite(value: Any) -> bool:
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return False
        if isinstance(item, dict):
            rest.extend(item.values())
        elif isinstance(item, list | tuple):
            rest.extend(item)
    return True


def read_plan(path: str | os.PathLike[str], *, limit: int = MAX_BYTES) -> StepPlan:
    """The plan in a file, not yet verified.

    Raises UsageError (SNP-U030) where the file cannot be opened, PlanError as `decode_plan` does, and for more than
    `limit` bytes (SNP-V005).
    """
    source = os.fspath(path)
    try:
        with open(source, "rb") as file, _decompressed(file, source) as stream:
            data = _bounded(stream, source, limit)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PlanError("SNP-V001", f"{source} is not a whole gzip file: {_first_line(error)}") from error
    except OSError as error:
        raise UsageError("SNP-U030", f"plan {source} cannot be read: {_reason(error)}; check the path") from error
    return decode_plan(data, source=source)


def _decompressed(file: BinaryIO, source: str) -> BinaryIO:
    if source.endswith(".gz"):
        return gzip.GzipFile(fileobj=file, mode="rb")  # type: ignore[return-value]  # a BinaryIO but for its mode
    if source.endswith(".zst"):
        return _zstd_reader(file)
    return file


def _zstd_reader(file: BinaryIO) -> BinaryIO:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file, read_across_frames=True)


def _bounded(stream: BinaryIO, source: str, limit: int) -> bytes:
    data = io.BytesIO()
    for chunk in _chunks(stream, source):
        data.write(chunk)
        if data.tell() > limit:
            raise PlanError("SNP-V005", f"{source} holds more than {limit:,} bytes of JSON, the most a plan may have")
    return data.getvalue()


def _chunks(stream: BinaryIO, source: str) -> Iterator[bytes]:
    while True:
        try:
            chunk = stream.read(_CHUNK)
        except (OSError, EOFError, zlib.error):
            raise
        except Exception as error:  # zstandard's own errors, without importing it for plain files
            raise PlanError("SNP-V001", f"{source} is not a whole Zstandard file: {_first_line(error)}") from error
        if not chunk:
            return
        yield chunk


def write_plan(plan: StepPlan, path: str | os.PathLike[str]) -> None:
    """Writes a plan file whole or not at all: beside its name first, then renamed over it.

    The suffix chooses the compression. Raises UsageError (SNP-U031) where the path cannot be written, RunError
    (SNP-R030) where the disk is full or fails; the file that was there before stays.
    """
    target = os.fspath(path)
    data = _compressed(encode_plan(plan), target)
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            _write_through(target, data)
        else:
            _replace(Path(os.path.realpath(target)), data)
    except OSError as error:
        raise unwritten(f"plan {target} ({len(data):,} bytes)", error, code="SNP-U031") from error


def _compressed(data: bytes, target: str) -> bytes:
    if target.endswith(".gz"):
        return gzip.compress(data, compresslevel=6, mtime=0)
    if target.endswith(".zst"):
        import zstandard

        return zstandard.ZstdCompressor(level=9, write_checksum=True).compress(data)
    return data


def _write_through(target: str, data: bytes) -> None:
    """Writes to a pipe or a device, which a rename would replace; opening a folder fails."""
    with open(target, "wb") as file:
        file.write(data)


def _replace(target: Path, data: bytes) -> None:
    beside = target.with_name(f".snplan-{secrets.token_hex(8)}.tmp")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Makes a rename last; not every file system can, and the file is whole either way."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
