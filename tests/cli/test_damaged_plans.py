"""Whatever is in a plan file, each command that reads it ends with an exit code of the page and one message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.plans import small_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.damage import broken_text, edited, paths
from property.edits import raw

from snplan import models
from snplan.cli import main
from snplan.compiler import CompileOptions, compile_model
from snplan.plan.file import write_plan

QUICK = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
DRAWINGS = ("--html", "o.html", "--svg", "o.svg", "--trace", "o.json")
READERS: dict[str, tuple[str, ...]] = {
    "verify": ("verify", "--json"),
    "summary": ("inspect",),
    "drawings": ("inspect", *DRAWINGS),
    "fits": ("inspect", "--fits", "1M", "--json"),
    "codegen": ("codegen", "-o", "o.py"),
    "run": ("run", "--quiet"),
    "what-if": ("inspect", "--what-if", "--quiet"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and with a plan of it that has copies and fused ops."""
    place = tmp_path_factory.mktemp("damaged")
    model = place / "m.onnx"
    models.save(models.build("gpt2", batch=1, layers=1, heads=2, embed=8, context=4, vocab=11), model)
    every = compile_model(model, CompileOptions(budget_bytes=1 << 30, reserve_bytes=0)).report
    budget = (every["floor_bytes"] + every["keep_all_bytes"]) // 2
    plan = compile_model(model, CompileOptions(budget_bytes=budget, reserve_bytes=0)).plan
    assert {op.kind for op in plan.ops} >= {"fused", "matmul"}
    write_plan(plan, place / "p.plan.json")
    return place


@pytest.fixture(scope="module")
def plan(folder: Path) -> dict[str, Any]:
    """The plan as plain data."""
    found = json.loads((folder / "p.plan.json").read_text())
    assert isinstance(found, dict)
    return found


def outcomes(folder: Path, content: str | bytes, capsys: pytest.CaptureFixture[str], *names: str) -> dict[str, int]:
    """Exit code by reader of a plan file with `content`; each has said what is wrong in one line, or nothing."""
    path = folder / "f.plan.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
    found = {}
    for name in names or READERS:
        command, *rest = READERS[name]
        capsys.readouterr()
        found[name] = main([command, str(path), *(str(folder / word) if word[:2] == "o." else word for word in rest)])
        error = capsys.readouterr().err
        assert "Traceback" not in error
        assert "\x1b" not in error
        planned = (3, 4, 5) if name == "what-if" else ()  # with another batch, say, it is another step
        assert found[name] in (0, 2, 6, 7, *planned), f"{name}: {error}"
        assert found[name] in (0, 4) or error.count("\n") == 1, f"{name}: {error}"
    return found


def agree(codes: dict[str, int]) -> None:
    """What verifies is read by every command; what does not is refused by every one."""
    verified = codes["verify"] == 0
    for name in ("summary", "fits", "codegen"):
        assert codes[name] == (0 if verified else 6), codes
    assert verified or set(codes.values()) == {6}, codes


def test_the_plan_itself(folder: Path, plan: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert set(outcomes(folder, json.dumps(plan), capsys).values()) == {0}


@QUICK
@given(data=st.data())
def test_edits_anywhere(
    data: st.DataObject, folder: Path, plan: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found, _ = data.draw(edited(plan, [*paths(plan)]))
    agree(outcomes(folder, json.dumps(found), capsys, "verify", "summary", "fits", "codegen", "run"))


@QUICK
@given(data=st.data())
def test_edits_of_what_is_free_in_form(
    data: st.DataObject, folder: Path, plan: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Attributes, options and the device: JSON of any form, which the file's own types do not check."""
    free = [path for path in paths(plan) if path[0] in ("device", "options", "model") or "attrs" in path[2:3]]
    found, _ = data.draw(edited(plan, [path for path in free if len(path) > 1]))
    agree(outcomes(folder, json.dumps(found), capsys, "verify", "summary", "fits", "codegen", "drawings"))


@QUICK
@given(data=st.data())
def test_edits_of_options_and_planning_again(
    data: st.DataObject, folder: Path, plan: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found, _ = data.draw(edited(plan, [path for path in paths(plan) if path[0] == "options" and len(path) > 1]))
    outcomes(folder, json.dumps(found), capsys, "what-if")


@QUICK
@given(data=st.data())
def test_broken_text(
    data: st.DataObject, folder: Path, plan: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    text = data.draw(broken_text(json.dumps(plan, separators=(",", ":"))))
    agree(outcomes(folder, text, capsys, "verify", "summary", "fits", "codegen"))


@pytest.mark.parametrize(
    "changes",
    [
        {"device": {}},
        {"device": {"name": "", "capacity_bytes": 1}},
        {"device": {"name": "h200", "capacity_bytes": "80G"}},
        {"device": {"name": "h200", "capacity_bytes": 1 << 37, "h2d_bytes_per_s": -1}},
        {"device": {"name": "h200", "capacity_bytes": 1 << 37, "launch_us": True}},
        {"model": {"sha256": "", "name": "m.onnx"}},
        {"model": {"sha256": "A" * 64, "name": "m.onnx"}},
        {"model": {"sha256": "0" * 63, "name": "m.onnx"}},
        {"model": {"sha256": "0" * 64, "name": "../m.onnx"}},
        {"model": {"sha256": "0" * 64, "name": ""}},
    ],
    ids=lambda changes: json.dumps(changes)[:60],
)
def test_headers_that_do_not_verify(
    changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = outcomes(tmp_path, json.dumps({**raw(small_plan()), **changes}), capsys)
    assert set(codes.values()) == {6}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[" * 100_000, b'{"format":1}', b"null", b"\x1f\x8b"])
def test_files_that_are_no_plan(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(outcomes(tmp_path, content, capsys).values()) == {6}


@pytest.mark.parametrize("command", [["compile"], ["compare"], ["max-batch"], ["sweep"]])
def test_a_plan_is_no_model(command: list[str], plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budget = ["--gpu-mem", "1G"] if command != ["sweep"] else []
    assert main([*command, str(plan_file), *budget, "-q"]) == 3
    assert capsys.readouterr().err.startswith("snplan: SNP-I001: ")


def test_names_steer_neither_terminal_nor_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "\x1b[2J\nsnplan: all is well\x07"
    data = json.loads(json.dumps(raw(small_plan())).replace('"relu y"', json.dumps(name)))
    data["actions"] = data["actions"][:-1]  # the last free is missing, so that there is something to tell
    path = tmp_path / "p.plan.json"
    path.write_text(json.dumps(data))
    for words in (["verify"], ["inspect"], ["codegen"]):
        assert main([words[0], str(path)]) == 6
        captured = capsys.readouterr()
        assert "\x1b" not in captured.out + captured.err
        assert "\nsnplan: all is well" not in captured.out + captured.err
