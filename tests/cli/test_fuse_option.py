"""`--no-fuse`, and strategies: which plans have fused ops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Snplan

from snplan.plan.file import read_plan


@pytest.fixture(scope="module")
def model(snplan: Snplan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small residual network."""
    path = tmp_path_factory.mktemp("model") / "resnet.onnx"
    options = ("--blocks", "1,1,1,1", "--image", 32, "--width", 0.1, "--classes", 7, "--batch", 2)
    assert snplan("model", "resnet", *options, "-o", path).code == 0
    return path


def compiled(snplan: Snplan, model: Path, folder: Path, *options: Any) -> tuple[dict[str, Any], Any]:
    """Report and plan."""
    plan = folder / "p.plan.json"
    done = snplan("compile", model, "--gpu-mem", "1G", "--reserve", 0, "-o", plan, "--json", *options)
    assert done.code == 0, done.err
    return done.json, read_plan(str(plan))


def kinds(plan: Any) -> set[str]:
    """Kinds of the plan's ops."""
    return {op.kind for op in plan.ops}


def test_ops_are_fused_unless_told_otherwise(snplan: Snplan, model: Path, tmp_path: Path) -> None:
    report, fused = compiled(snplan, model, tmp_path)
    other, plain = compiled(snplan, model, tmp_path, "--no-fuse")
    assert fused.options["fuse"] is True
    assert plain.options["fuse"] is False
    assert "fused" in kinds(fused)
    assert "batch_norm_train" not in kinds(fused)
    assert not kinds(plain) & {"fused", "batch_norm_apply"}
    assert report["step_time_us"] < other["step_time_us"]
    assert report["floor_bytes"] <= other["floor_bytes"]
    assert report["keep_all_bytes"] <= other["keep_all_bytes"]


def test_every_node_is_in_an_op_either_way(snplan: Snplan, model: Path, tmp_path: Path) -> None:
    (_, fused), (_, plain) = (compiled(snplan, model, tmp_path, *options) for options in ((), ("--no-fuse",)))
    nodes = [{node for op in plan.ops for node in op.nodes} for plan in (fused, plain)]
    assert nodes[0] == nodes[1]


def test_strategies_plan_every_op_alone(snplan: Snplan, model: Path, tmp_path: Path) -> None:
    _, plan = compiled(snplan, model, tmp_path, "--strategy", "liveness")
    assert plan.options["fuse"] is False
    assert "fused" not in kinds(plan)


def test_losses_are_the_same_bits(snplan: Snplan, model: Path, tmp_path: Path) -> None:
    losses = []
    for options in ((), ("--no-fuse",)):
        compiled(snplan, model, tmp_path, "--optimizer", "momentum", *options)
        done = snplan("run", tmp_path / "p.plan.json", "--model", model, "--steps", 3, "--check", "--json")
        assert done.code == 0, done.err
        losses.append(done.json["losses"])
    assert losses[0] == losses[1]
