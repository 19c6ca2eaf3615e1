"""The outside checker of plans, for the tests of strategies."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Judge = Callable[[dict[str, Any], int], tuple[list[Any], dict[str, Any]]]


@pytest.fixture(scope="session")
def judge(shared: Path) -> Judge:
    """What judges a plan, given as JSON, within a budget."""
    spec = importlib.util.spec_from_file_location("judge", shared / "accept" / "judge.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Judge = module.judge
    return found
