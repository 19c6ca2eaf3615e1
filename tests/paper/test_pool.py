"""The paper's memory pool, against a plain map of its blocks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from superneurons.pool import BLOCK, Pool


def test_first_fit_takes_the_first_hole() -> None:
    pool = Pool(bytes=16 * BLOCK)
    for node, blocks in enumerate((4, 1, 2, 1)):
        pool.allocate(node, blocks * BLOCK)
    pool.free(0)
    pool.free(2)
    assert pool.allocate(4, 2 * BLOCK) == 0
    assert pool.allocate(5, 2 * BLOCK) == 2 * BLOCK
    assert pool.top == 8 * BLOCK


def test_best_fit_takes_the_smallest_hole() -> None:
    pool = Pool(bytes=16 * BLOCK, best=True)
    for node, blocks in enumerate((4, 1, 2, 1)):
        pool.allocate(node, blocks * BLOCK)
    pool.free(0)
    pool.free(2)
    assert pool.allocate(4, 2 * BLOCK) == 5 * BLOCK


def test_sizes_round_up_to_blocks() -> None:
    pool = Pool(bytes=4 * BLOCK)
    assert [pool.allocate(node, size) for node, size in enumerate((1, BLOCK, BLOCK + 1))] == [0, BLOCK, 2 * BLOCK]
    assert pool.top == 4 * BLOCK


def test_neighbours_grow_together() -> None:
    pool = Pool(bytes=3 * BLOCK)
    for node in range(3):
        pool.allocate(node, BLOCK)
    for node in (0, 2, 1):
        pool.free(node)
    assert pool.allocate(3, 3 * BLOCK) == 0


def test_a_full_pool_says_so() -> None:
    pool = Pool(bytes=2 * BLOCK)
    pool.allocate(0, BLOCK)
    with pytest.raises(MemoryError, match="no 2 empty blocks of 1024 bytes"):
        pool.allocate(1, 2 * BLOCK)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6), st.integers(0, 50)), max_size=60), st.booleans())
@settings(max_examples=60, deadline=None)
def test_like_a_map_of_blocks(actions: list[tuple[bool, int, int]], best: bool) -> None:
    pool, owner = Pool(bytes=24 * BLOCK, best=best), [-1] * 24
    live: list[int] = []
    for node, (allocates, blocks, pick) in enumerate(actions):
        if not allocates:
            if live:
                gone = live.pop(pick % len(live))
                pool.free(gone)
                owner = [-1 if each == gone else each for each in owner]
            continue
        want = _expected(owner, blocks, best)
        if want is None:
            with pytest.raises(MemoryError):
                pool.allocate(node, blocks * BLOCK)
            continue
        assert pool.allocate(node, blocks * BLOCK) == want * BLOCK
        owner[want : want + blocks] = [node] * blocks
        live.append(node)


def _expected(owner: list[int], blocks: int, best: bool) -> int | None:
    """The start of the first, or smallest, run of free blocks that is long enough."""
    runs: list[tuple[int, int]] = []
    for block, node in enumerate(owner):
        if node >= 0:
            continue
        if runs and sum(runs[-1]) == block:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    fitting = [run for run in runs if run[1] >= blocks]
    if not fitting:
        return None
    return min(fitting, key=lambda run: run[1])[0] if best else fitting[0][0]
