"""Files that the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.plans import small_plan

from snplan import models
from snplan.plan.file import write_plan


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    """The small plan as a file."""
    path = tmp_path / "small.plan.json"
    write_plan(small_plan(), path)
    return path


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small MLP in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mlp.onnx"
    models.save(models.build("mlp", batch=8, widths=(64, 128, 64, 10)), path)
    return path
