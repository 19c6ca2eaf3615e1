"""Plan files as a careless editor, a bad disk or an attacker leaves them: edits of JSON data, and of its text."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from hypothesis import strategies as st

Path: TypeAlias = tuple[str | int, ...]
_Edit: TypeAlias = tuple[Path, str, Path, Any, Callable[[Any], Any]]

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 511, 1 << 31, (1 << 63) - 1, 1 << 64, -(1 << 63), 10**30),
    *(0.5, -0.0, 1e308, 5e-324, "", "x", "float32", "relu", "input", "\x00", "a\nb", "\x1b[31m", "../../etc/passwd"),
    *([], {}, [[]], [1, 2, 3], ["x"], {"a": 1}, [None], [[1, "x"]], "x" * 5000),
)
"""What an edit puts in place of a value."""

_WORDS = ("drop", "set", "set", "swap", "extra", "number")
_NUMBERS: tuple[Callable[[Any], Any], ...] = (
    *(lambda x: x + 1, lambda x: x - 1, lambda x: -x, lambda x: x * 2, lambda x: x + 512, float),
)
_BRACKETS = ('"', "{", "}", "[", "]", ",", ":", "0", "-", "e", "E", "\x00", "\\", "\ufeff")


def paths(data: Any, at: Path = ()) -> Iterator[Path]:
    """The way to every value inside JSON data."""
    items: Any = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*at, key)
        yield from paths(value, (*at, key))


def value_at(data: Any, path: Path) -> Any:
    """The value at the end of `path`."""
    for key in path:
        data = data[key]
    return data


def edited(data: Any, among: Sequence[Path]) -> st.SearchStrategy[tuple[Any, str]]:
    """`data` with one to three values dropped, replaced, moved, doubled or changed a little; and what was done.

    Every edit draws the same choices whatever it meets in the data, so that a draw can be repeated by itself.
    """
    place = st.sampled_from(among)
    edit = st.tuples(place, st.sampled_from(_WORDS), place, st.sampled_from(VALUES), st.sampled_from(_NUMBERS))
    return st.lists(edit, min_size=1, max_size=3).map(lambda edits: _applied(data, edits))


def _applied(data: Any, edits: Sequence[_Edit]) -> tuple[Any, str]:
    found, told = copy.deepcopy(data), []
    for edit in edits:
        path = edit[0]
        try:
            parent = value_at(found, path[:-1])
            old = parent[path[-1]]
        except (KeyError, IndexError, TypeError):  # an earlier edit took it away
            continue
        if not isinstance(parent, str):
            told.append(f"{path}: {_edit(found, parent, old, edit)}")
    return found, "; ".join(told)


def _edit(data: Any, parent: Any, old: Any, edit: _Edit) -> str:
    (*_, key), word, other, value, number = edit
    if word == "number" and isinstance(old, int | float) and not isinstance(old, bool):
        parent[key] = number(old)
    elif word == "extra" and isinstance(old, dict | list) and old:
        if isinstance(old, dict):
            old["extra"] = copy.deepcopy(next(iter(old.values())))
        else:
            old.insert(0, copy.deepcopy(old[-1]))
    elif word == "drop":
        del parent[key]
    elif word == "swap":
        try:
            parent[key] = copy.deepcopy(value_at(data, other))
        except (KeyError, IndexError, TypeError):
            parent[key] = None
    else:
        parent[key] = copy.deepcopy(value)
    return word


@st.composite
def broken_text(draw: st.DrawFn, text: str) -> str:
    """JSON text that is cut off, has one other character, says a key twice, nests deeply or holds odd numbers."""
    word = draw(st.sampled_from(["cut", "character", "twice", "deep", "number"]))
    at = draw(st.integers(0, len(text) - 1))
    if word == "cut":
        return text[:at]
    if word == "character":
        return text[:at] + draw(st.sampled_from(_BRACKETS)) + text[at + 1 :]
    if word == "twice":
        return text.replace('"device":', '"device":{},"device":', 1)
    if word == "deep":
        depth = draw(st.sampled_from([10, 200, 900, 1100, 20_000]))
        return text.replace('"options":{', f'"options":{{"deep":{"[" * depth}{"]" * depth},', 1)
    odd = draw(st.sampled_from(["NaN", "Infinity", "1e999", "-1e999", "9" * 5000, "0x10", "01", "1."]))
    return text.replace('"budget_bytes":', f'"budget_bytes":{odd},"arena_bytes":', 1)
