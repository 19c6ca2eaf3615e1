"""`snplan sweep`, `max-batch`, `max-depth` and `compare` on small models: what they write, and how they end."""

from __future__ import annotations

import csv
import os
import signal
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from cli.plans import answer

import snplan.compiler
import snplan.explore.compare
import snplan.explore.sweep
from snplan.cli import main, options
from snplan.errors import InfeasibleError


def rows(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "sweep", "mlp.onnx", "--points", 4, "--reserve", 0, "--csv", "s.csv", "--svg", "s.svg")
    points = found["points"]
    assert [p["status"] for p in points] == ["feasible"] * 4
    assert points[0]["budget_bytes"] == found["floor_bytes"]
    assert points[-1]["budget_bytes"] == found["keep_all_bytes"]
    assert points[-1]["step_time_us"] == found["keep_all_step_time_us"]
    steps = [p["step_time_us"] for p in points]
    assert steps == sorted(steps, reverse=True)
    assert all(p["arena_bytes"] <= p["budget_bytes"] for p in points)
    assert [int(row["step_time_us"]) for row in rows(Path("s.csv"))] == steps
    assert ET.parse("s.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize("quiet", [False, True])
def test_written_files_are_named_once(quiet: bool, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flag = ["-q"] if quiet else []
    sweep = ["sweep", "mlp.onnx", "--points", "2", "--reserve", "0", "--csv", "s.csv", "--svg", "s.svg"]
    compare = ["compare", "mlp.onnx", "--gpu-mem", "1G", "--strategies", "liveness", "--svg", "c.svg"]
    for words, names in ((sweep, ["s.csv", "s.svg"]), (compare, ["c.svg"])):
        assert main([*words, *flag]) == 0
        captured = capsys.readouterr()
        told = [line for line in captured.err.splitlines() if line.endswith(": written")]
        assert told == ([] if quiet else [f"{name}: written" for name in names])
        assert captured.out == ""


def test_strategies_that_are_refused_alike_share_a_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "mlp.onnx", "--gpu-mem", "1K", "--reserve", "0", "--strategies", "auto,liveness,torch"]
    assert main(words) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "SNP-P001" in line]
    assert len(lines) == 1
    assert lines[0].startswith("  auto, liveness, torch: SNP-P001: ")


def test_the_table_is_on_standard_error(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "mlp.onnx", "--budgets", "700M,1G"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "budget GiB" in captured.err
    assert main(["sweep", "mlp.onnx", "--budgets", "1G", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_sweep_is_continued(model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("sweep", "mlp.onnx", "--points", 4, "--reserve", 0, "--csv", "s.csv")
    whole = answer(capsys, *words)
    text = Path("s.csv").read_text()
    lines = text.splitlines(keepends=True)
    Path("s.csv").write_text("".join(lines[:3]) + lines[3][:20])
    planned: list[int] = []
    plan = snplan.explore.sweep.plan_point

    def counted(prepared: Any, chosen: Any, *rest: Any) -> Any:
        planned.append(chosen.budget_bytes)
        return plan(prepared, chosen, *rest)

    monkeypatch.setattr(snplan.explore.sweep, "plan_point", counted)
    assert answer(capsys, *words)["points"] == whole["points"]
    assert planned == [p["budget_bytes"] for p in whole["points"][2:]]
    assert Path("s.csv").read_text() == text
    other = answer(capsys, *words, "--optimizer", "adam", code=2)
    assert other["code"] == "SNP-U071"
    assert Path("s.csv").read_text() == text


def test_ctrl_c_keeps_what_there_is(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = snplan.explore.sweep.plan_point
    planned: list[int] = []

    def interrupting(prepared: Any, chosen: Any, *rest: Any) -> Any:
        planned.append(chosen.budget_bytes)
        if len(planned) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return plan(prepared, chosen, *rest)

    monkeypatch.setattr(snplan.explore.sweep, "plan_point", interrupting)
    words = ("sweep", "mlp.onnx", "--points", 5, "--reserve", 0, "--csv", "s.csv")
    found = answer(capsys, *words, code=130)
    assert found["status"] == "interrupted"
    assert [p["budget_bytes"] for p in found["points"]] == planned[:2]
    assert [int(row["budget_bytes"]) for row in rows(Path("s.csv"))] == planned[:2]
    planned.clear()
    planned.extend([0] * 3)
    assert len(answer(capsys, *words)["points"]) == 5


def test_budgets_under_the_floor(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "sweep", "mlp.onnx", "--budgets", "1K,1G", "--reserve", 0)
    assert [p["status"] for p in found["points"]] == ["infeasible", "feasible"]
    assert found["points"][0]["step_time_us"] is None
    refused = answer(capsys, "sweep", "mlp.onnx", "--budgets", "1K,2K", "--reserve", 0, code=4)
    assert refused["code"] == "SNP-P001"
    assert refused["floor_bytes"] > 2048


@pytest.mark.parametrize(
    "words",
    [
        ["sweep", "mlp.onnx", "--budgets", "1G", "--points", "3"],
        ["sweep", "mlp.onnx", "--budgets", ","],
        ["sweep", "mlp.onnx", "--budgets", "12Gb"],
        ["sweep", "mlp.onnx", "--points", "0"],
        ["sweep", "mlp.onnx", "--csv", "mlp.onnx"],
        ["sweep", "mlp.onnx", "--mode", "infer", "--loss", "mse"],
        ["sweep", "absent.onnx"],
        ["compare", "mlp.onnx", "--gpu-mem", "1G", "--strategies", "auto,alchemy"],
        ["compare", "mlp.onnx", "--gpu-mem", "1G", "--strategies", ","],
        ["compare", "mlp.onnx", "--gpu-mem", "1G", "--strategy", "auto"],
        ["compare", "mlp.onnx", "--gpu-mem", "1G", "--svg", "absent/x.svg"],
        ["max-batch", "mlp.onnx", "--gpu-mem", "1G", "--batch", "3"],
        ["max-batch", "mlp.onnx", "--gpu-mem", "1G", "--step", "0"],
        ["max-batch", "mlp.onnx", "--gpu-mem", "1G", "--max-slowdown", "0.5"],
        ["max-batch", "mlp.onnx"],
        ["max-depth", "--gpu-mem", "1G", "--most", "10"],
        ["max-depth", "--gpu-mem", "1G", "--image", "8"],
    ],
)
def test_wrong_usage(words: list[str], model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, *words, code=2)["status"] == "rejected"
    assert sorted(path.name for path in model.parent.iterdir()) == ["mlp.onnx"]


def test_the_largest_batch(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budget = 200_000
    found = answer(capsys, "max-batch", "mlp.onnx", "--gpu-mem", budget, "--reserve", 0)
    batch = found["batch"]
    assert found["exact"] is True
    assert found["floor_bytes"] <= found["arena_bytes"] <= budget
    assert found["refused"]["batch"] == batch + 1
    words = ("compile", "mlp.onnx", "--gpu-mem", budget, "--reserve", 0, "--batch")
    assert answer(capsys, *words, batch)["arena_bytes"] <= budget
    assert answer(capsys, *words, batch + 1, code=4)["floor_bytes"] > budget
    stepped = answer(capsys, "max-batch", "mlp.onnx", "--gpu-mem", budget, "--reserve", 0, "--step", 7)
    assert stepped["batch"] == batch // 7 * 7


def test_the_largest_batch_of_a_bounded_slowdown(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("max-batch", "mlp.onnx", "--gpu-mem", 200_000, "--reserve", 0)
    free, bounded = answer(capsys, *words), answer(capsys, *words, "--max-slowdown", 1.0)
    assert 0 < bounded["batch"] <= free["batch"]
    assert bounded["slowdown"] <= 1.0
    assert main([*map(str, words), "--max-slowdown", "1.5"]) == 0
    assert "samples a second" in capsys.readouterr().err


def test_no_batch_fits(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "max-batch", "mlp.onnx", "--gpu-mem", "4K", "--reserve", 0, code=4)
    assert found["code"] == "SNP-P006"
    assert found["floor_bytes"] > 4096
    assert main(["max-batch", str(model), "--gpu-mem", "4K", "--reserve", "2K"]) == 4
    enough = found["floor_bytes"] + 2048
    assert f"({enough:,} B) or more" in capsys.readouterr().err


def test_a_batch_that_is_built_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two inputs whose first dimensions differ share no batch."""
    from onnx import TensorProto, helper

    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 5]),
    ]
    output = helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, 5])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "y"], ["z"])], "g", inputs, [output])
    path = tmp_path / "fixed.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    found = answer(capsys, "max-batch", path, "--gpu-mem", "1G", "--mode", "infer", code=2)
    assert found["code"] == "SNP-U061"
    assert "differ" in found["message"]


def test_the_deepest_resnet(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("max-depth", "--gpu-mem", "4G", "--batch", 1, "--image", 32, "--most", 140)
    found = answer(capsys, *words)
    assert (found["layers"], found["blocks"], found["exact"]) == (140, 2, False)
    refused = answer(capsys, "max-depth", "--gpu-mem", "1M", "--reserve", 0, "--batch", 1, "--image", 32, code=4)
    assert refused["code"] == "SNP-P006"


def test_strategies_side_by_side(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fails does not stop the others."""
    plan = snplan.compiler.plan_prepared

    def picky(prepared: Any, chosen: Any, **rest: Any) -> Any:
        if chosen.strategy == "baseline":
            raise InfeasibleError("SNP-P004", "needs more", {"wanted_bytes": 1 << 31})
        return plan(prepared, chosen, **rest)

    monkeypatch.setattr(snplan.explore.compare, "plan_prepared", picky)
    monkeypatch.setattr(options, "STRATEGIES", ("baseline", "auto"))
    found = answer(
        capsys,
        "compare",
        "mlp.onnx",
        "--gpu-mem",
        "1G",
        "--reserve",
        0,
        "--strategies",
        "baseline,auto",
        "--svg",
        "c.svg",
    )
    first, second = found["strategies"]
    assert (first["strategy"], first["fits"], first["code"], first["needed_bytes"]) == (
        *("baseline", False, "SNP-P004"),
        1 << 31,
    )
    assert (second["strategy"], second["fits"]) == ("auto", True)
    assert second["step_time_us"] == found["keep_all_step_time_us"]
    assert second["largest_batch"] is None
    assert ET.parse("c.svg").getroot().tag.endswith("svg")
    assert main(["compare", "mlp.onnx", "--gpu-mem", "1G", "--reserve", "0"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "baseline: SNP-P004: needs more" in captured.err


@pytest.fixture
def interrupted_after_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second strategy is interrupted."""
    plan = snplan.compiler.plan_prepared
    seen: list[str] = []

    def interrupting(prepared: Any, chosen: Any, **rest: Any) -> Any:
        seen.append(chosen.strategy)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return plan(prepared, chosen, **rest)

    monkeypatch.setattr(snplan.explore.compare, "plan_prepared", interrupting)


@pytest.mark.usefixtures("interrupted_after_one")
def test_an_interrupted_comparison(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "STRATEGIES", ("auto", "baseline"))
    found = answer(capsys, "compare", "mlp.onnx", "--gpu-mem", "1G", code=130)
    assert found["status"] == "interrupted"
    assert [row["strategy"] for row in found["strategies"]] == ["auto"]


def test_largest_batches_of_strategies(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--gpu-mem", 200_000, "--reserve", 0)
    found = answer(capsys, "compare", "mlp.onnx", *words, "--strategies", "auto", "--largest-batch")
    alone = answer(capsys, "max-batch", "mlp.onnx", *words)
    assert found["strategies"][0]["largest_batch"] == alone["batch"]
