"""What commands write: one JSON object or text on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TextIO

from snplan.errors import UsageError
from snplan.units import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_LINE = 10_000


def replace_closed_streams() -> None:
    """Opens the null device for a standard stream that the caller has closed (`>&-`): Python then has none."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # it stays open as the stream does


def tolerate_odd_characters() -> None:
    """Lets both streams write any character: what the terminal cannot show is written as an escape."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def write_object(value: Mapping[str, Any]) -> None:
    """Writes one JSON object and a line end on standard output."""
    write_text(json.dumps(plain(value), indent=1) + "\n")


def write_text(text: str) -> None:
    """Writes text on standard output; a reader that has gone away (`| head`) is no error.

    Raises UsageError (SNP-U014) where standard output takes no more, as on a full disk.
    """
    _write(sys.stdout, text)


def note(text: str) -> None:
    """Writes one line on standard error; a list under it goes on at line ends that two blanks follow.

    Names in it come from files: their control characters, line ends too, are written as escapes.
    """
    _write(sys.stderr, "\n  ".join(map(printable, text.split("\n  "))) + "\n")


def written(*paths: str | Path | None) -> None:
    """Names each file that was written, on standard error; those that were not asked for are None."""
    for path in paths:
        if path is not None:
            note(f"{path}: written")


def show(*parts: RenderableType, to: TextIO | None = None) -> None:
    """Writes tables and text of rich, on standard error unless told otherwise."""
    stream = to or sys.stderr
    drawn = _Drawn(stream.encoding)
    console = _console(stream, drawn)
    for part in parts:
        console.print(part)
    _write(stream, "".join(f"{line.rstrip()}\n" for line in drawn.getvalue().splitlines()))


def plain(value: Any) -> Any:
    """The value as JSON has it: NumPy's scalars as numbers, paths as text, NaN and the infinities as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, PurePath):
        return str(value)
    return plain(value.item()) if hasattr(value, "item") else str(value)


class _Drawn(io.StringIO):
    """What rich draws, before it is written; rich draws for the encoding of the stream that it is meant for."""

    def __init__(self, encoding: str | None) -> None:
        super().__init__()
        self._encoding = encoding or "utf-8"

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has a plain attribute
        """The encoding of the stream that the text is for."""
        return self._encoding


def _console(stream: TextIO, drawn: _Drawn) -> Console:
    from rich.console import Console

    terminal = stream.isatty()
    width = None if terminal else _LINE  # in a file or a pipe no line is folded
    return Console(file=drawn, force_terminal=terminal, width=width, markup=False, emoji=False, highlight=False)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        give_up(stream, error)


def give_up(stream: TextIO, error: OSError) -> None:
    """Writes no more on a stream that failed. Raises UsageError (SNP-U014) for standard output that has a reader."""
    # What is still buffered would fail again when the interpreter ends.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if stream is sys.stdout and not isinstance(error, BrokenPipeError):
        reason = (error.strerror or str(error)).lower()
        raise UsageError("SNP-U014", f"standard output cannot be written: {reason}; send it elsewhere") from error
