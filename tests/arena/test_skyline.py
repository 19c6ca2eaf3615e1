"""Placement on top of what is there."""

from __future__ import annotations

import numpy as np
import pytest

from snplan.arena import portfolio as module
from snplan.arena.heuristics import by_duration
from snplan.arena.problem import height_of, lower_bound, make_problem, validate
from snplan.arena.skyline import skyline
from snplan.arena.solve import assign


def test_each_goes_on_the_highest_that_is_live_with_it() -> None:
    problem = make_problem([(0, 4), (1, 3), (2, 6), (4, 6)], [10, 5, 2, 7])
    assert skyline(problem, np.arange(4)).tolist() == [0, 10, 15, 17]
    assert skyline(problem, np.array([3, 2, 1, 0])).tolist() == [14, 9, 7, 0]


@pytest.mark.parametrize("count", [1, 7, 100])
def test_nested_lifetimes_leave_no_gap(count: int) -> None:
    problem = make_problem([(i, 2 * count - i) for i in range(count)], [1 + i % 5 for i in range(count)])
    offsets = skyline(problem, by_duration(problem))
    assert validate(problem, offsets) is None
    assert height_of(problem, offsets) == lower_bound(problem)


def test_any_lifetimes_do_not_overlap() -> None:
    chance = np.random.default_rng(0)
    start = chance.integers(0, 100, 300)
    stop = start + chance.integers(1, 30, 300)
    problem = make_problem(list(zip(start.tolist(), stop.tolist(), strict=True)), chance.integers(1, 9, 300).tolist())
    assert validate(problem, skyline(problem, by_duration(problem))) is None


def test_problems_of_many_buffers_are_placed_so_where_it_is_near_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CROWDED", 10)
    nested = [(i, 100 - i) for i in range(40)]
    problem = make_problem([*nested, (0, 1), (99, 100)], [4] * 40 + [3, 3])
    found = assign(problem, time_limit=0.0)
    assert validate(problem, found.offsets) is None
    assert found.height == lower_bound(problem) == 160


def test_where_it_is_far_above_the_goal_gaps_are_searched_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem([(0, 9), (9, 20), (5, 12), (0, 5), (12, 20), (2, 4), (14, 18)], [4, 4, 5, 5, 5, 2, 2])
    plain = assign(problem, time_limit=0.0)
    monkeypatch.setattr(module, "CROWDED", 1)
    assert assign(problem, time_limit=0.0).height == plain.height
