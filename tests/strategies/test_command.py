"""`--strategy` on the command line: plans that run, refusals with exit code 4, wrong names with exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Snplan


@pytest.fixture(scope="module")
def model(snplan: Snplan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small MLP."""
    path = tmp_path_factory.mktemp("model") / "mlp.onnx"
    assert snplan("model", "mlp", "--widths", "64,128,64,10", "--batch", 64, "-o", path).code == 0
    return path


def test_a_plan_with_parts_left_out_is_made_and_checked(snplan: Snplan, model: Path, tmp_path: Path) -> None:
    plan = tmp_path / "p.plan.json"
    made = snplan("compile", model, "--gpu-mem", "2G", "--strategy", "superneurons:-cache", "-o", plan, "--json")
    assert made.code == 0, made.err
    assert made.json["strategy"] == "superneurons:-cache"
    assert made.json["offload_bytes"] > 0
    assert snplan("verify", plan).code == 0
    assert snplan("run", plan, "--model", model, "--check", "--json").json["checked"] is True


def test_a_rule_that_does_not_fit_is_refused_with_what_it_needs(snplan: Snplan, model: Path, tmp_path: Path) -> None:
    plan = tmp_path / "p.plan.json"
    made = snplan(
        *("compile", model, "--gpu-mem", 160_000, "--reserve", 0),
        *("--strategy", "baseline", "-o", plan, "--json"),
    )
    assert made.code == 4
    assert made.json["status"] == "infeasible"
    assert made.json["code"] == "SNP-P004"
    assert made.json["wanted_bytes"] > made.json["budget_bytes"] == 160_000
    assert not plan.exists()


@pytest.mark.parametrize("text", ["superneuron", "superneurons:-cash", "liveness:-cache"])
def test_wrong_names_and_parts_are_wrong_usage(text: str, snplan: Snplan, model: Path, tmp_path: Path) -> None:
    made = snplan("compile", model, "--gpu-mem", "2G", "--strategy", text, "-o", tmp_path / "p.plan.json", "--json")
    assert made.code == 2
    assert made.json["code"] == "SNP-U003"


def test_compare_takes_parts_as_well(snplan: Snplan, model: Path) -> None:
    names = ["superneurons", "superneurons:-recompute"]
    made = snplan("compare", model, "--gpu-mem", "2G", "--strategies", ",".join(names), "--json")
    assert made.code == 0, made.err
    assert [row["strategy"] for row in made.json["strategies"]] == names
