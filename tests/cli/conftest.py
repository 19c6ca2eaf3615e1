"""Files that the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.plans import small_plan

from snplan.plan.file import write_plan


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    """The small plan as a file."""
    path = tmp_path / "small.plan.json"
    write_plan(small_plan(), path)
    return path
