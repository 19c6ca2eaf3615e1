"""Real exports: every strategy gives judged and verified plans, or refuses with the reason."""

from __future__ import annotations

import csv
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_strategy_models import SPECS

from snplan.compiler import CompileOptions, Prepared, plan_prepared, prepare
from snplan.errors import InfeasibleError, SnplanError
from snplan.plan.file import encode_plan
from snplan.plan.model import StepPlan

Judge = Callable[[dict[str, Any], int], tuple[list[Any], dict[str, Any]]]
MODELS, MOST_NODES = 10, 250


@pytest.fixture(scope="module")
def models(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Models in training mode with all dimensions bound, spread over their sizes."""
    archive = shared / "corpus" / "open.tar.xz"
    if not archive.is_file():
        pytest.skip(f"no corpus at {archive}")
    folder = tmp_path_factory.mktemp("corpus")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    index = next(iter(sorted(folder.rglob("INDEX.csv"))))
    with index.open() as file:
        rows = [row for row in csv.DictReader(file) if (index.parent / row["file"]).is_file()]
    bound = [row for row in rows if not row["dynamic_dims"] and "_train" in row["file"]]
    small = sorted((int(row["nodes"]), row["file"]) for row in bound if 20 <= int(row["nodes"]) <= MOST_NODES)
    return [index.parent / name for _, name in small]


def step_of(path: Path) -> Prepared | None:
    """The model's training step; None where the model is refused."""
    try:
        return prepare(path, CompileOptions(budget_bytes=1 << 50))
    except SnplanError:
        return None


def planned(found: Prepared, spec: str, share: float) -> StepPlan | InfeasibleError:
    """The plan at floor + share * (keep-all - floor), or why there is none."""
    lowest, highest = found.unfused.lowest.bytes, found.everything.body.arena_bytes
    budget = int(lowest + share * max(0, highest - lowest))
    try:
        return plan_prepared(found, CompileOptions(budget_bytes=budget, reserve_bytes=0, strategy=spec)).plan
    except InfeasibleError as refusal:
        return refusal


@pytest.mark.slow
def test_models_of_all_sizes_are_planned_or_refused_by_every_strategy(models: list[Path], judge: Judge) -> None:
    seen = 0
    for path in models[:: max(1, len(models) // (MODELS + 2))]:
        found = step_of(path)
        if found is None:
            continue
        seen += 1
        for spec in SPECS:
            plan = planned(found, spec, 0.5)
            if isinstance(plan, InfeasibleError):
                assert plan.code == "SNP-P004", (path.name, spec)
                plan = planned(found, spec, 100.0)
            assert isinstance(plan, StepPlan), (path.name, spec)
            assert judge(json.loads(encode_plan(plan)), plan.budget_bytes)[0] == [], (path.name, spec)
    assert seen >= MODELS
