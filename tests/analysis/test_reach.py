"""What must run before and after each op: by hand, and against the closure of the relation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snplan.analysis import reach
from snplan.analysis.reach import ancestor_us, descendant_us


def closure_us(preds: list[list[int]], us: list[int]) -> list[int]:
    """The sums over all ancestors, as sets."""
    before: list[set[int]] = []
    for direct in preds:
        before.append({a for p in direct for a in (*before[p], p)})
    return [sum(us[a] for a in ancestors) for ancestors in before]


def reversed_order(preds: list[list[int]]) -> list[list[int]]:
    last = len(preds) - 1
    return [sorted(last - op for op, direct in enumerate(preds) if last - i in direct) for i in range(last + 1)]


@st.composite
def relations(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    count = draw(st.integers(1, 14))
    preds = [draw(st.lists(st.integers(0, op - 1), max_size=3)) if op else [] for op in range(count)]
    return preds, draw(st.lists(st.integers(1, 50), min_size=count, max_size=count))


def test_a_diamond_counts_its_fork_once() -> None:
    # 0 -> 1, 2 -> 3: before 3 run 1 us, 10 us and 100 us; 4 stands alone.
    assert ancestor_us([[], [0], [0], [1, 2], []], [1, 10, 100, 1000, 7]) == [0, 1, 1, 111, 0]
    assert descendant_us([[], [0], [0], [1, 2], []], [1, 10, 100, 1000, 7]) == [1110, 1000, 1000, 0, 0]


def test_no_ops() -> None:
    assert ancestor_us([], []) == descendant_us([], []) == []


@given(relations())
@settings(max_examples=200, deadline=None)
def test_sums_are_those_of_the_closure(relation: tuple[list[list[int]], list[int]]) -> None:
    preds, us = relation
    assert ancestor_us(preds, us) == closure_us(preds, us)
    assert descendant_us(preds, us) == closure_us(reversed_order(preds), us[::-1])[::-1]


@given(relations(), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_a_short_window_never_counts_too_much(relation: tuple[list[list[int]], list[int]], window: int) -> None:
    preds, us = relation
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reach, "WINDOW", window)
        found = ancestor_us(preds, us)
    assert all(some <= most for some, most in zip(found, closure_us(preds, us), strict=True))


def test_a_chain_is_exact_whatever_the_window() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reach, "WINDOW", 1)
        assert ancestor_us([[], [0], [1], [2]], [1, 2, 3, 4]) == [0, 1, 3, 6]
