"""Sweeps: budgets, the best plan carried upwards, and a CSV that can be continued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snplan import models
from snplan.compiler import CompileOptions, Prepared, prepare
from snplan.errors import UsageError
from snplan.explore.sweep import (
    FEASIBLE,
    INFEASIBLE,
    UNKNOWN,
    Figures,
    Point,
    carried,
    default_budgets,
    fingerprint,
    sweep,
)
from snplan.explore.table import COLUMNS, SweepFile
from snplan.frontend import load_model

SHA = "ab" * 32


def point(budget: int, step_us: int | None, status: str = FEASIBLE) -> Point:
    """A point whose plan was found at its budget; None: there is none."""
    if step_us is None:
        return Point(budget_bytes=budget, status=status if status != FEASIBLE else UNKNOWN)
    figures = Figures(
        found_at_bytes=budget,
        arena_bytes=budget,
        host_bytes=0,
        step_time_us=step_us,
        offload_bytes=1,
        prefetch_bytes=2,
        recompute_ops=3,
        recompute_us=4,
    )
    return Point(budget_bytes=budget, status=FEASIBLE, lower_bound_us=1, figures=figures)


def times(points: Sequence[Point]) -> list[int | None]:
    """Step times in order."""
    return [None if p.figures is None else p.figures.step_time_us for p in points]


def test_the_best_plan_is_carried_upwards() -> None:
    found = carried([point(4, 70), point(1, 90), point(3, 95), point(2, 80), point(5, None)])
    assert [p.budget_bytes for p in found] == [1, 2, 3, 4, 5]
    assert times(found) == [90, 80, 80, 70, 70]
    assert [p.figures.found_at_bytes for p in found if p.figures] == [1, 2, 2, 4, 4]


def test_nothing_is_carried_downwards() -> None:
    found = carried([point(1, None, INFEASIBLE), point(2, None), point(3, 50)])
    assert times(found) == [None, None, 50]
    assert [p.status for p in found] == [INFEASIBLE, UNKNOWN, FEASIBLE]


@given(st.lists(st.tuples(st.integers(1, 50), st.one_of(st.none(), st.integers(1, 99))), unique_by=lambda t: t[0]))
def test_time_never_rises_and_carrying_twice_changes_nothing(rows: list[tuple[int, int | None]]) -> None:
    found = carried([point(budget, step) for budget, step in rows])
    known = [step for step in times(found) if step is not None]
    assert known == sorted(known, reverse=True)
    assert all(p.figures is None or p.figures.arena_bytes <= p.budget_bytes for p in found)
    assert carried(found) == found


@pytest.fixture
def file(tmp_path: Path) -> SweepFile:
    return SweepFile(path=tmp_path / "s.csv", model_sha256=SHA, options="0123456789abcdef")


def test_a_file_reads_back(file: SweepFile) -> None:
    assert file.read() == []
    points = [point(1, None, INFEASIBLE), point(2, 30)]
    file.write(points)
    file.append(point(3, 20))
    assert file.read() == [*points, point(3, 20)]
    assert file.path.read_text().splitlines()[0] == ",".join(COLUMNS)


@pytest.mark.parametrize("left", [1, 10, 60])
def test_a_line_that_was_cut_off_is_left_out(file: SweepFile, left: int) -> None:
    file.write([point(1, 40), point(2, 30)])
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[: whole.rindex(b"\n", 0, -1) + left])
    assert file.read() == [point(1, 40)]


def test_a_header_that_was_cut_off(file: SweepFile) -> None:
    file.path.write_text(",".join(COLUMNS)[:20])
    assert file.read() == []


@pytest.mark.parametrize("field", ["model_sha256", "options"])
def test_another_model_or_other_options_are_refused(file: SweepFile, field: str) -> None:
    file.write([point(1, 40)])
    with pytest.raises(UsageError, match="SNP-U071"):
        SweepFile(**{**asdict(file), field: "another"}).read()


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n", "no sweep", f"{','.join(COLUMNS)}\nx,feasible,1,1,1,1,1,1,1,1,1,{SHA},0123456789abcdef\n"]
)
def test_other_files_are_left_alone(file: SweepFile, text: str) -> None:
    file.path.write_text(text)
    with pytest.raises(UsageError, match="SNP-U070"):
        file.read()
    assert file.path.read_text() == text


def test_binary_files_are_no_sweep(file: SweepFile) -> None:
    file.path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="SNP-U070"):
        file.read()


OPTIONS = CompileOptions(budget_bytes=1, reserve_bytes=1024)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    built = models.build("mlp", batch=8, widths=(64, 128, 64, 10))
    return prepare(load_model(built.SerializeToString()), OPTIONS)


def test_default_budgets_go_from_the_floor_to_keep_all(prepared: Prepared) -> None:
    budgets = default_budgets(prepared, OPTIONS, 5)
    assert budgets[0] == prepared.lowest.bytes + 1024
    assert budgets[-1] == prepared.everything.body.arena_bytes + 1024
    assert len(budgets) == 5
    assert all((budget - 1024) % 512 == 0 for budget in budgets)
    assert default_budgets(prepared, OPTIONS, 1) == budgets[-1:]


def test_a_sweep_is_monotone_within_budgets_and_refuses_nothing(prepared: Prepared) -> None:
    budgets = default_budgets(prepared, OPTIONS, 6)
    points = carried(sweep(prepared, OPTIONS, budgets))
    assert [p.budget_bytes for p in points] == budgets
    assert {p.status for p in points} == {FEASIBLE}
    for p in points:
        assert p.figures is not None
        assert p.lower_bound_us is not None
        assert p.figures.arena_bytes + 1024 <= p.budget_bytes
        assert p.lower_bound_us <= p.figures.step_time_us
    assert times(points) == sorted(times(points), key=lambda t: -(t or 0))
    assert times(points)[-1] == prepared.everything.step_us


def test_known_points_are_not_planned_again(prepared: Prepared) -> None:
    budgets = default_budgets(prepared, OPTIONS, 3)
    found = list(sweep(prepared, OPTIONS, budgets, known=[point(budgets[0], 5), point(budgets[2], 5)]))
    assert [p.budget_bytes for p in found] == [budgets[1]]


def test_the_fastest_possible_plan_is_not_looked_for_again(prepared: Prepared) -> None:
    """At keep-all the step takes as long as its ops: nothing above it can be faster."""
    top = default_budgets(prepared, OPTIONS, 1)[0]
    first, second, third = sweep(prepared, OPTIONS, [top - 512, top, top + 512])
    assert second.figures is not None
    assert third.figures is not None
    assert second.figures.step_time_us == sum(prepared.indexed.cost) == third.lower_bound_us
    assert third.figures.found_at_bytes < third.budget_bytes
    assert first.budget_bytes < second.budget_bytes < third.budget_bytes


def test_a_budget_under_the_floor(prepared: Prepared) -> None:
    (found,) = sweep(prepared, OPTIONS, [prepared.lowest.bytes + 512])
    assert found == Point(budget_bytes=prepared.lowest.bytes + 512, status=INFEASIBLE)


def test_an_interrupted_point_is_not_kept(prepared: Prepared) -> None:
    budgets = default_budgets(prepared, OPTIONS, 3)
    answered: list[Point] = []
    for found in sweep(prepared, OPTIONS, budgets, interrupted=lambda: bool(answered)):
        answered.append(found)
    assert [p.budget_bytes for p in answered] == budgets[:1]


def test_the_fingerprint_tells_options_apart(prepared: Prepared) -> None:
    same = fingerprint(prepared, replace(OPTIONS, budget_bytes=7))
    assert same == fingerprint(prepared, OPTIONS)
    assert len(same) == 16
    for change in ({"reserve_bytes": 0}, {"host_bytes": 5}, {"precision": "tf32"}):
        assert fingerprint(prepared, replace(OPTIONS, **change)) != same
