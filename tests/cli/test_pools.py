"""Plans over external pools through the command line: judged by the verifier, replayed bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.plans import answer

from snplan.plan.file import read_plan


def at_the_floor(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    """A plan at the floor, where all moves."""
    floor = answer(capsys, "compile", "mlp.onnx", "--gpu-mem", "1G", "-o", "all.plan.json")["floor_bytes"]
    return answer(
        *(capsys, "compile", "mlp.onnx", "--gpu-mem", floor, "--reserve", 0, "-o", "p.plan.json", *words), code=code
    )


def test_the_fastest_pool_is_filled_first(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = at_the_floor(capsys, "--pool", "host:1G", "--pool", "peer:20K@100GB/s", "--pool", "remote:1G@6GB/s+20us")
    plan = read_plan("p.plan.json")
    assert {slot.pool for slot in plan.slots} == {"host", "peer"}  # nothing is left for the slowest
    assert plan.options["pools"] == ["host:1G", "peer:20K@100GB/s", "remote:1G@6GB/s+20us"]
    assert [pool["name"] for pool in plan.device["pools"]] == ["host", "peer", "remote"]
    pools = answer(capsys, "inspect", "p.plan.json")["pool_bytes"]
    assert 0 < pools["peer"] <= 20 << 10
    assert pools["host"] + pools["peer"] == made["host_bytes"]
    assert answer(capsys, "run", "p.plan.json", "--check")["checked"] is True


def test_a_slower_pool_is_a_slower_step(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fast = at_the_floor(capsys, "--pool", "peer:1G@100GB/s")["step_time_us"]
    slow = at_the_floor(capsys, "--pool", "remote:1G@100MB/s")["step_time_us"]
    assert fast < slow


def test_the_host_alone_is_the_default(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_pool = at_the_floor(capsys, "--pool", "host:64G")
    plain = at_the_floor(capsys, "--host-mem", "64G")
    assert with_pool["step_time_us"] == plain["step_time_us"]
    plan = read_plan("p.plan.json")
    assert "pools" not in plan.options
    assert "pools" not in plan.device
    assert {slot.pool for slot in plan.slots} == {None}


def test_pools_without_room(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = at_the_floor(capsys, "--pool", "peer:4K@10GB/s", code=5)
    assert refused["code"] == "SNP-P002"


def test_a_plan_over_pools_is_planned_again(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at_the_floor(capsys, "--pool", "host:1G", "--pool", "peer:20K@100GB/s")
    found = answer(capsys, "inspect", "p.plan.json", "--what-if", "--more", 512)["what_if"]
    assert found["saved_us"] >= 0


@pytest.mark.parametrize(
    "words",
    [
        ["--pool", "peer:8G"],
        ["--pool", "host:8G", "--pool", "host:9G"],
        ["--pool", "host:8G", "--host-mem", "9G"],
    ],
)
def test_wrong_usage(words: list[str], model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "compile", "mlp.onnx", "--gpu-mem", "1G", *words, code=2)["code"] in ("SNP-U006", "SNP-U007")
