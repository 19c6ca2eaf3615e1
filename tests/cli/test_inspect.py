"""`snplan inspect` and `snplan verify` on a plan whose every figure is worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.plans import SIZE, answer, small_plan

from snplan.cli import main
from snplan.plan.file import write_plan
from snplan.plan.model import Free
from snplan.plan.text import from_text


def test_the_summary(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "inspect", plan_file)
    assert found["status"] == "verified"
    assert found["model"]["name"] == "small.onnx"
    assert found["actions"] == {
        "alloc": 7,
        "free": 6,
        "run": 6,
        "recompute": 1,
        "algorithm": 0,
        "offload": 1,
        "prefetch": 1,
    }
    assert (found["offload_bytes"], found["prefetch_bytes"]) == (SIZE, SIZE)
    assert found["binding"] == "relu_grad g"
    assert found["peak"]["time"] == 13
    assert found["peak"]["live_bytes"] == found["peak_live_bytes"] == 5 * SIZE + 512
    assert found["breakdown_bytes"] == {
        "parameters": SIZE,
        "gradients": SIZE,
        "optimizer": 0,
        "activations": 2 * SIZE,
        "inputs": SIZE,
        "workspace": 0,
        "other": 512,
    }


def test_fates_count_each_tensor_once(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fates = answer(capsys, "inspect", plan_file)["fates"]
    none, one = {"tensors": 0, "bytes": 0}, {"tensors": 1, "bytes": SIZE}
    assert fates == {"kept": none, "moved": one, "recomputed": one, "moved_other": none}


def test_the_summary_for_people(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(plan_file)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for expected in ("small.onnx", "20.50 KiB (20,992 B)", "at the peak (action 13, relu_grad g)", "1 recompute"):
        assert expected in captured.out
    assert all(line == line.rstrip() for line in captured.out.splitlines())


def test_one_tensor(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensor = answer(capsys, "inspect", plan_file, "--tensor", "y")["tensor"]
    assert tensor["written_by"] == ["relu y"]
    assert tensor["read_by"] == ["reduce_sum loss", "relu_grad g"]
    assert [(s["start"], s["end"], s["buffer"], s["slot"]) for s in tensor["stays"]] == [
        (3, 8, 3, None),
        (5, 13, None, 0),
        (12, 16, 5, None),
    ]
    assert [number for number, _ in tensor["actions"]] == [3, 5, 7, 12, 14]


@pytest.mark.parametrize(("time", "live"), [(-1, 2 * SIZE), (3, 4 * SIZE), (13, 5 * SIZE + 512), (21, 2 * SIZE + 512)])
def test_one_moment(plan_file: Path, time: int, live: int, capsys: pytest.CaptureFixture[str]) -> None:
    moment = answer(capsys, "inspect", plan_file, "--time", time)["moment"]
    assert moment["live_bytes"] == live == sum(row["bytes"] for row in moment["live"])


def test_a_tensor_and_a_moment_for_people(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(plan_file), "--tensor", "y", "--time", "12"]) == 0
    out = capsys.readouterr().out
    assert "5 to 13     host slot 0" in out
    assert "prefetch y s0 -> b5 after 5" in out


def test_names_that_are_not_there(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "names like it: w:grad" in answer(capsys, "inspect", plan_file, "--tensor", "wgrad", code=2)["message"]
    assert answer(capsys, "inspect", plan_file, "--time", 22, code=2)["code"] == "SNP-U022"
    assert answer(capsys, "inspect", plan_file, "--time", -2, code=2)["code"] == "SNP-U022"


def test_the_text_reads_back(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(plan_file), "--text"]) == 0
    assert from_text(capsys.readouterr().out) == small_plan()


def test_text_excludes_the_rest(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(plan_file), "--text", "--time", "1"]) == 2
    assert "--time would have no effect with --text" in capsys.readouterr().err


def test_a_sound_plan(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(plan_file)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"{plan_file}: 22 actions, no finding\n"
    found = answer(capsys, "verify", plan_file)
    assert found == {"status": "verified", "code": None, "message": None, "actions": 22, "findings": []}


@pytest.fixture
def broken_file(tmp_path: Path) -> Path:
    """A plan that frees a buffer before it is read."""
    plan = small_plan()
    actions = [Free(buffer=2), *(action for action in plan.actions if action != Free(buffer=2))]
    path = tmp_path / "broken.plan.json"
    write_plan(small_plan(actions=actions), path)
    return path


def test_findings_are_on_standard_output(broken_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(broken_file)]) == 6
    captured = capsys.readouterr()
    assert "buffer" in captured.out
    assert "findings" in captured.err
    found = answer(capsys, "verify", broken_file, code=6)
    assert found["status"] == "rejected"
    assert found["code"] == "SNP-V010"
    assert {"rule", "where", "message"} == set(found["findings"][0])


def test_a_broken_plan_is_only_shown_as_text(broken_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(broken_file)]) == 6
    assert "SNP-V010" in capsys.readouterr().err
    assert main(["inspect", str(broken_file), "--text"]) == 0


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_files_that_are_no_plan(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noise = tmp_path / "noise.plan.json"
    noise.write_text('{"format": 1, "actions": [')
    assert answer(capsys, command, noise, code=6)["code"] == "SNP-V001"
    assert answer(capsys, command, tmp_path / "absent.plan.json", code=2)["code"] == "SNP-U030"


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_plans(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"small.plan.json{suffix}"
    write_plan(small_plan(), path)
    assert answer(capsys, "verify", path)["actions"] == 22
