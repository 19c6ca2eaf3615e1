"""`snplan compile` around a planner that is only played: options in, files and messages out."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.plans import SIZE, small_plan

import snplan.compiler
from snplan.cli import main
from snplan.cli.compile import INTERRUPTED_NOTE
from snplan.compiler import CompileOptions, CompileResult
from snplan.errors import InfeasibleError
from snplan.plan.file import read_plan

REPORT: dict[str, Any] = {
    "status": "feasible",
    "code": None,
    "message": None,
    "model_sha256": "0" * 64,
    "strategy": "auto",
    "budget_bytes": 1 << 20,
    "reserve_bytes": 0,
    "arena_bytes": 7 * SIZE + 512,
    "peak_live_bytes": 5 * SIZE + 512,
    "floor_bytes": 3 * SIZE,
    "keep_all_bytes": 8 * SIZE,
    "baseline_bytes": 9 * SIZE,
    "host_bytes": SIZE,
    "step_time_us": 120,
    "keep_all_step_time_us": 110,
    "lower_bound_us": 100,
    "offload_bytes": SIZE,
    "prefetch_bytes": SIZE,
    "recompute_ops": 1,
    "recompute_us": 7,
    "stall_us": 3,
    "actions": {"alloc": 7, "run": 6},
    "breakdown_bytes": {"parameters": SIZE, "activations": 4 * SIZE + 512},
    "binding": "relu_grad g",
    "ops": 6,
    "tensors": 8,
    "warnings": ["BatchNorm keeps the mode of the graph"],
    "seconds": {"import": 0.25, "total": 0.5},
}


class Planner:
    """Stands in for `compile_model`: keeps what it was given, then does what `act` says."""

    def __init__(self) -> None:
        self.sources: list[Path] = []
        self.options: list[CompileOptions] = []
        self.act: Callable[[], None] = lambda: None

    def __call__(
        self,
        source: Path,
        options: CompileOptions,
        *,
        progress: Callable[[str, float | None], None],
        interrupted: Callable[[], bool],
    ) -> CompileResult:
        self.sources.append(source)
        self.options.append(options)
        progress("plan", 0.5)
        self.act()
        return CompileResult(plan=small_plan(), report=dict(REPORT))


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Planner:
    played = Planner()
    monkeypatch.setattr(snplan.compiler, "compile_model", played)
    return played


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the place of a model, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.onnx"
    path.write_bytes(b"not read here")
    return path


def test_the_object_and_the_file(planner: Planner, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "small.onnx", "--gpu-mem", "1Mi", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {**REPORT, "plan": "small.plan.json"}
    assert captured.err == "snplan: warning: BatchNorm keeps the mode of the graph\n"
    assert read_plan(model.with_name("small.plan.json")) == small_plan()


def test_defaults_are_the_compilers(planner: Planner, model: Path) -> None:
    assert main(["compile", "small.onnx", "--gpu-mem", "12G", "-q"]) == 0
    assert planner.sources == [Path("small.onnx")]
    assert planner.options == [CompileOptions(budget_bytes=12 << 30)]


def test_every_option_reaches_the_planner(planner: Planner, model: Path) -> None:
    words = "--gpu-mem 12GB --reserve 0 --host-mem 64G --batch 4 --dim S=7 --dim T=9 --loss output:y --optimizer adam"
    more = "--precision tf32 --device k40c --deterministic --freeze stem* --freeze fc --train-batchnorm -o out.zst"
    more += " --conv-pieces 4"
    assert main(["compile", "small.onnx", *words.split(), *more.split()]) == 0
    assert planner.options == [
        CompileOptions(
            budget_bytes=12 * 10**9,
            reserve_bytes=0,
            host_bytes=64 << 30,
            batch=4,
            dims={"S": 7, "T": 9},
            loss="output:y",
            optimizer="adam",
            precision="tf32",
            device="k40c",
            deterministic=True,
            freeze=("stem*", "fc"),
            train_batchnorm=True,
            conv_pieces=4,
        )
    ]
    assert read_plan("out.zst") == small_plan()


def test_decimal_units_are_noted(planner: Planner, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "small.onnx", "--gpu-mem", "12GB", "--json"]) == 0
    captured = capsys.readouterr()
    assert "12,000,000,000 bytes" in json.loads(captured.out)["warnings"][0]
    assert "12,000,000,000 bytes" in captured.err


def test_tables_are_on_standard_error(planner: Planner, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "small.onnx", "--gpu-mem", "1M"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    for expected in (
        "small.plan.json",
        "36.00 KiB (36,864 B)",  # baseline
        "20.50 KiB (20,992 B); fragmentation 8.00 KiB (8,192 B)",
        "100 us; the plan is 20.0% above it",
        "110 us; the plan is +9.1%",
        "1 ops, 7 us",
        "at the peak (relu_grad g)",
        "moved           1 tensors, 4.00 KiB (4,096 B)",
        "import    0.25",
    ):
        assert expected in captured.err
    assert "w:next" not in captured.err  # not live at the peak
    assert "1 others" in captured.err


def test_quiet(planner: Planner, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "small.onnx", "--gpu-mem", "1M", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "snplan: warning: BatchNorm keeps the mode of the graph\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--gpu-mem 12Gb", "12GiB"),
        ("--gpu-mem=", "12GiB"),
        ("--gpu-mem -1", "12GiB"),
        ("--gpu-mem 0", "12GiB"),
        ("", "--gpu-mem"),
        ("--gpu-mem 1G --gpu-mem 2G", "--gpu-mem is given twice"),
        ("--gpu-mem 1G --batch 0", "--batch is 0"),
        ("--gpu-mem 1G --batch x", "--batch"),
        ("--gpu-mem 1G --dim N", "--dim N=32"),
        ("--gpu-mem 1G --mode both", "train, infer"),
        ("--gpu-mem 1G --mode infer --optimizer sgd", "--optimizer would have no effect"),
        ("--gpu-mem 1G --mode infer --loss sum --freeze a", "--loss and --freeze would have no effect"),
        ("--gpu-mem 1G --optimizer lion", "sgd, momentum, adam, none"),
        ("--gpu-mem 1G --precision fp8", "fp32, tf32, bf16, fp16"),
        ("--gpu-mem 1G --strategy magic", "auto"),
        ("--gpu-mem 1G --solver gurobi", "choose one of off, cp-sat"),
        ("--gpu-mem 1G --time-limit 5", "--time-limit would have no effect with --solver off"),
        ("--gpu-mem 1G -o absent/p.plan.json", "make it first"),
        ("--gpu-mem 1G -o .", "it is a folder"),
        ("--gpu-mem 1G -o small.onnx", "would replace a file that the command reads"),
        ("--gpu-mem 1G --nonsense", "--nonsense"),
    ],
)
def test_wrong_usage(
    words: str, expected: str, planner: Planner, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", "small.onnx", *words.split(), "--json"]) == 2
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["status"] == "rejected"
    assert expected in found["message"]
    assert "Traceback" not in captured.err
    assert planner.sources == []
    assert [path.name for path in model.parent.iterdir()] == ["small.onnx"]


def test_an_absent_model(planner: Planner, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "absent.onnx", "--gpu-mem", "1G"]) == 2
    assert "absent.onnx is not there" in capsys.readouterr().err


def test_a_refused_budget(planner: Planner, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> None:
        raise InfeasibleError("SNP-P001", "below the floor", {"floor_bytes": 4096, "binding": "conv1"})

    planner.act = refuse
    assert main(["compile", "small.onnx", "--gpu-mem", "2GB", "--json"]) == 4
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert (found["status"], found["binding"], found["floor_bytes"]) == ("infeasible", "conv1", 4096)
    assert found["budget_bytes"] == 2 * 10**9
    assert len(found["warnings"]) == 1
    assert "binding op" in captured.err
    assert not model.with_name("small.plan.json").exists()


def test_a_bug_is_one_line_and_no_file(planner: Planner, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def break_down() -> None:
        raise KeyError("x")

    planner.act = break_down
    assert main(["compile", "small.onnx", "--gpu-mem", "2G"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert not model.with_name("small.plan.json").exists()


def test_an_interrupt_saves_the_best_plan(planner: Planner, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planner.act = lambda: os.kill(os.getpid(), signal.SIGINT)
    assert main(["compile", "small.onnx", "--gpu-mem", "2G", "--json"]) == 130
    assert INTERRUPTED_NOTE in json.loads(capsys.readouterr().out)["warnings"]
    assert read_plan("small.plan.json") == small_plan()


def test_a_second_interrupt_stops(planner: Planner, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def insist() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    planner.act = insist
    assert main(["compile", "small.onnx", "--gpu-mem", "2G", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["status"] == "unknown"
    assert not model.with_name("small.plan.json").exists()
