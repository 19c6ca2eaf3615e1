"""Wishes: what is granted lies between need and wish, is a placement, and ends within the capacity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.problems import fixed_problems, lowest_height, problems, random_problem

from snplan.arena.problem import FREE, Int64, Problem, lower_bound, make_problem, subproblem, validate
from snplan.arena.wishes import Fit, fit_within, shortfall


def check(problem: Problem, early: Int64, late: Int64, capacity: int, fit: Fit) -> None:
    """Every promise of a fit, from its own numbers."""
    placed = np.flatnonzero(fit.offsets != FREE)
    assert (np.minimum(early, problem.start) <= fit.start).all()
    assert (fit.start <= problem.start).all()
    assert (problem.end <= fit.end).all()
    assert (fit.end <= np.maximum(late, problem.end)).all()
    granted = Problem(start=fit.start, end=fit.end, size=problem.size, fixed=problem.fixed)
    assert validate(subproblem(granted, placed), fit.offsets[placed]) is None
    assert (fit.offsets + problem.size)[placed].max(initial=0) <= capacity
    assert sorted(fit.misfits.tolist()) == np.flatnonzero(fit.offsets == FREE).tolist()
    sizes = problem.size[fit.misfits].tolist()
    assert sizes == sorted(sizes, reverse=True)
    assert fit.complete == (not sizes)
    wished = np.maximum(late, problem.end) - np.minimum(early, problem.start)
    assert fit.loss == wished.sum() - (fit.end - fit.start).sum()


def ints(*values: int) -> Int64:
    return np.array(values, np.int64)


def test_without_wishes_it_is_a_placement() -> None:
    problem = make_problem([(0, 2), (0, 2), (2, 4)], [4, 4, 8])
    fit = fit_within(problem, 8)
    assert (fit.complete, fit.loss) == (True, 0)
    assert sorted(fit.offsets.tolist()[:2]) == [0, 4]
    assert (fit.start.tolist(), fit.end.tolist()) == ([0, 0, 2], [2, 2, 4])


def test_no_buffers() -> None:
    fit = fit_within(make_problem([], []), 0)
    assert (fit.complete, fit.offsets.tolist(), fit.misfits.tolist()) == (True, [], [])
    assert shortfall(make_problem([], []), fit)[0].tolist() == []


def test_a_wish_with_room_is_granted_in_full() -> None:
    problem = make_problem([(0, 4), (6, 8)], [8, 4])
    fit = fit_within(problem, 12, early=ints(0, 1), late=ints(4, 9))
    assert fit.complete
    assert fit.loss == 0
    assert (int(fit.start[1]), int(fit.end[1])) == (1, 9)
    assert fit.offsets.tolist() == [0, 8]


def test_a_wish_without_room_starts_when_what_is_in_the_way_ends() -> None:
    problem = make_problem([(0, 4), (6, 8)], [8, 4])
    fit = fit_within(problem, 8, early=ints(0, 1), late=ints(4, 9))
    assert fit.complete
    assert (int(fit.start[1]), int(fit.end[1])) == (4, 9)
    assert fit.loss == 3


def test_a_buffer_moves_to_where_its_wish_is_free_longest() -> None:
    # Two of 4 bytes end at 3 and at 5; the wish of the last one gets most where the first one was.
    problem = make_problem([(0, 5), (0, 3), (6, 8)], [4, 4, 4])
    fit = fit_within(problem, 8, early=ints(0, 0, 2), late=ints(5, 3, 8))
    assert fit.complete
    assert fit.offsets[2] == fit.offsets[1]
    assert (int(fit.start[2]), fit.loss) == (3, 1)


def test_wishes_that_fill_the_arena_give_way_to_needs() -> None:
    # With the wishes live bytes are 12 of 12 at all times, and two buffers of 4 and one of 8 take turns.
    problem = make_problem([(0, 2), (2, 4), (4, 6), (6, 8)], [12, 12, 12, 12])
    fit = fit_within(problem, 12, early=ints(0, 0, 2, 4), late=ints(2, 6, 8, 8))
    assert fit.complete
    assert fit.loss == 10
    assert fit.start.tolist() == [0, 2, 4, 6]


def test_wishes_that_are_no_wishes_are_needs() -> None:
    problem = make_problem([(2, 5)], [4])
    fit = fit_within(problem, 4, early=ints(3), late=ints(4))
    assert (fit.start.tolist(), fit.end.tolist(), fit.loss) == ([2], [5], 0)


def test_misfits_are_named_and_counted() -> None:
    problem = make_problem([(0, 4), (1, 3), (4, 6)], [8, 3, 4])
    fit = fit_within(problem, 8)
    assert fit.misfits.tolist() == [1]
    times, missing = shortfall(problem, fit)
    assert (times.tolist(), missing.tolist()) == ([1, 3], [3, 0])


def test_a_buffer_larger_than_the_capacity_is_a_misfit() -> None:
    problem = make_problem([(0, 4), (0, 4)], [9, 5])
    fit = fit_within(problem, 8)
    assert (fit.misfits.tolist(), fit.offsets.tolist()) == ([0], [FREE, 0])


def test_the_shortfall_adds_up_misfits_that_are_live_together() -> None:
    problem = make_problem([(0, 4), (2, 6), (3, 8)], [9, 10, 11])
    fit = fit_within(problem, 8)
    assert fit.misfits.tolist() == [2, 1, 0]
    times, missing = shortfall(problem, fit)
    assert times.tolist() == [0, 2, 3, 4, 6, 8]
    assert missing.tolist() == [9, 19, 30, 21, 11, 0]


def test_fixed_buffers_stay() -> None:
    problem = make_problem([(0, 4), (2, 6)], [4, 4], [FREE, 2])
    fit = fit_within(problem, 10, early=ints(0, 0), late=ints(9, 7))
    assert fit.offsets.tolist() == [6, 2]
    assert (fit.start.tolist(), fit.end.tolist()) == ([0, 2], [9, 6])
    assert fit.loss == 0


def test_fixed_buffers_that_collide_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        fit_within(make_problem([(0, 4), (2, 6)], [4, 4], [1, 2]), 10)


def wishes(draw_seed: int, problem: Problem, most: int) -> tuple[Int64, Int64]:
    random = np.random.default_rng(draw_seed)
    n = len(problem)
    keep = random.random(n) < 0.5
    early = problem.start - np.where(keep, random.integers(0, most, n), 0)
    return early, problem.end + np.where(keep, 0, random.integers(0, most, n))


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(0, 999), st.integers(0, 12))
def test_every_fit_keeps_its_promises(problem: Problem, seed: int, slack: int) -> None:
    early, late = wishes(seed, problem, 10)
    capacity = max(lower_bound(problem) + slack - 4, 0)
    check(problem, early, late, capacity, fit_within(problem, capacity, early=early, late=late))


@settings(max_examples=50, deadline=None)
@given(fixed_problems(), st.integers(0, 999), st.integers(0, 8))
def test_every_fit_around_fixed_buffers_keeps_its_promises(problem: Problem, seed: int, slack: int) -> None:
    early, late = wishes(seed, problem, 10)
    kept = problem.fixed != FREE
    early, late = np.where(kept, problem.start, early), np.where(kept, problem.end, late)
    capacity = lower_bound(problem) + slack
    check(problem, early, late, capacity, fit_within(problem, capacity, early=early, late=late))


@settings(max_examples=30, deadline=None)
@given(problems(most=6, longest=6, largest=4), st.integers(0, 999))
def test_what_fits_without_wishes_fits_with_them(problem: Problem, seed: int) -> None:
    early, late = wishes(seed, problem, 6)
    assert fit_within(problem, lowest_height(problem), early=early, late=late, time_limit=0.02).complete


def test_equal_calls_give_equal_fits() -> None:
    problem = random_problem(4, count=80, longest=60, largest=40)
    early, late = wishes(1, problem, 20)
    capacity = int(lower_bound(problem) * 1.02)
    first, again = (fit_within(problem, capacity, early=early, late=late) for _ in range(2))
    assert first.offsets.tolist() == again.offsets.tolist()
    assert first.start.tolist() == again.start.tolist()
    check(problem, early, late, capacity, first)


def test_a_problem_of_many_buffers() -> None:
    random = np.random.default_rng(0)
    start = random.integers(0, 20_000, 10_000)
    problem = Problem(
        start=start, end=start + random.integers(1, 60, 10_000), size=random.integers(1, 1000, 10_000) * 512
    )
    early, late = wishes(2, problem, 200)
    capacity = int(lower_bound(problem) * 1.2)
    fit = fit_within(problem, capacity, early=early, late=late)
    assert fit.complete
    check(problem, early, late, capacity, fit)
