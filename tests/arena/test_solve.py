"""`assign`: right, bounded, deterministic, and as low as brute force on tiny problems."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.problems import fixed_problems, lowest_height, problems, random_problem

from snplan.arena.problem import FREE, Problem, Solution, height_of, lower_bound, make_problem, validate
from snplan.arena.solve import assign

SOME = 0.02


def check(problem: Problem, solution: Solution) -> None:
    assert validate(problem, solution.offsets) is None
    assert solution.height == height_of(problem, solution.offsets)
    assert lower_bound(problem) <= solution.bound <= solution.height


def test_no_buffers() -> None:
    solution = assign(make_problem([], []))
    assert (solution.offsets.tolist(), solution.height, solution.bound) == ([], 0, 0)


def test_one_buffer() -> None:
    solution = assign(make_problem([(3, 9)], [512]))
    assert (solution.offsets.tolist(), solution.height) == ([0], 512)


def test_identical_intervals_stack() -> None:
    solution = assign(make_problem([(1, 4)] * 5, [3, 3, 3, 7, 1]))
    assert solution.height == 17
    check(make_problem([(1, 4)] * 5, [3, 3, 3, 7, 1]), solution)


def test_touching_intervals_share_an_address() -> None:
    assert assign(make_problem([(0, 2), (2, 4), (4, 5)], [8, 8, 8])).offsets.tolist() == [0, 0, 0]


def test_fixed_offsets_are_kept() -> None:
    problem = make_problem([(0, 4), (0, 4), (2, 6)], [4, 4, 4], [FREE, 4, FREE])
    solution = assign(problem)
    assert solution.offsets.tolist()[1] == 4
    assert solution.height == 12
    check(problem, solution)


def test_fixed_offsets_that_collide_are_refused() -> None:
    problem = make_problem([(0, 1), (0, 4), (2, 6)], [4, 4, 4], [FREE, 4, 6])
    with pytest.raises(ValueError, match=r"fixed buffers \[1, 2\].*overlap: buffers 0 and 1 .* time 2 .* from 6 to 8"):
        assign(problem)


def test_fixed_offsets_apart_in_time_may_share_bytes() -> None:
    problem = make_problem([(0, 2), (2, 6)], [4, 4], [4, 6])
    assert assign(problem).offsets.tolist() == [4, 6]


def test_a_gap_that_greedy_orders_leave_is_closed() -> None:
    for seed in range(20):
        problem = random_problem(seed, count=25, longest=12, largest=20)
        solution = assign(problem, time_limit=0.2)
        check(problem, solution)
        assert solution.height <= assign(problem, time_limit=0).height


def test_a_capacity_out_of_reach_gives_some_placement() -> None:
    problem = random_problem(3, count=30, longest=12, largest=20)
    solution = assign(problem, capacity=lower_bound(problem) - 1)
    check(problem, solution)
    assert not solution.height < lower_bound(problem)


def test_a_capacity_is_met_and_then_enough() -> None:
    problem = random_problem(4, count=30, longest=12, largest=20)
    tight, loose = (assign(problem, capacity=lower_bound(problem) * k) for k in (1, 3))
    assert tight.height == lower_bound(problem)
    assert loose.height <= 3 * lower_bound(problem)


@settings(max_examples=50, deadline=None)
@given(problems(most=6, longest=6, largest=4))
def test_as_low_as_brute_force(problem: Problem) -> None:
    solution = assign(problem, time_limit=SOME)
    check(problem, solution)
    assert solution.height == lowest_height(problem)
    assert solution.optimal


@settings(max_examples=50, deadline=None)
@given(fixed_problems(most=6))
def test_as_low_as_brute_force_around_fixed_buffers(problem: Problem) -> None:
    solution = assign(problem, time_limit=SOME)
    check(problem, solution)
    assert solution.height == lowest_height(problem)


@settings(max_examples=50, deadline=None)
@given(fixed_problems(), st.integers(0, 40))
def test_every_result_is_a_placement(problem: Problem, capacity: int) -> None:
    check(problem, assign(problem, time_limit=SOME))
    check(problem, assign(problem, time_limit=SOME, capacity=capacity))


@settings(max_examples=50, deadline=None)
@given(problems(granule=512))
def test_offsets_keep_the_granule(problem: Problem) -> None:
    solution = assign(problem, time_limit=SOME)
    assert not (solution.offsets % 512).any()
    assert solution.bound % 512 == 0


@settings(max_examples=25, deadline=None)
@given(problems(most=40))
def test_equal_calls_give_equal_offsets(problem: Problem) -> None:
    first, again = (assign(problem, time_limit=SOME, seed=1) for _ in range(2))
    assert first.offsets.tolist() == again.offsets.tolist()


def test_a_clock_that_stands_still_changes_nothing() -> None:
    problem = random_problem(11, count=60, longest=30, largest=99)
    with_clock = assign(problem, time_limit=SOME, clock=lambda: 0.0)
    assert with_clock.offsets.tolist() == assign(problem, time_limit=SOME).offsets.tolist()


def test_a_clock_that_runs_away_ends_the_search() -> None:
    times = iter(range(1_000_000))
    problem = random_problem(11, count=60, longest=30, largest=99)
    check(problem, assign(problem, time_limit=1e6, clock=lambda: 1e9 * next(times)))


def test_a_large_random_problem_ends() -> None:
    random = np.random.default_rng(0)
    start = random.integers(0, 100_000, 100_000)
    problem = Problem(
        start=start, end=start + random.integers(1, 200, 100_000), size=random.integers(1, 1000, 100_000) * 512
    )
    solution = assign(problem, time_limit=1.0)
    check(problem, solution)
    assert solution.height <= 1.2 * solution.bound


def test_problems_at_their_bound_load_no_compiled_code() -> None:
    script = (
        "import sys; from snplan.arena.problem import make_problem; from snplan.arena.solve import assign;"
        "assign(make_problem([(i, i + 3) for i in range(200)], [512] * 200));"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def training_step(seed: int, *, saved: int) -> Problem:
    """Buffers as in a training step: saved ones nest around its middle, twice as many live only for a moment."""
    draw = np.random.default_rng(seed)
    forward, start = np.arange(saved), draw.integers(0, 2 * saved, 2 * saved)
    end = np.concatenate([2 * saved - forward + draw.integers(1, 30, saved), start + draw.integers(1, 12, 2 * saved)])
    size = 512 * draw.choice([1, 2, 3, 4, 6, 8, 12, 49], 3 * saved)
    return Problem(start=np.concatenate([forward, start]), end=end, size=size)


@pytest.mark.parametrize("seed", [6, 25, 66])
def test_hundreds_of_small_buffers_get_to_the_bound_where_greedy_orders_do_not(seed: int) -> None:
    problem = training_step(seed, saved=233)
    assert assign(problem, time_limit=0).height > lower_bound(problem)
    solution = assign(problem, time_limit=2)
    check(problem, solution)
    assert solution.optimal
