"""`snplan compile --solver cp-sat`: a verified plan that is at least as fast as the one without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Snplan

from snplan.plan.file import read_plan
from snplan.plan.verify import verify


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, snplan: Snplan) -> Path:
    path = tmp_path_factory.mktemp("solver") / "net.onnx"
    assert snplan("model", "resnet", "--blocks", "1,1,1,1", "--batch", "4", "--light", "-o", path).code == 0
    return path


@pytest.fixture(scope="module")
def tight(model: Path, snplan: Snplan) -> int:
    """A budget a third of the way from the floor to keep-all."""
    report = compiled(snplan, model, model.with_name("all.json"), 8 << 30)
    floor: int = report["floor_bytes"]
    keep_all: int = report["keep_all_bytes"]
    return floor + (keep_all - floor) // 3


def compiled(snplan: Snplan, model: Path, plan: Path, budget: int, *more: object) -> dict[str, Any]:
    """The report of a plan of `model` within `budget` bytes."""
    given = ("compile", model, "--gpu-mem", budget, "--reserve", "0", "--json", "-o", plan)
    done = snplan(*given, *more)
    assert done.code == 0, done.err
    return done.json


def test_refined_plans_are_verified_and_no_slower(snplan: Snplan, model: Path, tight: int, tmp_path: Path) -> None:
    plain = compiled(snplan, model, tmp_path / "plain.json", tight)
    refined = compiled(snplan, model, tmp_path / "refined.json", tight, "--solver", "cp-sat", "--time-limit", "6")
    assert plain["solver"] is None
    assert refined["solver"]["status"] in ("feasible", "optimal")
    assert refined["lower_bound_us"] <= refined["step_time_us"] <= plain["step_time_us"]
    assert verify(read_plan(tmp_path / "refined.json")) == []
