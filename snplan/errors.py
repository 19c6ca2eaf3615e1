"""Every error that snplan reports to its user, with its exit code and stable error code."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

_DISK_FAILS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class ExitCode(IntEnum):
    """Exit codes of the command line (docs/design.md, "Exit codes")."""

    DONE = 0
    INTERNAL = 1
    USAGE = 2
    MODEL = 3
    INFEASIBLE = 4
    UNKNOWN = 5
    UNVERIFIED = 6
    RUN_FAILED = 7
    INTERRUPTED = 130


@dataclass(eq=False)
class SnplanError(Exception):
    """An error with one message: what happened, where, numbers with units, what to change.

    `code` is stable across releases (docs/errors.md lists all of them); `details` goes into `--json` output as it is.
    """

    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)

    exit_code = ExitCode.INTERNAL

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class UsageError(SnplanError):
    """Wrong usage: an option's value, a file that is not there, conflicting flags (SNP-U...)."""

    exit_code = ExitCode.USAGE


class ModelError(SnplanError):
    """The model cannot be imported (SNP-I...) or differentiated (SNP-D...)."""

    exit_code = ExitCode.MODEL


class InfeasibleError(SnplanError):
    """Proven: no plan of this step fits the budget (SNP-P...)."""

    exit_code = ExitCode.INFEASIBLE


class NoPlanError(SnplanError):
    """No plan was found within the limits; that none exists is not proven (SNP-P...)."""

    exit_code = ExitCode.UNKNOWN


class PlanError(SnplanError):
    """A plan file is broken or fails verification (SNP-V...)."""

    exit_code = ExitCode.UNVERIFIED


class RunError(SnplanError):
    """A run failed (SNP-R...)."""

    exit_code = ExitCode.RUN_FAILED


def unwritten(what: str, error: OSError, *, code: str) -> SnplanError:
    """Why `what` was not written: RunError (SNP-R030) where the disk is full or fails, else UsageError (`code`)."""
    reason = (error.strerror or str(error)).lower()
    if error.errno in _DISK_FAILS:
        return RunError("SNP-R030", f"{what} cannot be written: {reason}; make room and try again")
    return UsageError(code, f"{what} cannot be written: {reason}; choose another path")
