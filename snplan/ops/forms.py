"""Attributes of op kinds: which each kind has, and what values they may have.

Plans come from files, so both are checked. Shape rules read what they need; here all attributes are declared, each in
the module of its kind's family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite

from snplan.ir import Attrs, DType
from snplan.ops.base import ShapeError

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What an attribute's value must be: in words, and as a test. One that is `optional` may be left out."""

    what: str
    fits: Callable[[object], bool]
    optional: bool = False


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _LEAST <= value <= _MOST


def _is_number(value: object) -> bool:
    return _is_integer(value) or (isinstance(value, float) and isfinite(value))


def _is_value(value: object) -> bool:
    return _is_number(value) or isinstance(value, bool) or value in ("inf", "-inf", "nan")


def _listed(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(fits, value))


def _is_size(value: object) -> bool:
    return _is_integer(value) and isinstance(value, int) and value >= 0


INTEGER = Form(what="an integer of 64 bits", fits=_is_integer)
NUMBER = Form(what="a finite number", fits=_is_number)
FLAG = Form(what="true or false", fits=lambda value: isinstance(value, bool))
SCALAR = Form(what="a finite number, true or false", fits=lambda v: _is_number(v) or isinstance(v, bool), optional=True)
INTEGERS = Form(what="a list of integers", fits=_listed(_is_integer))
NUMBERS = Form(what="a list of numbers", fits=_listed(_is_number))
SHAPE = Form(what="a list of sizes of at least 0", fits=_listed(_is_size))
VALUES = Form(what='a list of numbers, "inf", "-inf" or "nan"', fits=_listed(_is_value))
DTYPE = Form(what="an element type", fits=lambda value: isinstance(value, str) and value in frozenset(DType))
LIST = Form(what="a list", fits=lambda value: isinstance(value, list | tuple))


def choice(*words: str) -> Form:
    """One of some words."""
    return Form(what=f"one of {', '.join(words)}", fits=lambda value: isinstance(value, str) and value in words)


def or_null(form: Form) -> Form:
    """What `form` says, or null."""
    return Form(what=f"{form.what}, or null", fits=lambda value: value is None or form.fits(value))


def optional(form: Form) -> Form:
    """What `form` says, or nothing at all."""
    return replace(form, optional=True)


ATTRIBUTES: dict[str, dict[str, Form]] = {}
"""Form of each attribute of each kind; kinds without attributes are absent."""


def takes(*kinds: str, **forms: Form) -> None:
    """Declares attributes that `kinds` have in common."""
    for kind in kinds:
        ATTRIBUTES.setdefault(kind, {}).update(forms)


def check_attributes(kind: str, attrs: Attrs) -> None:
    """Raises ShapeError for an attribute that is missing, of another form, or not one of the kind's."""
    forms: Mapping[str, Form] = ATTRIBUTES.get(kind, {})
    if unknown := sorted(attrs.keys() - forms.keys()):
        known = f"has {', '.join(forms)}" if forms else "has none"
        raise ShapeError(f"attribute {unknown[0]!r:.80} is unknown; {kind} {known}")
    for name, form in forms.items():
        if name not in attrs:
            if form.optional:
                continue
            raise ShapeError(f"attribute {name} is missing; it must be {form.what}")
        if not form.fits(attrs[name]):
            raise ShapeError(f"attribute {name} must be {form.what}, it is {attrs[name]!r:.80}")
