"""Slots in pools: the fastest is filled first, each stays in its room, the rest is above all room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from snplan.cost.pools import Pool, by_speed
from snplan.passes.slots import Span, _in_pools
from snplan.units import GRANULE

RATES = ("h2d_bytes_per_s", "d2h_bytes_per_s", "h2d_both_bytes_per_s", "d2h_both_bytes_per_s")


def pool(name: str, rate: int, granules: int) -> Pool:
    return Pool(name=name, bytes=granules * GRANULE, copy_latency_us=0, **dict.fromkeys(RATES, rate))


def test_what_is_copied_most_often_is_in_the_fastest_pool() -> None:
    spans = {0: (0, 4, GRANULE), 1: (0, 4, GRANULE), 2: (0, 4, GRANULE)}
    placed = _in_pools(spans, {0: 2, 1: 3, 2: 2}, [pool("slow", 1, 9), pool("fast", 2, 1)])
    assert placed == {1: (0, "fast"), 0: (GRANULE, "slow"), 2: (2 * GRANULE, "slow")}


def test_bytes_are_used_again_inside_a_pool() -> None:
    spans = {0: (0, 2, GRANULE), 1: (2, 4, GRANULE), 2: (1, 3, GRANULE)}
    placed = _in_pools(spans, {}, [pool("fast", 2, 1), pool("slow", 1, 1)])
    assert placed == {0: (0, "fast"), 1: (0, "fast"), 2: (GRANULE, "slow")}


def test_what_finds_no_room_is_above_all_of_it() -> None:
    spans = {0: (0, 1, GRANULE), 1: (0, 1, GRANULE), 2: (0, 1, GRANULE)}
    placed = _in_pools(spans, {}, [pool("a", 2, 1), pool("b", 1, 1)])
    assert sorted(offset for offset, _ in placed.values()) == [0, GRANULE, 2 * GRANULE]
    assert max(offset for offset, _ in placed.values()) + GRANULE > 2 * GRANULE


lives = st.tuples(st.integers(0, 8), st.integers(1, 4), st.integers(1, 4))


@given(st.lists(lives, max_size=12), st.lists(st.tuples(st.integers(1, 5), st.integers(1, 8)), min_size=1, max_size=3))
def test_pools_keep_to_themselves(rows: list[tuple[int, int, int]], sizes: list[tuple[int, int]]) -> None:
    spans: dict[int, Span] = {i: (a, a + n, size * GRANULE) for i, (a, n, size) in enumerate(rows)}
    pools = [pool(f"p{i}", rate, room) for i, (rate, room) in enumerate(sizes)]
    placed = _in_pools(spans, {}, pools)
    assert set(placed) == set(spans)
    room, base = sum(p.bytes for p in pools), 0
    for one in by_speed(pools):
        mine = {key: offset for key, (offset, name) in placed.items() if name == one.name and offset < room}
        tops = [offset + spans[key][2] for key, offset in mine.items()]
        assert all(base <= offset for offset in mine.values())
        assert max(tops, default=base) - base <= one.bytes
        base = max(tops, default=base)
    for a in spans:
        for b in spans:
            if a < b and spans[a][0] < spans[b][1] and spans[b][0] < spans[a][1]:
                low, high = sorted((placed[a][0], placed[b][0]))
                assert low + (spans[a] if placed[a][0] == low else spans[b])[2] <= high
