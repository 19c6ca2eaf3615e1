"""Attributes as they are declared: the page says the same, and others than declared are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_cases import Case, differentiable_cases, flat_cases

from snplan.ops import KINDS, ShapeError
from snplan.ops.forms import ATTRIBUTES, Form, check_attributes
from snplan.ops.unary import SAVES_X, SAVES_Y

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ops.md"
CASES = [*differentiable_cases(), *flat_cases()]
WRONG: tuple[Any, ...] = ({}, {"a": 1}, [[]], [None], ["x"], [0.5], "no such word", 1 << 64, [1 << 64], [True], None)
"""Values that few forms take; each attribute is tried with those that its own does not."""


def quoted(text: str) -> list[str]:
    """Names in backticks, but for those that explain others, in parentheses."""
    return re.findall(r"`([a-z0-9_]+)`", re.sub(r"\([^)]*\)", "", text))


def rows() -> Iterator[tuple[str, list[str], str]]:
    """Section, kinds and text of the attributes of each row of the page's tables."""
    section = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        section = line if line.startswith("## ") else section
        if line.startswith("| `"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            yield section, re.findall(r"`([a-z0-9_]+)`", cells[0]), cells[2]


def of_tables() -> dict[str, set[str]]:
    """Attributes of the kinds in tables. "same" is the row above, "as `KIND`" has that kind's attributes."""
    found: dict[str, set[str]] = {}
    above: set[str] = set()
    for section, kinds, text in rows():
        names = set(quoted(text))
        other = re.search(r"as `([a-z_]+)`", text)
        if other:
            names = names - {other[1]} | found[other[1]]
        if text.startswith("same"):
            names |= above
        own = not other and "no epsilon" not in text and kinds != ["batch_norm_update"]
        if section.startswith("## Normalisation") and own:
            names.add("epsilon")
        above = names
        found.update((kind, set(names)) for kind in kinds)
    return found


def of_lists() -> dict[str, set[str]]:
    """Attributes of the kinds that sections list without a table: in parentheses behind the kind."""
    text = PAGE.read_text(encoding="utf-8")
    unary = text.split("## Elementwise, one input")[1].split("## Elementwise, two inputs")[0]
    binary = text.split("## Elementwise, two inputs")[1].split("| kind |")[0].split("\n", 1)[1]
    reductions = text.split("## Reductions")[1].split("\n", 1)[1].split("| kind |")[0]
    found: dict[str, set[str]] = {}
    for kind, names in re.findall(r"`([a-z_]+)`(?:\s\(([^)]*)\))?", unary.split("\n", 1)[1]):
        own = [name for name in re.findall(r"`([a-z]+)`", names) if name != kind]
        found.setdefault(kind, set()).update(own)
    found.update({f"{kind}_grad": found[kind] for kind in (*SAVES_X, *SAVES_Y)})
    for kind, names in re.findall(r"`([a-z_]+)`(?: \(`([a-z]+)`: bool\))?", binary):
        found[kind] = {"scalar", "reverse", *([names] if names else [])}
    found.update({kind: {"axes", "keepdims"} for kind in re.findall(r"`([a-z_]+)`", reductions)})
    return found


def test_the_page_lists_the_attributes_of_every_kind() -> None:
    page = {**of_lists(), **of_tables()}
    one_input = {"pow_grad_a": {"scalar"}, "pow_grad_b": {"scalar"}, "extremum_grad": {"scalar"}}  # told in the meaning
    declared = {kind: set(ATTRIBUTES.get(kind, {})) - one_input.get(kind, set()) for kind in KINDS}
    assert {kind: page[kind] for kind in KINDS} == declared


def test_attributes_are_of_kinds_that_there_are() -> None:
    assert set(ATTRIBUTES) <= set(KINDS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_ops_have_is_taken(case: Case) -> None:
    check_attributes(case.kind, case.attrs)


@pytest.mark.parametrize("case", [case for case in CASES if case.attrs], ids=str)
def test_each_attribute_is_needed_and_of_its_form(case: Case) -> None:
    for name, form in ATTRIBUTES[case.kind].items():
        rest = {key: value for key, value in case.attrs.items() if key != name}
        if form.optional:
            check_attributes(case.kind, rest)
        else:
            with pytest.raises(ShapeError, match=f"attribute {name} is missing"):
                check_attributes(case.kind, rest)
        refused = [value for value in WRONG if not form.fits(value)]
        assert len(refused) >= 7
        for value in refused:
            with pytest.raises(ShapeError, match=f"attribute {name} must be"):
                check_attributes(case.kind, {**case.attrs, name: value})


def test_an_unknown_attribute_is_named_with_the_known_ones() -> None:
    with pytest.raises(ShapeError, match="'aplha' is unknown; elu has alpha"):
        check_attributes("elu", {"alpha": 1.0, "aplha": 1.0})
    with pytest.raises(ShapeError, match="'alpha' is unknown; relu has none"):
        check_attributes("relu", {"alpha": 1.0})


@pytest.mark.parametrize(
    ("kind", "name", "right", "wrong"),
    [
        ("elu", "alpha", [0, 1.5, -1e300, (1 << 63) - 1], [1 << 63, float("inf"), float("nan"), True, "1", None]),
        ("concat", "axis", [0, -1], [0.0, True, "0", -(1 << 63) - 1]),
        ("mask", "keep", [True, False], [0, 1, "true", None]),
        ("gelu", "approximate", ["none", "tanh"], ["erf", None, 0, ["none"]]),
        ("cast", "to", ["float32", "bool"], ["float33", 1, None]),
        ("expand", "shape", [[], [0, 3]], [[-1], 3, "3", [1.0], None]),
        ("transpose", "perm", [[], [1, 0]], [[True], {"0": 1}]),
    ],
)
def test_forms(kind: str, name: str, right: list[Any], wrong: list[Any]) -> None:
    for value in right:
        check_attributes(kind, {name: value})
    for value in wrong:
        with pytest.raises(ShapeError, match=f"attribute {name} must be"):
            check_attributes(kind, {name: value})


@pytest.mark.parametrize("values", [[1, 2.5], ["inf", "-inf", "nan"], [True, False], []])
def test_values_of_constants(values: list[Any]) -> None:
    check_attributes("constant", {"dtype": "float32", "shape": [], "values": values})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
FORMS = [form for forms in ATTRIBUTES.values() for form in forms.values()]


@given(JSON, st.sampled_from(FORMS))
def test_any_value_fits_or_does_not(value: Any, form: Form) -> None:
    """No value of JSON makes a form raise, and what fits a number is one that NumPy and C can hold."""
    if form.fits(value) and isinstance(value, int | float) and not isinstance(value, bool):
        assert -(2**63) <= value < 2**63 or (isinstance(value, float) and value == value and abs(value) < float("inf"))
