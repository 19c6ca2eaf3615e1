"""Repeated blocks: hand-made chains, and random words against their definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_support import Line, indexed_of, tall, training_chain

from snplan.analysis.index import IndexedStep
from snplan.analysis.repeats import Repeat, repeats, strands
from snplan.ir import Role

KINDS = {"S": "exp", "A": "concat", "B": "relu", "C": "sigmoid", "D": "tanh", "E": "sqrt", "X": "abs", "Y": "neg"}


def chain(kinds: str) -> IndexedStep:
    """A chain of ops; each letter is a kind of its own."""
    lines = [
        Line(name=f"f{i}", reads=(f"t{i - 1}" if i else "x",), writes=(f"t{i}",), kind=KINDS[kind])
        for i, kind in enumerate(kinds)
    ]
    return indexed_of(lines, sources={"x": Role.INPUT})


def found(kinds: str) -> list[tuple[int, int, int]]:
    return [(repeat.start, repeat.length, repeat.count) for repeat in repeats(chain(kinds))]


@pytest.mark.parametrize(
    ("kinds", "blocks"),
    [
        ("SABCABCABCE", [(1, 3, 3)]),
        ("SABABABE", [(1, 2, 3)]),
        ("SABCDEX", []),
        ("SAAAAAE", [(1, 1, 5)]),
        ("SABBCABBCABBCE", [(1, 4, 3)]),
        ("SABABABXCDECDECDEY", [(1, 2, 3), (8, 3, 3)]),
        ("S", []),
    ],
)
def test_blocks_of_chains(kinds: str, blocks: list[tuple[int, int, int]]) -> None:
    assert found(kinds) == blocks


def test_the_first_op_reads_a_source_and_is_no_twin() -> None:
    assert found("AAAA") == [(1, 1, 3)]


def test_no_forward_pass() -> None:
    assert repeats(indexed_of([], sources={"x": Role.INPUT})) == []


def test_a_block_that_reads_from_elsewhere_is_another() -> None:
    lines = [
        Line(name="s", reads=("x",), writes=("s",), kind=KINDS["S"]),
        Line(name="a0", reads=("s",), writes=("a0",), kind=KINDS["A"]),
        Line(name="b0", reads=("a0",), writes=("b0",), kind=KINDS["B"]),
        Line(name="a1", reads=("b0",), writes=("a1",), kind=KINDS["A"]),
        Line(name="b1", reads=("s",), writes=("b1",), kind=KINDS["B"]),
    ]
    assert repeats(indexed_of(lines, sources={"x": Role.INPUT})) == []


def test_strands_are_what_twins_write() -> None:
    step = chain("SABABABE")
    assert [[step.names[t] for t in strand] for strand in strands(step)] == [["t1", "t3", "t5"], ["t2", "t4", "t6"]]


def test_the_backward_pass_plays_no_part() -> None:
    assert repeats(tall(8)) == [Repeat(start=1, length=1, count=7)]
    assert repeats(training_chain()) == [Repeat(start=1, length=1, count=2)]


@given(st.text("ABC", min_size=2, max_size=40))
def test_what_is_found_repeats_and_is_disjoint(kinds: str) -> None:
    word = "S" + kinds
    stop = 0
    for repeat in repeats(chain(word)):
        assert repeat.start >= max(stop, 1)
        assert repeat.count > 1
        assert repeat.stop <= len(word)
        block = word[repeat.start : repeat.start + repeat.length]
        assert word[repeat.start : repeat.stop] == block * repeat.count
        stop = repeat.stop


@given(
    st.text(
        "ABCD",
        min_size=1,
        max_size=6,
    ),
    st.integers(2, 9),
)
def test_blocks_of_different_ops_are_found_whole(block: str, count: int) -> None:
    block = "".join(dict.fromkeys(block))
    assert (1, len(block), count) in found("S" + block * count + "E")
