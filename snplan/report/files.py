"""Reports as files: whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from snplan.errors import unwritten


def write_report(path: Path, text: str, *, what: str) -> None:
    """Writes a text file beside its name, then renames it. Raises `snplan.errors.unwritten` where that fails."""
    beside = path.with_name(f".snplan-{secrets.token_hex(8)}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise unwritten(f"the {what} {path}", error, code="SNP-U011") from error
    finally:
        with suppress(OSError):
            beside.unlink()
