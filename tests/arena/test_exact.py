"""The exact search: every combination of its switches against brute force, its stages by hand, its restarts."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from property.problems import fixed_problems, lowest_height, problems, random_problem

from snplan.arena.exact import ExactOptions, Verdict, blank, build, decide, sections
from snplan.arena.problem import FREE, Int64, Problem, height_of, lower_bound, make_problem, validate

NODES = 20_000
SWITCHES = [field.name for field in fields(ExactOptions) if field.type == "bool"]
COMBINATIONS = [dict(zip(SWITCHES, values, strict=True)) for values in product((True, False), repeat=len(SWITCHES))]


@cache
def small_problems() -> list[tuple[Problem, int]]:
    """Problems with their lowest heights; one in three with a fixed buffer, and as many as can be with a gap."""
    pool = [random_problem(seed, count=6, longest=7, largest=4, fixed=seed % 3 == 0) for seed in range(120)]
    solved = [(problem, lowest_height(problem)) for problem in pool]
    gapped = [(problem, height) for problem, height in solved if height > lower_bound(problem)]
    assert len(gapped) >= 4
    return gapped[:8] + solved[:8]


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("dominance", [True, False])
def test_no_combination_of_switches_changes_feasibility(dominance: bool, dynamic: bool) -> None:
    for switches in COMBINATIONS:
        if switches["dominance"] == dominance and switches["dynamic"] == dynamic:
            check_against_brute_force(ExactOptions(**switches, restart=NODES))


def check_against_brute_force(options: ExactOptions) -> None:
    for problem, height in small_problems():
        found = decide(problem, height, nodes=NODES, options=options)
        assert found.verdict is Verdict.FITS, (options, problem)
        assert found.offsets is not None
        assert validate(problem, found.offsets) is None, (options, problem)
        assert height_of(problem, found.offsets) <= height
        assert decide(problem, height - 1, nodes=NODES, options=options).verdict is Verdict.NEVER, (options, problem)


def test_short_restarts_change_nothing_either() -> None:
    for learn in (True, False):
        check_against_brute_force(ExactOptions(restart=1, learn=learn))


@settings(max_examples=60, deadline=None)
@given(problems(most=6, longest=6, largest=4))
def test_random_problems_against_brute_force(problem: Problem) -> None:
    height = lowest_height(problem)
    assert decide(problem, height, nodes=NODES).verdict is Verdict.FITS
    if height:
        assert decide(problem, height - 1, nodes=NODES).verdict is Verdict.NEVER


@settings(max_examples=60, deadline=None)
@given(fixed_problems(most=6))
def test_fixed_problems_against_brute_force(problem: Problem) -> None:
    height = lowest_height(problem)
    found = decide(problem, height, nodes=NODES)
    assert found.offsets is not None
    assert validate(problem, found.offsets) is None
    if height:
        assert decide(problem, height - 1, nodes=NODES).verdict is Verdict.NEVER


@settings(max_examples=60, deadline=None)
@given(problems(most=25))
def test_what_fits_is_a_placement_within_the_capacity(problem: Problem) -> None:
    capacity = lower_bound(problem) + 2
    found = decide(problem, capacity, nodes=2000)
    if found.offsets is not None:
        assert validate(problem, found.offsets) is None
        assert height_of(problem, found.offsets) <= capacity


def test_a_capacity_under_the_bound_takes_no_search() -> None:
    found = decide(make_problem([(0, 2), (1, 3)], [4, 4]), 7, nodes=NODES)
    assert (found.verdict, found.nodes) == (Verdict.NEVER, 0)


def test_without_nodes_nothing_is_known() -> None:
    problem = small_problems()[0][0]
    assert decide(problem, lower_bound(problem), nodes=0).verdict is Verdict.UNKNOWN


def test_the_search_stops_when_told() -> None:
    problem = small_problems()[0][0]
    assert decide(problem, lower_bound(problem), nodes=NODES, stop=lambda: True).verdict is Verdict.UNKNOWN


def test_no_buffers_and_empty_buffers_fit_anything() -> None:
    assert decide(make_problem([], []), 0, nodes=NODES).verdict is Verdict.FITS
    found = decide(make_problem([(0, 1), (0, 2)], [0, 0], [FREE, 5]), 5, nodes=NODES)
    assert found.offsets is not None
    assert found.offsets.tolist() == [0, 5]


def test_a_fixed_buffer_in_the_middle_is_packed_around() -> None:
    problem = make_problem([(0, 4), (0, 4), (0, 4)], [3, 2, 4], [FREE, 3, FREE])
    found = decide(problem, 9, nodes=NODES)
    assert found.offsets is not None
    assert found.offsets.tolist() == [0, 3, 5]


def test_equal_seeds_give_equal_offsets() -> None:
    problem = random_problem(5, count=40, longest=20, largest=9)
    capacity = lower_bound(problem) + 1
    first, again = (decide(problem, capacity, nodes=5000, seed=3) for _ in range(2))
    assert first.nodes == again.nodes
    assert first.offsets is not None
    assert again.offsets is not None
    assert first.offsets.tolist() == again.offsets.tolist()


def test_nodes_are_a_limit() -> None:
    problem = random_problem(7, count=60, longest=25, largest=50)
    found = decide(problem, lower_bound(problem), nodes=500, options=ExactOptions(restart=100))
    assert found.nodes <= 500


def test_maximal_sections() -> None:
    # Sections by time: {0}, {0 1}, {1}, {1 2}, {2}; only {0 1} and {1 2} are in no other.
    problem = make_problem([(0, 3), (1, 5), (4, 7)], [1, 1, 1])
    first, last, count = sections(problem)
    assert (first.tolist(), last.tolist(), count) == ([0, 0, 1], [1, 2, 2], 2)
    first, last, count = sections(problem, maximal=False)
    assert (first.tolist(), last.tolist(), count) == ([0, 1, 3], [2, 4, 5], 5)


@given(problems(most=15))
def test_sections_are_shared_by_those_live_together_and_by_no_others(problem: Problem) -> None:
    if len(problem) == 0:
        return
    together = (problem.start[:, None] < problem.end[None]) & (problem.start[None] < problem.end[:, None])
    for maximal in (True, False):
        first, last, _ = sections(problem, maximal=maximal)
        assert ((first[:, None] < last[None]) & (first[None] < last[:, None])).tolist() == together.tolist()


@given(problems(most=15))
def test_maximal_sections_contain_no_other(problem: Problem) -> None:
    if len(problem) == 0:
        return
    first, last, count = sections(problem)
    inside = [frozenset(np.flatnonzero((first <= k) & (k < last)).tolist()) for k in range(count)]
    assert not any(a <= b for i, a in enumerate(inside) for j, b in enumerate(inside) if i != j)


def ints(*values: int) -> Int64:
    return np.array(values, np.int64)


def test_the_model_lists_neighbors_and_twins() -> None:
    model = build(ints(0, 1, 0, 0), ints(2, 2, 1, 2), ints(4, 3, 4, 4), ints(FREE, FREE, FREE, FREE))
    assert model.first_neighbor.tolist() == [0, 3, 5, 7, 10]
    near = [sorted(part.tolist()) for part in np.split(model.neighbor, model.first_neighbor[1:-1])]
    assert near == [[1, 2, 3], [0, 3], [0, 3], [0, 1, 2]]
    assert model.twin.tolist() == [-1, -1, -1, 0]
    assert model.obstacle.tolist() == []


def test_fixed_buffers_are_nobody_s_twins() -> None:
    model = build(ints(0, 0, 0), ints(1, 1, 1), ints(4, 4, 4), ints(8, FREE, 0))
    assert model.twin.tolist() == [-1, -1, -1]
    assert model.obstacle.tolist() == [0, 2]


def test_the_first_state_has_placed_nothing() -> None:
    model = build(ints(0, 1), ints(2, 2), ints(4, 3), ints(FREE, FREE))
    state = blank(model, 2)
    assert state.stack.tolist() == [0, 0]
    assert state.by_bound.tolist() == [0, 1]
    assert state.placed.tolist() == [0, 0]
    assert state.link.tolist() == [1, 2, 0]
    assert state.back.tolist() == [2, 0, 1]


def test_options_are_values() -> None:
    assert replace(ExactOptions(), twins=False) == ExactOptions(twins=False)
    assert set(SWITCHES) >= {"dominance", "support", "sections", "twins", "dynamic", "decompose", "maximal"}
