"""Splitting into parts: by hand, and that the parts' placements together are a placement."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from property.problems import fixed_problems, problems

from snplan.arena.heuristics import by_size, first_fit
from snplan.arena.problem import FREE, Problem, height_of, lower_bound, make_problem, validate
from snplan.arena.split import components, split


def test_components_are_cut_where_no_buffer_spans() -> None:
    problem = make_problem([(4, 6), (0, 2), (1, 4), (5, 7), (9, 10), (7, 8)], [1, 1, 1, 1, 1, 0])
    assert [part.tolist() for part in components(problem)] == [[1, 2], [0, 3], [4]]
    assert components(make_problem([(0, 1)], [0])) == []


@given(problems())
def test_components_hold_every_buffer_and_share_no_time(problem: Problem) -> None:
    parts = components(problem)
    assert sorted(i for part in parts for i in part.tolist()) == np.flatnonzero(problem.size).tolist()
    for before, after in pairwise(parts):
        assert problem.end[before].max() <= problem.start[after].min()


def test_what_is_live_with_all_others_goes_to_the_bottom() -> None:
    # 0 spans everything; without it, 1 and 2 are apart from 3 and 4, and 1 spans all of its part, as 3 does of its own.
    problem = make_problem([(0, 9), (0, 4), (1, 2), (4, 9), (5, 6)], [7, 3, 2, 4, 1])
    offsets, parts = split(problem)
    assert parts == []
    assert offsets.tolist() == [0, 7, 10, 7, 11]


def test_what_cannot_be_peeled_is_a_part() -> None:
    problem = make_problem([(0, 9), (0, 3), (2, 5), (4, 7), (6, 9)], [7, 3, 2, 4, 3])
    offsets, parts = split(problem)
    assert offsets.tolist() == [0, 0, 0, 0, 0]
    assert [part.indices.tolist() for part in parts] == [[1, 2, 3, 4]]
    assert (parts[0].base, parts[0].bound) == (7, 14)


def test_nothing_goes_below_a_fixed_buffer() -> None:
    problem = make_problem([(0, 9), (0, 4)], [7, 3], [FREE, 0])
    offsets, parts = split(problem)
    assert offsets.tolist() == [0, 0]
    assert [part.indices.tolist() for part in parts] == [[0, 1]]


@settings(deadline=None)
@given(problems())
def test_placed_parts_are_a_placement_no_lower_than_the_bound(problem: Problem) -> None:
    offsets, parts = split(problem)
    for part in parts:
        offsets[part.indices] = part.base + first_fit(part.problem, by_size(part.problem))
    assert validate(problem, offsets) is None
    if not parts:
        assert height_of(problem, offsets) == lower_bound(problem)


@settings(deadline=None)
@given(fixed_problems())
def test_parts_keep_fixed_offsets(problem: Problem) -> None:
    offsets, parts = split(problem)
    for part in parts:
        offsets[part.indices] = part.base + first_fit(part.problem, by_size(part.problem))
    assert validate(problem, offsets) is None
