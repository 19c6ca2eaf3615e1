"""What every test may use: the command line as a subprocess, and the folder of shared test data where it is there."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Tests say nothing of times: the first call of a kernel compiles it. Every run tries the same examples;
# `--hypothesis-profile random` tries others.
settings.register_profile("random", deadline=None)
settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same")

CHECKOUT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A finished command: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Snplan = Callable[..., Finished]
Judge = Callable[..., tuple[list[Any], dict[str, Any]]]


def run_snplan(
    *args: object, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 300
) -> Finished:
    """`snplan ARGS` in a process of its own, without standard input."""
    done = subprocess.run(
        [sys.executable, "-m", "snplan", *map(str, args)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        timeout=timeout,
        check=False,
    )
    return Finished(code=done.returncode, out=done.stdout, err=done.stderr)


@pytest.fixture(scope="session")
def snplan() -> Snplan:
    """Runs `snplan ARGS` in a process of its own: `snplan("verify", path)`."""
    return run_snplan


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The top folder of the repository."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared test data: the setting SNPLAN_SHARED, or `shared` beside the checkout; skips without it."""
    folder = Path(os.environ.get("SNPLAN_SHARED") or CHECKOUT.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"no folder of shared test data at {folder} (SNPLAN_SHARED)")
    return folder


@pytest.fixture(scope="session")
def judge(shared: Path) -> Judge:
    """The outside checker: findings and facts of a plan, given as JSON, within a budget."""
    spec = importlib.util.spec_from_file_location("judge", shared / "accept" / "judge.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Judge = module.judge
    return found
