"""Maxima of spans against plain arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snplan.analysis import excess as module
from snplan.analysis.excess import BLOCK, Excess, Over

COUNT = 3 * BLOCK + 7
spans = st.tuples(st.integers(0, COUNT - 1), st.integers(1, COUNT)).map(lambda s: (s[0], min(s[0] + s[1], COUNT)))


def test_a_span_inside_one_block() -> None:
    found = Excess(np.array([5, -1, 3], np.int64))
    assert found.most(0, 3) == 5
    found.add(0, 1, -4)
    assert found.most(0, 3) == 3
    assert found.most(0, 2) == 1
    found.add(2, 2, 100)
    assert found.most(0, 3) == 3


@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
def test_the_last_position_of_any_size(count: int) -> None:
    found = Excess(np.arange(count, dtype=np.int64))
    assert found.most(0, count) == count - 1
    assert found.most(count - 1, count) == count - 1


@given(st.lists(st.tuples(spans, st.integers(-50, 50)), max_size=30), spans, st.integers(0, 2**32 - 1))
def test_like_a_plain_array(changes: list[tuple[tuple[int, int], int]], asked: tuple[int, int], seed: int) -> None:
    plain = np.random.default_rng(seed).integers(-100, 100, COUNT)
    found = Excess(plain)
    for (start, stop), amount in changes:
        found.add(start, stop, amount)
        plain[start:stop] += amount
        assert found.most(*asked) == plain[slice(*asked)].max()
        assert found.most(0, COUNT) == plain.max()


def test_blocks_are_powers_of_two() -> None:
    assert 1 << module.BITS == BLOCK


@given(st.lists(st.tuples(spans, st.integers(0, 60)), max_size=40), st.integers(0, 2**32 - 1))
def test_what_is_over_while_numbers_fall(changes: list[tuple[tuple[int, int], int]], seed: int) -> None:
    plain = np.random.default_rng(seed).integers(-100, 200, COUNT)
    found = Over(plain)
    for (start, stop), amount in changes:
        found.fall(start, stop, amount)
        plain[start:stop] -= amount
        for low, high in ((start, stop), (0, COUNT), (max(0, start - 3), start + 1), (stop - 1, COUNT)):
            assert found.any(low, high) == bool((plain[low:high] > 0).any())


@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
def test_the_last_position_over(count: int) -> None:
    found = Over(np.ones(count, np.int64))
    found.fall(0, count - 1, 1)
    assert found.any(0, count)
    assert not found.any(0, count - 1)
    found.fall(0, count, 1)
    assert not found.any(0, count)
    found.fall(0, 0, 1)


@given(st.lists(st.tuples(spans, st.integers(-50, 50)), max_size=10), spans, st.integers(-120, 120))
def test_room_is_what_the_maximum_leaves(
    changes: list[tuple[tuple[int, int], int]], asked: tuple[int, int], amount: int
) -> None:
    found = Excess(np.zeros(COUNT, np.int64))
    for (start, stop), change in changes:
        found.add(start, stop, change)
    assert found.has_room(*asked, amount) == (found.most(*asked) + amount <= 0)
