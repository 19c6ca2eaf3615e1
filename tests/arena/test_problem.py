"""The problem as data, its lower bound, and the validator, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from property.problems import fixed_problems, problems, stacked

from snplan.arena.problem import (
    FREE,
    Problem,
    Solution,
    height_of,
    live_profile,
    lower_bound,
    make_problem,
    overlaps,
    subproblem,
    validate,
)

# Time 0..2: a (4 bytes) and b (3); 2..3: b and c (5); 3..5: c alone.
THREE = make_problem([(0, 2), (0, 3), (2, 5)], [4, 3, 5])


def test_live_profile() -> None:
    times, live = live_profile(THREE)
    assert times.tolist() == [0, 2, 3, 5]
    assert live.tolist() == [7, 8, 5, 0]


def test_lower_bound_is_the_peak_of_live_bytes() -> None:
    assert lower_bound(THREE) == 8


def test_lower_bound_without_buffers() -> None:
    assert lower_bound(make_problem([], [])) == 0


def test_lower_bound_reaches_the_top_of_a_fixed_buffer() -> None:
    assert lower_bound(make_problem([(0, 1), (4, 5)], [4, 3], [FREE, 20])) == 23


def test_touching_intervals_are_not_live_together() -> None:
    assert lower_bound(make_problem([(0, 2), (2, 4)], [5, 6])) == 6


def test_overlaps_with_some_buffers() -> None:
    some = np.array([True, False, True])  # live in [0, 2) and [2, 5) of THREE
    start, end = np.array([-3, -3, 1, 5, 3, 4]), np.array([0, 1, 3, 9, 3, 9])
    assert overlaps(THREE, some, start, end).tolist() == [False, True, True, False, False, True]
    assert not overlaps(THREE, np.zeros(3, np.bool_), start, end).any()


def test_height() -> None:
    assert height_of(THREE, np.array([0, 5, 8])) == 13
    assert height_of(make_problem([], []), np.array([], np.int64)) == 0


def test_solution_at_its_bound_is_optimal() -> None:
    assert Solution(offsets=np.array([0]), height=5, bound=5).optimal
    assert not Solution(offsets=np.array([0]), height=6, bound=5).optimal


def test_arrays_are_copies_and_read_only() -> None:
    size = np.array([1, 2])
    problem = Problem(start=np.array([0, 0]), end=np.array([1, 1]), size=size)
    size[0] = 9
    assert problem.size.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        problem.size[0] = 9


def test_fixed_offsets_default_to_free() -> None:
    assert THREE.fixed.tolist() == [FREE] * 3
    assert not THREE.has_fixed
    assert make_problem([(0, 1)], [1], [0]).has_fixed


def test_subproblem_keeps_the_given_order() -> None:
    part = subproblem(make_problem([(0, 2), (0, 3), (2, 5)], [4, 3, 5], [FREE, 7, FREE]), np.array([2, 1]))
    assert part.start.tolist() == [2, 0]
    assert part.end.tolist() == [5, 3]
    assert part.size.tolist() == [5, 3]
    assert part.fixed.tolist() == [FREE, 7]


@pytest.mark.parametrize(
    ("start", "end", "size", "fixed", "message"),
    [
        ([0, 1], [1], [1, 1], [FREE, FREE], "different lengths"),
        ([0, 3], [1, 3], [1, 1], [FREE, FREE], r"buffer 1 has an empty live interval \[3, 3\)"),
        ([0, 3], [1, 2], [1, 1], [FREE, FREE], r"buffer 1 has an empty live interval \[3, 2\)"),
        ([0, 0], [1, 1], [1, -4], [FREE, FREE], "buffer 1 has a negative size of -4 bytes"),
        ([0, 0], [1, 1], [1, 1], [-2, FREE], "buffer 0 has a negative fixed offset of -2 bytes"),
    ],
)
def test_malformed_problems(start: list[int], end: list[int], size: list[int], fixed: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Problem(start=np.array(start), end=np.array(end), size=np.array(size), fixed=np.array(fixed))


def test_a_placement_passes() -> None:
    assert validate(THREE, [0, 5, 0]) is None


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 4], "count: 2 offsets for 3 buffers"),
        ([0, -1, 4], "negative: buffer 1 is at offset -1"),
        ([0, 3, 8], "overlap: buffers 0 and 1 are live together at time 0 and share bytes from 3 to 4"),
        ([0, 4, 0], "overlap: buffers 1 and 2 are live together at time 2 and share bytes from 4 to 5"),
    ],
)
def test_the_broken_rule_is_named(offsets: list[int], message: str) -> None:
    assert validate(THREE, offsets) == message


def test_a_moved_fixed_buffer_is_named() -> None:
    problem = make_problem([(0, 1)], [4], [8])
    assert validate(problem, [8]) is None
    assert validate(problem, [0]) == "fixed: buffer 0 is at offset 0, not at its fixed offset 8"


def test_touching_in_time_or_in_address_is_no_overlap() -> None:
    assert validate(make_problem([(0, 2), (2, 4)], [5, 5]), [0, 0]) is None
    assert validate(make_problem([(0, 4), (0, 4)], [5, 5]), [0, 5]) is None


@given(problems())
def test_the_bound_agrees_with_a_count_at_every_time(problem: Problem) -> None:
    times = range(int(problem.end.max())) if len(problem) else range(0)
    live = [int(problem.size[(problem.start <= t) & (t < problem.end)].sum()) for t in times]
    assert lower_bound(problem) == max(live, default=0)


@given(fixed_problems())
def test_overlaps_are_found_like_pair_by_pair(problem: Problem) -> None:
    offsets = stacked(problem) // 2
    pairs = [
        (i, j)
        for i in range(len(problem))
        for j in range(i)
        if problem.start[i] < problem.end[j]
        and problem.start[j] < problem.end[i]
        and max(offsets[i], offsets[j]) < min(offsets[i] + problem.size[i], offsets[j] + problem.size[j])
    ]
    loose = Problem(start=problem.start, end=problem.end, size=problem.size)
    assert (validate(loose, offsets) is not None) == bool(pairs)
