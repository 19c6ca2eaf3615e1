"""What option values mean: sizes, NAME=N pairs, choices, and which options exclude each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from snplan.errors import UsageError
from snplan.units import decimal_note, parse_bytes

REPEATABLE = frozenset({"--dim", "--freeze", "--pool"})
_LONG_FORMS = {"-o": "--output", "--no-fuse": "--fuse"}


def refuse_repeated(arguments: Sequence[str]) -> None:
    """Raises UsageError (SNP-U002) where an option that takes one value is given twice: one would be ignored."""
    seen: set[str] = set()
    for argument in arguments:
        if argument == "--":
            return
        name = _LONG_FORMS.get(argument, argument.partition("=")[0])
        if not name.startswith("--") or name in REPEATABLE:
            continue
        if name in seen:
            raise UsageError("SNP-U002", f"{name} is given twice; give it once")
        seen.add(name)


def one_of(option: str, value: str, choices: Iterable[str]) -> str:
    """`value`, which is one of the choices. Raises UsageError (SNP-U003) naming them all."""
    known = tuple(choices)
    if value not in known:
        raise UsageError("SNP-U003", f"{option} {value!r} is not known; choose one of {', '.join(known)}")
    return value


def strategy(option: str, text: str, names: Iterable[str]) -> str:
    """`text`, a strategy's name, perhaps with parts switched off, which the compiler checks. Raises UsageError."""
    one_of(option, text.partition(":")[0], names)
    return text


def size(option: str, text: str | None, notes: list[str], *, allow_zero: bool = False) -> int | None:
    """Bytes that an option's text says, None without it; a decimal unit adds a note. Raises UsageError (SNP-U001)."""
    if text is None:
        return None
    found = parse_bytes(text, what=option, allow_zero=allow_zero)
    note = decimal_note(text)
    if note is not None:
        notes.append(f"{option} {note}")
    return found


def dimensions(texts: Iterable[str]) -> dict[str, int]:
    """Sizes of symbolic dimensions by name, from `NAME=N` texts.

    Raises UsageError (SNP-U004) for another form, a size under 1, and a name that is given twice.
    """
    found: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or not (number.isascii() and number.isdecimal()) or int(number) < 1:
            raise UsageError("SNP-U004", f"--dim {text!r} is not NAME=N with N >= 1; write for example --dim N=32")
        if name in found:
            raise UsageError("SNP-U004", f"--dim gives {name} twice: {found[name]} and {number}; give each name once")
        found[name] = int(number)
    return found


def at_least(option: str, value: float | None, smallest: float, largest: float | None = None) -> None:
    """Raises UsageError (SNP-U005) where a number is given and too small, too large or not finite."""
    if value == math.inf:
        raise UsageError("SNP-U005", f"{option} is infinite; give a number")
    if value is not None and not value >= smallest:
        raise UsageError("SNP-U005", f"{option} is {value:g}; the smallest value is {smallest:g}")
    if value is not None and largest is not None and value > largest:
        raise UsageError("SNP-U005", f"{option} is {value:g}; the largest value is {largest:g}")


def refuse_together(because: str, given: dict[str, bool]) -> None:
    """Raises UsageError (SNP-U006) naming every option that is given although `because` leaves it without effect."""
    useless = [option for option, present in given.items() if present]
    if useless:
        raise UsageError("SNP-U006", f"{' and '.join(useless)} would have no effect with {because}; leave one out")


def refuse_without(needed: str, given: dict[str, bool]) -> None:
    """Raises UsageError (SNP-U006) naming every option that is given and has an effect only beside another one."""
    useless = [option for option, present in given.items() if present]
    if useless:
        raise UsageError("SNP-U006", f"{' and '.join(useless)} would have no effect without {needed}; add it")
