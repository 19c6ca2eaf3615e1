"""`snplan run`: which model a plan runs with, and everything that is refused before the first step."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from cli.plans import small_plan

from snplan.cli import main
from snplan.cli.run import find_model
from snplan.errors import UsageError
from snplan.plan.file import write_plan
from snplan.plan.model import ModelRef
from snplan.report.ran import run_tables
from snplan.runtime.run import RunReport

CONTENT = b"a model"


@pytest.fixture
def wanted() -> ModelRef:
    return ModelRef(sha256=hashlib.sha256(CONTENT).hexdigest(), name="m.onnx")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The plan's folder and the current one."""
    plans, here = tmp_path / "plans", tmp_path / "here"
    plans.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    return plans, here


def test_the_plans_folder_goes_first(folders: tuple[Path, Path], wanted: ModelRef) -> None:
    for folder in folders:
        (folder / "m.onnx").write_bytes(CONTENT)
    assert find_model(wanted, folders[0], None) == folders[0] / "m.onnx"


def test_the_current_folder(folders: tuple[Path, Path], wanted: ModelRef) -> None:
    (folders[1] / "m.onnx").write_bytes(CONTENT)
    assert find_model(wanted, folders[0], None) == Path("m.onnx")


def test_a_namesake_with_another_sha256_is_passed_over(folders: tuple[Path, Path], wanted: ModelRef) -> None:
    (folders[0] / "m.onnx").write_bytes(b"other")
    (folders[1] / "m.onnx").write_bytes(CONTENT)
    assert find_model(wanted, folders[0], None) == Path("m.onnx")


def test_another_sha256_is_refused(folders: tuple[Path, Path], wanted: ModelRef) -> None:
    (folders[0] / "m.onnx").write_bytes(b"other")
    with pytest.raises(UsageError) as caught:
        find_model(wanted, folders[0], None)
    assert caught.value.code == "SNP-U050"
    assert wanted.sha256 in caught.value.message
    assert hashlib.sha256(b"other").hexdigest() in caught.value.message


def test_a_given_model_may_have_another_name(folders: tuple[Path, Path], wanted: ModelRef) -> None:
    path = folders[0] / "renamed.onnx"
    path.write_bytes(CONTENT)
    assert find_model(wanted, folders[0], str(path)) == path
    path.write_bytes(b"other")
    (folders[0] / "m.onnx").write_bytes(CONTENT)  # not what was asked for
    with pytest.raises(UsageError, match="sha256"):
        find_model(wanted, folders[0], str(path))


def test_no_model(folders: tuple[Path, Path], wanted: ModelRef) -> None:
    with pytest.raises(UsageError, match=r"neither in .*plans nor in the current folder; give --model"):
        find_model(wanted, folders[0], None)
    with pytest.raises(UsageError, match=r"m\.onnx is not in the current folder"):
        find_model(wanted, Path(), None)
    with pytest.raises(UsageError, match=r"absent\.onnx is not there"):
        find_model(wanted, folders[0], "absent.onnx")


@pytest.mark.parametrize("name", ["../m.onnx", "/etc/passwd", "a/m.onnx", ""])
def test_a_plan_cannot_name_a_file_elsewhere(name: str, folders: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="--model"):
        find_model(ModelRef(sha256="0" * 64, name=name), folders[0], None)


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ("--backend cuda", 7, "numpy"),
        ("--backend tpu", 2, "numpy"),
        ("--save-state a.npz --save-gradients a.npz", 2, "both name a.npz"),
        ("--steps 0", 2, "--steps is 0"),
        ("--seed -1", 2, "--seed is -1"),
        ("--steps 1 --steps 2", 2, "--steps is given twice"),
    ],
)
def test_wrong_usage(words: str, code: int, expected: str, plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(plan_file), *words.split(), "--json"]) == code
    assert expected in json.loads(capsys.readouterr().out)["message"]


def test_a_broken_plan_does_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.plan.json"
    write_plan(small_plan(arena_bytes=512), path)
    assert main(["run", str(path), "--json"]) == 6
    found = json.loads(capsys.readouterr().out)
    assert found["code"] == "SNP-V010"
    assert found["findings"]


def test_the_report_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    report = RunReport(
        losses=[float(i) for i in range(14)],
        steps=14,
        peak_bytes=1024,
        arena_bytes=2048,
        step_us=1500,
        samples_per_second=12.5,
        predicted_step_us=20,
        checked=True,
        backend="numpy",
        device="a host",
    )
    from snplan.cli import output

    output.show(*run_tables(report))
    err = capsys.readouterr().err
    for expected in (
        "0, 1, 2, 3, 4, (4 more), 9, 10, 11, 12, 13",
        "1.00 KiB (1,024 B) of an arena of 2.00 KiB",
        "1.500 ms",
    ):
        assert expected in err
    assert "bit for bit" in err


def test_written_files_are_named_once(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "mlp.onnx", "--gpu-mem", "1G", "-q"]) == 0
    words = ["run", "mlp.plan.json", "--save-gradients", "g.npz", "--save-state", "s.npz", "--export", "t.onnx"]
    for flag in ([], ["--json"], ["-q"]):
        capsys.readouterr()
        assert main([*words, "--snapshot", "snapshots", *flag]) == 0
        lines = [line for line in capsys.readouterr().err.splitlines() if line.endswith(": written")]
        names = [] if flag == ["-q"] else ["g.npz", "s.npz", "snapshots", "t.onnx"]
        assert lines == [f"{name}: written" for name in names]
        assert all(Path(name).exists() for name in names)
