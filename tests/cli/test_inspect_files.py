"""`snplan inspect`'s drawings and what-if answers."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from cli.plans import SIZE, answer
from msgspec.structs import replace

from snplan import models
from snplan.cli import main
from snplan.explore.what_if import recorded_options
from snplan.plan.file import read_plan, write_plan


def test_drawings(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html, trace, svg = (tmp_path / name for name in ("p.html", "p.json", "p.svg"))
    assert main(["inspect", str(plan_file), "--html", str(html), "--trace", str(trace), "--svg", str(svg)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"{html}: written\n{trace}: written\n{svg}: written\n"
    assert html.read_text().startswith("<!doctype html>")
    assert json.loads(trace.read_text())["traceEvents"]
    assert ET.parse(svg).getroot().tag.endswith("svg")
    found = answer(capsys, "inspect", plan_file, "--svg", svg)
    assert found["files"] == {"svg": str(svg)}
    assert found["binding"] == "relu_grad g"


def test_a_drawing_and_a_question(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(plan_file), "--svg", str(tmp_path / "p.svg"), "--time", "3"]) == 0
    assert 'run "relu y"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("size", "this_plan", "some_plan"),
    [(7 * SIZE + 512, True, True), (7 * SIZE, False, True), (3 * SIZE, False, True), (3 * SIZE - 512, False, False)],
)
def test_does_it_fit(
    plan_file: Path, size: int, this_plan: bool, some_plan: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "inspect", plan_file, "--fits", size)["fits"]
    assert (found["this_plan"], found["some_plan"]) == (this_plan, some_plan)
    assert (found["needed_bytes"], found["least_bytes"]) == (7 * SIZE + 512, 3 * SIZE)
    assert main(["inspect", str(plan_file), "--fits", str(size)]) == 0
    shown = capsys.readouterr().out
    assert ("cannot fit by any plan" in shown) is not some_plan


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """A plan of an MLP at a tight budget, its model beside it."""
    models.save(models.build("mlp", batch=8, widths=(64, 128, 64, 10)), tmp_path / "mlp.onnx")
    plan = tmp_path / "mlp.plan.json"
    words = ["compile", tmp_path / "mlp.onnx", "--gpu-mem", 90_000, "--reserve", 0, "--batch", 16, "-o", plan, "-q"]
    assert main([*map(str, words), "--freeze", "fc1*"]) == 0
    return plan


def test_what_one_more_gib_buys(compiled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "inspect", compiled, "--what-if")["what_if"]
    plan = read_plan(compiled)
    assert found["budget_bytes"] == plan.budget_bytes + (1 << 30)
    assert found["step_time_us"] == found["keep_all_step_time_us"]  # everything fits there
    assert found["saved_us"] == max(0, plan.step_time_us - found["step_time_us"])
    assert main(["inspect", str(compiled), "--what-if"]) == 0
    assert "1.00 GiB (1,073,741,824 B) more" in capsys.readouterr().out


def test_nothing_is_lost_with_more_memory(compiled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = read_plan(compiled)
    fast = Path(f"{compiled}.fast.json")
    write_plan(replace(plan, step_time_us=1, lower_bound_us=1), fast)
    found = answer(capsys, "inspect", fast, "--what-if", "--more", 512)["what_if"]
    assert (found["better"], found["saved_us"], found["step_time_us"]) == (False, 0, 1)
    assert main(["inspect", str(fast), "--what-if"]) == 0
    assert "nothing: no faster plan" in capsys.readouterr().out


def test_the_plan_is_made_again_with_its_own_options(compiled: Path) -> None:
    chosen = recorded_options(read_plan(compiled), 1 << 30, [compiled.parent])
    assert (chosen.budget_bytes, chosen.reserve_bytes, chosen.batch) == (1 << 30, 0, 16)
    assert chosen.freeze == ("fc1*",)


def test_a_model_that_is_not_there(plan_file: Path, compiled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "inspect", plan_file, "--what-if", code=2)["code"] == "SNP-U010"
    other = answer(capsys, "inspect", plan_file, "--what-if", "--model", compiled.parent / "mlp.onnx", code=2)
    assert other["code"] == "SNP-U050"


def test_options_of_another_version(compiled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = read_plan(compiled)
    write_plan(replace(plan, options={**plan.options, "warp": 9}), compiled)
    assert answer(capsys, "inspect", compiled, "--what-if", code=2)["code"] == "SNP-U072"
    write_plan(replace(plan, options={**plan.options, "device": "gone.json"}), compiled)
    assert answer(capsys, "inspect", compiled, "--what-if", code=2)["code"] == "SNP-U010"


@pytest.mark.parametrize(
    "words",
    [
        ["--more", "1G"],
        ["--model", "m.onnx"],
        ["--text", "--svg", "x.svg"],
        ["--text", "--fits", "1G"],
        ["--text", "--what-if"],
        ["--fits", "12Gb"],
        ["--html", "absent/x.html"],
    ],
)
def test_wrong_usage(words: list[str], plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = plan_file.read_bytes()
    assert main(["inspect", str(plan_file), *words]) == 2
    assert plan_file.read_bytes() == before
    assert main(["inspect", str(plan_file), "--svg", str(plan_file)]) == 2
    assert plan_file.read_bytes() == before


def test_two_drawings_in_one_file_are_refused(plan_file: Path, tmp_path: Path) -> None:
    one = str(tmp_path / "one")
    assert main(["inspect", str(plan_file), "--html", one, "--svg", one]) == 2
    assert not (tmp_path / "one").exists()
