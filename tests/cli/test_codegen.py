"""`snplan codegen`: a script for a plan file, and the weights that it needs."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
from cli.plans import small_plan

from snplan import models
from snplan.cli import main
from snplan.codegen.script import replay_script
from snplan.compiler import CompileOptions, compile_model
from snplan.plan.file import write_plan
from snplan.plan.model import ModelRef


def test_script_of_a_plan(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = plan_file.parent / "replay.py"
    assert main(["codegen", str(plan_file), "-o", str(target)]) == 0
    text = target.read_text()
    compile(text, str(target), "exec")
    assert "ARENA_BYTES = " in text
    assert str(target) in capsys.readouterr().out


def test_name_by_the_plan(plan_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(plan_file.parent)
    assert main(["codegen", str(plan_file), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["script"] == "small.replay.py"
    assert report["weights"] is None
    assert report["lines"] == Path("small.replay.py").read_text().count("\n")


def test_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, plan = tmp_path / "m.onnx", tmp_path / "m.plan.json"
    models.save(models.build("mlp", batch=2), model)
    write_plan(compile_model(model, CompileOptions(budget_bytes=1 << 30, reserve_bytes=0)).plan, plan)
    weights = tmp_path / "w.npz"
    assert main(["codegen", str(plan), "-o", str(tmp_path / "r.py"), "--weights", str(weights), "-q"]) == 0
    names: dict[str, object] = {}
    text = (tmp_path / "r.py").read_text()
    table = text[text.index("RESIDENT = {") : text.index("# Results when")]
    exec(table, names)
    held = {name for name, row in names["RESIDENT"].items() if row[4] not in ("input", "optimizer")}  # type: ignore[attr-defined]
    with np.load(weights) as found:
        assert set(found.files) == held
    assert capsys.readouterr().out == ""


def test_the_plan_is_not_replaced(plan_file: Path) -> None:
    before = plan_file.read_bytes()
    assert main(["codegen", str(plan_file), "-o", str(plan_file)]) == 2
    assert plan_file.read_bytes() == before


def test_a_plan_that_does_not_verify(plan_file: Path) -> None:
    write_plan(small_plan(arena_bytes=512), plan_file)
    assert main(["codegen", str(plan_file), "-o", str(plan_file.parent / "r.py")]) == 6
    assert not (plan_file.parent / "r.py").exists()


def test_a_model_without_weights_has_no_effect(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["codegen", str(plan_file), "--model", "m.onnx"]) == 2
    assert "--model would have no effect without --weights" in capsys.readouterr().err


def test_script_and_weights_are_two_files(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = str(plan_file.parent / "one")
    assert main(["codegen", str(plan_file), "-o", one, "--weights", one]) == 2
    assert "SNP-U013" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['"""\nprint("no")\n"""', "\\", "a\\x", "'\"", "\x1b[31m", "\ud800"])
def test_names_stay_inside_the_docstring(text: str) -> None:
    """Names come from files; whatever they are, the script is the same but for its first text."""
    model = ModelRef(sha256="0" * 64, name=text)
    plan = small_plan(model=model, snplan_version=text, device={"name": "h200", "capacity_bytes": 1, "title": text})
    scripts = [ast.parse(replay_script(each).encode().decode()) for each in (plan, small_plan())]
    told, _ = (ast.get_docstring(script) for script in scripts)
    assert told is not None
    assert "Training steps of" in told
    left, right = (ast.dump(ast.Module(body=script.body[1:], type_ignores=[])) for script in scripts)
    assert left == right


def test_weights_are_written_over_and_the_script_anew(tmp_path: Path) -> None:
    model, plan = tmp_path / "m.onnx", tmp_path / "m.plan.json"
    models.save(models.build("mlp", batch=2), model)
    write_plan(compile_model(model, CompileOptions(budget_bytes=1 << 30, reserve_bytes=0)).plan, plan)
    for script in ("first.py", "second.py"):
        words = ["codegen", str(plan), "-o", str(tmp_path / script), "--weights", str(tmp_path / "w.npz"), "-q"]
        assert main(words) == 0
    assert (tmp_path / "first.py").read_bytes() == (tmp_path / "second.py").read_bytes()
