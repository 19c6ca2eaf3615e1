"""Byte ranges and vector clocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from snplan.passes.hazards import COMPUTE, D2H, H2D, NONE, ByteMap, Clocks, Marks, Memory, merge

ranges = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda r: (r[0], r[0] + r[1]))


@given(st.lists(st.tuples(ranges, st.integers(0, 2)), max_size=30), ranges)
def test_byte_map_is_a_map_from_bytes(puts: list[tuple[tuple[int, int], int]], asked: tuple[int, int]) -> None:
    found, plain = ByteMap(), dict[int, Marks]()
    for action, ((start, stop), stream) in enumerate(puts):
        marks: Marks = (action if stream == 0 else -1, action if stream == 1 else -1, action if stream == 2 else -1)
        marks = merge(found.get(start, stop), marks)
        found.put(start, stop, marks)
        plain.update(dict.fromkeys(range(start, stop), marks))
    expected = NONE
    for byte in range(*asked):
        expected = merge(expected, plain.get(byte, NONE))
    assert found.get(*asked) == expected


def test_touching_ranges_do_not_share_bytes() -> None:
    found = ByteMap()
    found.put(0, 512, (3, -1, -1))
    assert found.get(512, 1024) == NONE
    assert found.get(511, 512) == (3, -1, -1)


def test_an_edge_that_another_implies_is_left_out() -> None:
    clocks = Clocks()
    assert clocks.order(0, COMPUTE, NONE) == []
    assert clocks.order(1, D2H, (0, -1, -1)) == [0]
    assert clocks.order(2, H2D, (0, 1, -1)) == [1]
    assert clocks.order(3, COMPUTE, (-1, 1, 2)) == [2]
    assert clocks.order(4, COMPUTE, (-1, 1, 2)) == []


def test_reads_wait_for_writes_and_writes_for_everything() -> None:
    memory = Memory()
    memory.begin(7, 0, 512)
    memory.note(7, COMPUTE, 4, write=True)
    memory.note(7, D2H, 5, write=False)
    assert memory.read(7) == (4, -1, -1)
    assert memory.write(7) == (4, 5, -1)
    memory.end(7, 0, 512)
    memory.begin(8, 256, 768)
    assert memory.write(8) == (4, 5, -1)
