"""benchmarks/paper.py as a command, and its tables as text and JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from superneurons.result import Check, Result

NAMES = [
    "fig2",
    "fig5",
    "fig6",
    "fig8",
    "fig10",
    "fig11",
    "fig12",
    "fig13",
    "table1",
    "table2",
    "table3",
    "table4",
    "table5",
]


def _run(checkout: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "benchmarks" / "paper.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_exact_figures_as_json(checkout: Path, tmp_path: Path) -> None:
    done = _run(checkout, "fig5", "fig6", "fig10", "table1", "table3", "--json", "--svg", tmp_path / "plots")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["passed"]
    assert [result["name"] for result in found["results"]] == ["fig5", "fig6", "fig10", "table1", "table3"]
    peaks = {row["technique"]: (row["MiB"], row["tensors"], row["step"]) for row in found["results"][2]["rows"]}
    assert peaks == {
        "baseline": (2189.437, 36, None),
        "liveness": (1489.355, 17, 32),
        "+ offload of CONV outputs": (1132.056, 9, 39),
        "+ cost-aware recompute": (886.23, 4, 44),
        "speed-centric instead": (993.018, 6, 43),
    }
    plots = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert plots == ["fig10-bytes.svg", "fig10-tensors.svg", "fig5.svg", "fig6.svg", "table3.svg"]


def test_text(checkout: Path) -> None:
    done = _run(checkout, "fig10")
    assert done.returncode == 0
    assert "| liveness                  | 32   | pool5 backward | 17      | 1489.355 | 1489.355  |" in done.stdout
    assert "886.230" in done.stdout


def test_unknown_name(checkout: Path) -> None:
    done = _run(checkout, "fig99")
    assert done.returncode == 2
    assert "no figure or table fig99" in done.stderr


def test_all_names_are_there(checkout: Path) -> None:
    help_text = " ".join(_run(checkout, "--help").stdout.split())
    assert ", ".join(NAMES) in help_text


def test_a_missed_bar_shows() -> None:
    result = Result(
        name="t",
        title="a table",
        columns=("a", "b"),
        rows=[[1.5, None]],
        checks=[Check(what="more", passed=False)],
        digits=1,
    )
    assert not result.passed
    assert not result.as_json()["passed"]
    assert result.as_text() == "## t: a table\n\n| a   | b |\n|-----|---|\n| 1.5 | - |\n\n- MISSED: more"


@pytest.mark.parametrize("name", NAMES)
def test_results_on_file_have_every_table(checkout: Path, name: str) -> None:
    text = (checkout / "benchmarks" / "results" / "paper.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {name}: ", text, re.MULTILINE)
    assert "MISSED" not in text
