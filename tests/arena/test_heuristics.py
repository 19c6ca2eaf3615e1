"""Greedy placements and orders: hand-made cases, the two implementations against each other, plain recounts."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.problems import fixed_problems, problems

from snplan.arena import heuristics
from snplan.arena.heuristics import (
    COMPILED,
    ORDERS,
    best_fit,
    by_area,
    by_conflicts,
    by_contention,
    by_duration,
    by_end,
    by_size,
    by_start,
    by_tightness,
    conflicts,
    first_fit,
    peak_live,
    place_compiled,
    place_interpreted,
)
from snplan.arena.problem import FREE, Problem, height_of, lower_bound, make_problem, validate

# Under the last buffer there are a gap of 6 bytes (at 2) and one of 3 (at 10): 0 and 1 hold the gaps open.
GAPS = make_problem(
    [(0, 9), (0, 1), (0, 9), (0, 1), (0, 9), (5, 6)],
    [2, 6, 2, 3, 1, 3],
)


def test_first_fit_takes_the_lowest_gap() -> None:
    assert first_fit(GAPS, np.arange(6)).tolist() == [0, 2, 8, 10, 13, 2]


def test_best_fit_takes_the_smallest_gap() -> None:
    assert best_fit(GAPS, np.arange(6)).tolist() == [0, 2, 8, 10, 13, 10]


def test_without_a_gap_a_buffer_goes_on_top() -> None:
    problem = make_problem([(0, 2), (0, 2), (1, 3)], [4, 3, 8])
    assert first_fit(problem, np.arange(3)).tolist() == [0, 4, 7]
    assert best_fit(problem, np.arange(3)).tolist() == [0, 4, 7]


def test_the_order_decides_who_is_first() -> None:
    problem = make_problem([(0, 2), (0, 2)], [4, 3])
    assert first_fit(problem, np.array([1, 0])).tolist() == [3, 0]


def test_fixed_buffers_are_there_from_the_start() -> None:
    problem = make_problem([(0, 2), (0, 2), (0, 2)], [4, 3, 2], [FREE, 3, FREE])
    assert first_fit(problem, np.arange(3)).tolist() == [6, 3, 0]


def test_orders() -> None:
    # duration 4, 1, 2; area 8, 5, 6
    problem = make_problem([(0, 4), (4, 5), (1, 3)], [2, 5, 3])
    assert by_size(problem).tolist() == [1, 2, 0]
    assert by_area(problem).tolist() == [0, 2, 1]
    assert by_duration(problem).tolist() == [0, 2, 1]
    assert by_start(problem).tolist() == [0, 2, 1]
    assert by_end(problem).tolist() == [1, 0, 2]
    assert by_conflicts(problem).tolist() == [2, 0, 1]
    assert by_contention(problem).tolist() == [1, 2, 0]


def test_conflicts_and_peaks() -> None:
    problem = make_problem([(0, 4), (4, 5), (1, 3), (2, 5)], [2, 5, 3, 1])
    assert conflicts(problem).tolist() == [2, 1, 2, 3]
    assert peak_live(problem).tolist() == [6, 6, 6, 6]
    assert peak_live(make_problem([], [])).tolist() == []


def test_tightness_counts_the_times_at_the_peak() -> None:
    # The peak of 10 bytes is at times 1..2 and 4..5: 1 is live at both of them, 0 and 2 at one each, 3 at none.
    problem = make_problem([(0, 2), (1, 5), (4, 6), (2, 4)], [4, 6, 4, 1])
    assert by_tightness(problem).tolist() == [1, 0, 2, 3]
    assert by_tightness(make_problem([], [])).tolist() == []


@given(problems())
def test_every_order_is_a_permutation(problem: Problem) -> None:
    for order in ORDERS:
        assert sorted(order.rank(problem).tolist()) == list(range(len(problem))), order.name


@given(problems())
def test_conflicts_agree_with_a_count(problem: Problem) -> None:
    together = (problem.start[:, None] < problem.end[None]) & (problem.start[None] < problem.end[:, None])
    assert conflicts(problem).tolist() == (together.sum(1) - 1).tolist()


@given(problems())
def test_peaks_agree_with_a_count_at_every_time(problem: Problem) -> None:
    def live(time: int) -> int:
        return int(problem.size[(problem.start <= time) & (time < problem.end)].sum())

    spans = zip(problem.start.tolist(), problem.end.tolist(), strict=True)
    assert peak_live(problem).tolist() == [max(live(t) for t in range(start, end)) for start, end in spans]


@given(fixed_problems(), st.booleans(), st.randoms(use_true_random=False))
def test_compiled_and_interpreted_agree(problem: Problem, smallest_gap: bool, random: np.random.Generator) -> None:
    indices = list(range(len(problem)))
    random.shuffle(indices)
    order = np.array(indices, np.int64)
    offsets = place_interpreted(problem, order, smallest_gap=smallest_gap)
    assert offsets.tolist() == place_compiled(problem, order, smallest_gap=smallest_gap).tolist()
    assert validate(problem, offsets) is None
    assert height_of(problem, offsets) >= lower_bound(problem)


@given(problems(most=15))
def test_first_fit_agrees_with_a_byte_by_byte_search(problem: Problem) -> None:
    order = by_size(problem)
    found: dict[int, int] = {}
    for i in order.tolist():
        taken = {
            byte
            for j, at in found.items()
            if problem.start[j] < problem.end[i] and problem.start[i] < problem.end[j]
            for byte in range(at, at + int(problem.size[j]))
        }
        offset = 0
        while any(byte in taken for byte in range(offset, offset + int(problem.size[i]))):
            offset += 1
        found[i] = offset
    assert first_fit(problem, order).tolist() == [found[i] for i in range(len(problem))]


@pytest.mark.parametrize("loaded", [False, True])
def test_few_buffers_are_placed_by_compiled_code_only_once_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    used: list[str] = []
    for name in ("place_compiled", "place_interpreted"):
        way = getattr(heuristics, name)

        def noted(*args: Any, way: Any = way, name: str = name, **named: Any) -> Any:
            used.append(name)
            return way(*args, **named)

        monkeypatch.setattr(heuristics, name, noted)
    if loaded:
        importlib.import_module(COMPILED)
    else:
        monkeypatch.delitem(sys.modules, COMPILED, raising=False)
    assert first_fit(GAPS, np.arange(6)).tolist() == [0, 2, 8, 10, 13, 2]
    assert used == ["place_compiled" if loaded else "place_interpreted"]
