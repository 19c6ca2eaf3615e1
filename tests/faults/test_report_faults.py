"""Command line and reports: units, shortage told from fragmentation, long work that can be interrupted."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from cuda_fake import FakeGpu
from faults.support import made, saved
from frontend_support import info, model, node, tensor
from onnx import ModelProto

from snplan.cli import main
from snplan.cli.progress import Progress
from snplan.errors import RunError
from snplan.plan.file import read_plan
from snplan.plan.verify import verify
from snplan.report.compiled import compile_tables
from snplan.runtime.cuda.cudnn import describe_failure
from snplan.runtime.cuda.memory import Memory

GIB = 1 << 30


def small() -> ModelProto:
    """A product, summed."""
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("ReduceMean", ["y"], ["loss"], keepdims=0)]
    return model(nodes, [info("x", [64, 64])], ["loss"], [tensor("w", np.ones((64, 64)))])


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("12G", 12_884_901_888),
        ("12g", 12_884_901_888),
        ("12Gi", 12_884_901_888),
        ("12GiB", 12_884_901_888),
        (" 12 GiB ", 12_884_901_888),
        ("12GB", 12_000_000_000),
        ("1.5G", 1_610_612_736),
        ("12884901888", 12_884_901_888),
    ],
)
def test_sizes_mean_what_they_say(text: str, size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through the command line; a decimal unit gets a note."""
    words = ["compile", str(saved(small(), tmp_path)), "--gpu-mem", text, "--json", "-o", str(tmp_path / "p.plan.json")]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["budget_bytes"] == size
    assert any("decimal" in warning for warning in found["warnings"]) == (text == "12GB")


@pytest.mark.parametrize("text", ["12Gb", "0", "-1", "", "12X", "1e99G"])
def test_sizes_that_mean_nothing_are_refused_with_examples(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compile", str(saved(small(), tmp_path)), f"--gpu-mem={text}", "-o", str(tmp_path / "p.plan.json")]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert "12GiB" in err
    assert "12GB" in err


def test_fragmentation_is_told_from_shortage() -> None:
    """Enough in all but not in one piece, or not enough: both with what was wanted, what is free and what there is."""
    gpu = FakeGpu(total=4 * GIB)
    with gpu.current(), pytest.raises(RunError) as caught:
        Memory(gpu).device(5 * GIB, "the arena")
    for part in ("the arena", "5.00 GiB", "4.00 GiB", "in one piece"):
        assert part in caught.value.message
    assert caught.value.details == {"bytes": 5 * GIB, "free_bytes": 4 * GIB, "total_bytes": 4 * GIB}


def test_a_lack_of_workspace_is_called_so() -> None:
    """Not "no implementation": the message has the workspace that the plan gives."""

    class Problem:
        """A convolution in words."""

        @staticmethod
        def describe() -> str:
            """Its words."""
            return "conv of float32[2, 8, 9, 9]"

    error = describe_failure(Problem(), 1 << 20)  # type: ignore[arg-type]
    assert "planned workspace of 1,048,576 B" in error.message
    assert "float32[2, 8, 9, 9]" in error.message


def test_an_unknown_gap_is_no_infinity(tmp_path: Path) -> None:
    """Without a lower bound there is no gap to tell, and none is made up."""
    found = made(small(), tmp_path)
    report = {**found.report, "plan": "p", "lower_bound_us": 0}
    table = compile_tables(found.plan, report)[2]
    cells = " ".join(str(cell) for column in table.columns for cell in column.cells)
    assert "no gap known" in cells
    assert "inf" not in cells
    assert "nan" not in cells


def test_an_interrupt_while_planning_leaves_a_verified_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C asks for the best plan so far: it is written, verified, and the exit code says that it was interrupted."""
    asked: list[str] = []

    def told(self: Progress, what: str, fraction: float | None = None) -> None:
        if what.startswith("plan") and not asked:
            asked.append(what)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Progress, "__call__", told)
    nodes, last = [], "x"
    for i in range(8):
        nodes += [node("MatMul", [last, "w"], [f"z{i}"]), node("Tanh", [f"z{i}"], [f"a{i}"])]
        last = f"a{i}"
    nodes.append(node("ReduceMean", [last], ["loss"], keepdims=0))
    proto = model(nodes, [info("x", [64, 64])], ["loss"], [tensor("w", np.ones((64, 64)) * 0.01)])
    everything = made(proto, tmp_path)
    budget = (everything.report["floor_bytes"] + everything.report["keep_all_bytes"]) // 2
    plan = tmp_path / "p.plan.json"
    words = ["compile", str(saved(proto, tmp_path)), "--gpu-mem", str(budget), "--reserve", "0", "--json"]
    assert main([*words, "-o", str(plan)]) == 130
    assert asked
    found = json.loads(capsys.readouterr().out)
    assert any("interrupted" in warning for warning in found["warnings"])
    assert verify(read_plan(str(plan))) == []
    assert read_plan(str(plan)).arena_bytes <= budget
