"""How a failed command ends: its exit code, and one message as text or as a JSON object."""

from __future__ import annotations

import contextlib
import os
import traceback
from typing import Any

from snplan.cli import output
from snplan.errors import ExitCode, SnplanError, UsageError

INTERNAL = "SNP-X001"
INTERRUPTED = "SNP-X130"
USAGE = "SNP-U000"
_LONGEST = 8000

_STATUS = {ExitCode.INFEASIBLE: "infeasible", ExitCode.UNKNOWN: "unknown", ExitCode.INTERRUPTED: "unknown"}


def report(error: BaseException, *, as_json: bool) -> int:
    """The exit code for an exception, after its message was written."""
    known = explained(error)
    if os.environ.get("SNPLAN_DEBUG") == "1":
        traceback.print_exception(error)
    if as_json:
        with contextlib.suppress(UsageError):  # standard output takes no more: what went wrong first counts
            output.write_object(as_object(known))
    _write_text(known)
    return int(known.exit_code)


def explained(error: BaseException) -> SnplanError:
    """The exception as an error of snplan: wrong usage that typer found, an interrupt, or a bug."""
    if isinstance(error, SnplanError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return _with_exit(ExitCode.INTERRUPTED, INTERRUPTED, "interrupted; nothing was written")
    if hasattr(error, "format_message"):  # typer's usage errors, whose class moved between its releases
        return _with_exit(ExitCode.USAGE, USAGE, f"{error.format_message().rstrip(' .')}; see --help")
    text = traceback.format_exception_only(error)[-1].strip()
    return _with_exit(
        ExitCode.INTERNAL, INTERNAL, f"internal error: {text}. This is a bug; SNPLAN_DEBUG=1 shows where it happened"
    )


def as_object(error: SnplanError) -> dict[str, Any]:
    """The JSON object of a failed command: `status`, `code`, `message` and the error's details."""
    status = _STATUS.get(error.exit_code, "rejected")
    return {"status": status, "code": error.code, "message": _shortened(error.message), **error.details}


def _with_exit(exit_code: ExitCode, code: str, message: str) -> SnplanError:
    error = SnplanError(code, message)
    error.exit_code = exit_code
    return error


def _shortened(message: str) -> str:
    """The message without its middle where it is very long: what a file says may be a list of millions."""
    if len(message) <= _LONGEST:
        return message
    return f"{message[: _LONGEST * 3 // 4]} ... {message[-_LONGEST // 4 :]}"


def _write_text(error: SnplanError) -> None:
    output.note(f"snplan: {error.code}: {_shortened(error.message)}")
    if error.exit_code is ExitCode.INFEASIBLE:
        from snplan.report.refusal import refusal_lines

        for line in refusal_lines(error.details):
            output.note(line)
