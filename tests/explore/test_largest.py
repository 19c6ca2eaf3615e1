"""The largest size by bisection: exact on steps whose floors are played, and on a model that is planned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snplan import models
from snplan.compiler import CompileOptions, Prepared, prepare
from snplan.errors import InfeasibleError, ModelError, NoPlanError
from snplan.explore import largest
from snplan.explore.largest import Search, gallop
from snplan.frontend import load_model

BUDGET = 100_000
OPTIONS = CompileOptions(budget_bytes=BUDGET, reserve_bytes=0)


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 5000))
def test_galloping_finds_the_border(border: int, guess: int, most: int) -> None:
    asked: list[int] = []

    def fits(count: int) -> bool:
        asked.append(count)
        return count <= border

    assert gallop(fits, guess, most) == min(border, most)
    assert all(1 <= count <= most for count in asked)
    assert len(asked) <= 2 * max(border, guess, 2).bit_length() + 3


class Played:
    """Steps whose floor is `per_size` bytes a size and some fixed ones; plans above a size take twice as long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, per_size: int = 100, slower_above: int = 1 << 60) -> None:
        self.per_size = per_size
        self.slower_above = slower_above
        self.planned: list[int] = []
        self.refused_above = 1 << 60
        monkeypatch.setattr(largest, "plan_prepared", self._plan)

    def make(self, size: int) -> Prepared:
        bytes_needed = 1000 + self.per_size * size
        made = SimpleNamespace(
            size=size,
            lowest=SimpleNamespace(bytes=bytes_needed),
            everything=SimpleNamespace(step_us=1000),
            reserve=lambda options: options.reserve_bytes,
        )
        return cast("Prepared", made)

    def _plan(self, prepared: Any, options: CompileOptions, **_: object) -> SimpleNamespace:
        self.planned.append(prepared.size)
        if prepared.size > self.refused_above:
            raise InfeasibleError("SNP-P004", "the strategy needs more", {"wanted_bytes": 7})
        time = 2000 if prepared.size > self.slower_above else 1100
        return SimpleNamespace(report={"step_time_us": time, "arena_bytes": prepared.lowest.bytes})


def test_the_floor_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    found = Search(make=played.make, options=OPTIONS).run()
    assert found.found is not None
    assert found.refused is not None
    assert (found.found.size, found.refused.size) == (990, 991)  # 1000 + 100 * 990 = 100 000
    assert found.refused.proven
    assert played.planned == [990]


def test_multiples(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Search(make=Played(monkeypatch).make, options=OPTIONS, unit=32).run()
    assert found.found is not None
    assert found.found.size == 960
    assert all(trial.size % 32 == 0 for trial in found.trials)


def test_the_slowdown_bounds_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, slower_above=123)
    found = Search(make=played.make, options=OPTIONS, max_slowdown=1.2).run()
    assert found.found is not None
    assert found.refused is not None
    assert (found.found.size, found.refused.size) == (123, 124)
    assert "2.000 times" in found.refused.reason
    assert not found.refused.proven


def test_a_strategy_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    played.refused_above = 77
    found = Search(make=played.make, options=OPTIONS).run()
    assert found.found is not None
    assert found.found.size == 77
    assert found.refused is not None
    assert found.refused.needed_bytes == 7


def test_the_limit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Search(make=Played(monkeypatch, per_size=0).make, options=OPTIONS, most=64).run()
    assert found.found is not None
    assert (found.found.size, found.refused) == (64, None)


def test_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, per_size=BUDGET)
    with pytest.raises(InfeasibleError, match="SNP-P006"):
        Search(make=played.make, options=OPTIONS).run()
    slow = Played(monkeypatch, slower_above=0)
    with pytest.raises(NoPlanError, match="SNP-P007"):
        Search(make=slow.make, options=OPTIONS, max_slowdown=1.2).run()


def test_sizes_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)

    def make(size: int) -> Prepared:
        if size > 50:
            raise ModelError("SNP-I013", "too large")
        return played.make(size)

    found = Search(make=make, options=OPTIONS).run()
    assert found.found is not None
    assert found.refused is not None
    assert (found.found.size, found.refused.reason) == (50, "too large")

    def broken(size: int) -> Prepared:
        raise ModelError("SNP-I016", "the batch is built in")

    with pytest.raises(ModelError, match="SNP-I016"):
        Search(make=broken, options=OPTIONS).run()


def test_an_interrupt_gives_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, slower_above=400)
    found = Search(
        make=played.make, options=OPTIONS, max_slowdown=1.2, interrupted=lambda: len(played.planned) > 2
    ).run()
    assert not found.complete
    assert found.found is None or found.found.size <= 400


def test_a_real_model() -> None:
    built = load_model(models.build("mlp", batch=8, widths=(64, 128, 64, 10)).SerializeToString())

    def make(batch: int) -> Prepared:
        return prepare(built, CompileOptions(budget_bytes=1, batch=batch))

    room = make(300).lowest.bytes
    found = Search(make=make, options=CompileOptions(budget_bytes=room, reserve_bytes=0)).run()
    assert found.found is not None
    assert found.found.size >= 300
    assert make(found.found.size).lowest.bytes <= room < make(found.found.size + 1).lowest.bytes
    assert found.found.arena_bytes is not None
    assert found.found.arena_bytes <= room


@pytest.mark.parametrize(
    ("time", "keep_all", "limit", "shown"),
    [
        (1500, 1000, 1.2, "1.500 times the keep-all plan's step time, above --max-slowdown 1.2"),
        (79161, 71941, 1.1, "1.1004 times the keep-all plan's step time, above --max-slowdown 1.1"),
        (10_000_001, 10_000_000, 1.0, "1.0000001 times the keep-all plan's step time, above --max-slowdown 1"),
    ],
)
def test_a_plan_that_is_a_little_too_slow_is_not_shown_at_the_limit(
    time: int, keep_all: int, limit: float, shown: str
) -> None:
    assert largest._slow_text(time, keep_all, limit) == shown
