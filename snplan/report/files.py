"""Reports as files: whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from snplan.errors import UsageError


def write_report(path: Path, text: str, *, what: str) -> None:
    """Writes a text file beside its name, then renames it. Raises UsageError (SNP-U011) where it cannot be written."""
    beside = path.with_name(f".snplan-{secrets.token_hex(8)}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError("SNP-U011", f"the {what} {path} cannot be written: {reason}") from error
    finally:
        with suppress(OSError):
            beside.unlink()
