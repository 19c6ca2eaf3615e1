"""Bytes as users write and read them, names that are safe to show; the granule that all buffers are multiples of."""

from __future__ import annotations

import re
from fractions import Fraction

from snplan.errors import UsageError

GRANULE = 512
GIB = 1 << 30

_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kKmMgGtT])(i?[bB]?)?|([bB]))?\s*", re.ASCII)
_LIMIT = 1 << 62
_EXAMPLES = "write for example 12G, 12GiB (both 12 x 2^30 bytes), 12GB (12 x 10^9 bytes) or 12884901888"


def parse_bytes(text: str, *, what: str = "size", allow_zero: bool = False) -> int:
    """Bytes that `text` says: 12G = 12Gi = 12GiB = 12 x 2^30, 12GB = 12 x 10^9, a plain number is bytes.

    With a unit a fraction is rounded down to whole bytes. Raises UsageError (SNP-U001) with examples for anything else,
    for a fraction without a unit, for zero (unless `allow_zero`) and for 2^62 and more.
    """
    match = _PATTERN.fullmatch(text)
    if match is None or (match[3] or "").endswith("b"):
        raise UsageError("SNP-U001", f"{what} {text!r} is not a size in bytes; {_EXAMPLES}")
    if match[2] is None and "." in match[1]:
        raise UsageError(
            "SNP-U001", f"{what} {text!r} is no whole number of bytes; for a unit write {match[1]}G; {_EXAMPLES}"
        )
    prefix, suffix = (match[2] or "").lower(), match[3] or ""
    factor = _DECIMAL[prefix] if suffix == "B" else _BINARY[prefix]
    size = int(Fraction(match[1]) * factor)
    if size >= _LIMIT or (size == 0 and not (allow_zero and Fraction(match[1]) == 0)):
        raise UsageError("SNP-U001", f"{what} {text!r} is out of range (1 byte to 2^62 bytes); {_EXAMPLES}")
    return size


def decimal_note(text: str) -> str | None:
    """A note where `text` uses a decimal unit (12GB), which is less than the binary one that users often mean."""
    match = _PATTERN.fullmatch(text)
    if match is None or not match[2] or match[3] != "B":
        return None
    binary = f"{match[1]}{match[2].upper()}iB"
    return f"{text.strip()} is decimal: {parse_bytes(text):,} bytes; write {binary} for the binary unit"


def round_up(size: int, granule: int = GRANULE) -> int:
    """The smallest multiple of `granule` that is at least `size`."""
    return -(-size // granule) * granule


def format_bytes(size: int) -> str:
    """Bytes with a binary unit for people: "1.50 GiB (1,610,612,736 B)"; below 1 KiB only the bytes."""
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(size) >= scale:
            return f"{size / scale:.2f} {unit} ({size:,} B)"
    return f"{size:,} B"


def printable(text: str) -> str:
    """The text with control characters as escapes, so that a name from a file cannot steer the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def format_us(time: int) -> str:
    """Microseconds for people: "12.345 ms"."""
    if time < 1000:
        return f"{time} us"
    return f"{time / 1000:.3f} ms" if time < 10**6 else f"{time / 1e6:.3f} s"
