"""`snplan model` and the other commands without a plan."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from snplan import models
from snplan.cli import main
from snplan.cli.model import own_options
from snplan.errors import UsageError


def test_a_model_with_options_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    assert main(["model", "mlp", "--widths", "4,5,6", "--batch", "3", "--seed=7", "--loss", "-o", str(path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert str(path) in captured.err
    expected = models.build("mlp", batch=3, seed=7, loss=True, widths=(4, 5, 6))
    assert onnx.load(path) == expected


def test_the_default_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["model", "mlp", "--light"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["mlp.onnx"]


def test_a_full_disk_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(model: onnx.ModelProto, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(models, "save", full)
    assert main(["model", "mlp", "--light", "-o", str(tmp_path / "m.onnx")]) == 7
    assert "SNP-R030" in capsys.readouterr().err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model"]) == 0
    out = capsys.readouterr().out
    for name in models.names():
        assert f"\n{name} " in f"\n{out}"
    assert "--widths 784,512,256,10: " in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("nonesuch", "the models are "),
        ("mlp --blocks 3", "its options are widths"),
        ("mlp --widths 4,x", "integers separated by commas"),
        ("mlp --widths 4,5 --widths 4,6", "--widths is given twice"),
        ("mlp --batch 0", "--batch"),
        ("mlp --seed -1", "--seed"),
        ("mlp stray", "'stray' is not an option"),
        ("--widths 4,5 mlp", "goes before its options"),
        ("mlp -o absent/m.onnx", "make it first"),
    ],
)
def test_wrong_usage(
    words: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["model", *words.split()]) == 2
    assert expected in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_own_options() -> None:
    words = ["resnet", "--blocks", "3,4", "--low-rank=2", "--flag", "--width", "-1"]
    assert own_options(words) == {"blocks": "3,4", "low_rank": "2", "flag": "true", "width": "-1"}
    with pytest.raises(UsageError):
        own_options(["resnet", "--", "x"])


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["packages"]["onnx"] == onnx.__version__
    assert found["host"]["memory_bytes"] > 1 << 20
    assert found["backends"][0] == "numpy"
    assert "devices" in found["gpu"]


def test_doctor_reads_what_the_drivers_tools_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        "nvidia-smi": "NVIDIA H200, 143771, 143000, 580.65.06",
        "nvcc": "Cuda compilation tools, release 12.8, V12.8.93",
    }
    for name, line in said.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{line}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["doctor", "--json"]) == 0
    gpu = json.loads(capsys.readouterr().out)["gpu"]
    assert gpu["devices"] == ["NVIDIA H200: 143771 MiB, 143000 MiB free"]
    assert gpu["driver"] == "580.65.06"
    assert gpu["nvcc"] == "12.8, V12.8.93"
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gpu"]["devices"] == []


def test_doctor_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # neither a driver nor a toolkit
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "not found" in out
    assert "memory_bytes" in out


@pytest.mark.parametrize("command", ["nonesuch", "plan"])
def test_commands_that_are_not_there(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "m.onnx"]) == 2
    assert f"No such command '{command}'" in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert f"│ {command} " not in capsys.readouterr().out  # as the first word of a line: others may hold it


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "compile" in capsys.readouterr().out
