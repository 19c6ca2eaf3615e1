"""Commands that need no planner load none of its packages: their start-up time is theirs alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("onnx", "ortools", "networkx", "scipy", "numpy", "safetensors", "zstandard")


def loaded(*words: str) -> tuple[int, set[str]]:
    """The exit code of a command and the heavy packages that it loaded."""
    code = (
        "import sys\n"
        "from snplan.cli import main\n"
        "code = main(sys.argv[1:])\n"
        f"print(code, *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=True)
    number, *names = done.stderr.splitlines()[-1].split()
    return int(number), set(names)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["compile", "--help"], ["model"], ["run", "absent"]])
def test_light_commands(words: list[str]) -> None:
    assert loaded(*words)[1] == set()


def test_wrong_usage_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.touch()
    assert loaded("compile", str(model), "--gpu-mem", "12Gb") == (2, set())
    assert loaded("compile", str(model), "--gpu-mem", "1G", "-o", str(tmp_path / "absent" / "p.json")) == (2, set())


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_plans_are_read_without_the_planner(command: str, plan_file: Path) -> None:
    assert loaded(command, str(plan_file)) == (0, set())
