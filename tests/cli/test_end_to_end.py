"""From a model of the zoo to a checked run, through the installed command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import Snplan

KEYS = {
    *("status", "code", "message", "model_sha256", "plan", "strategy", "budget_bytes", "reserve_bytes", "arena_bytes"),
    *("peak_live_bytes", "floor_bytes", "keep_all_bytes", "baseline_bytes", "host_bytes", "step_time_us"),
    *("keep_all_step_time_us", "lower_bound_us", "offload_bytes", "prefetch_bytes", "recompute_ops", "recompute_us"),
    *("stall_us", "actions", "breakdown_bytes", "binding", "ops", "tensors", "warnings", "seconds", "solver"),
}
PLENTY = 1 << 40


@pytest.fixture(scope="module")
def model(snplan: Snplan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small MLP."""
    path = tmp_path_factory.mktemp("model") / "mlp.onnx"
    assert snplan("model", "mlp", "--widths", "64,128,64,10", "--batch", 8, "-o", path).code == 0
    return path


@pytest.fixture(scope="module")
def sizes(snplan: Snplan, model: Path) -> dict[str, int]:
    """The model's floor and keep-all bytes."""
    done = snplan("compile", model, "--gpu-mem", PLENTY, "--json", "-o", model.with_name("all.plan.json"))
    assert done.code == 0, done.err
    assert set(done.json) == KEYS
    return {key: done.json[key] for key in ("floor_bytes", "keep_all_bytes")}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_plan_verify_run(share: float, snplan: Snplan, model: Path, sizes: dict[str, int], tmp_path: Path) -> None:
    floor, keep_all = sizes["floor_bytes"], sizes["keep_all_bytes"]
    budget = int(floor + share * (keep_all - floor))
    plan = tmp_path / "p.plan.json"
    made = snplan("compile", model, "--gpu-mem", budget, "--reserve", 0, "-o", plan, "--json")
    assert made.code == 0, made.err
    assert made.json["arena_bytes"] <= budget
    assert sum(made.json["breakdown_bytes"].values()) == made.json["peak_live_bytes"]
    assert (made.json["offload_bytes"] == 0 and made.json["recompute_ops"] == 0) == (share == 1.0)
    assert snplan("verify", plan).code == 0
    ran = snplan("run", plan, "--model", model, "--steps", 2, "--seed", 7, "--check", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["checked"] is True
    assert len(ran.json["losses"]) == 2
    assert ran.json["peak_bytes"] <= made.json["arena_bytes"]


def test_one_granule_under_the_floor(snplan: Snplan, model: Path, sizes: dict[str, int], tmp_path: Path) -> None:
    plan = tmp_path / "p.plan.json"
    done = snplan("compile", model, "--gpu-mem", sizes["floor_bytes"] - 512, "--reserve", 0, "-o", plan, "--json")
    assert done.code == 4
    assert done.json["status"] == "infeasible"
    assert done.json["floor_bytes"] == sizes["floor_bytes"]
    assert done.json["binding"]
    assert "what to change" in done.err
    assert list(tmp_path.iterdir()) == []


def test_the_reserve_is_part_of_the_budget(snplan: Snplan, model: Path, sizes: dict[str, int], tmp_path: Path) -> None:
    budget = sizes["floor_bytes"] + (1 << 20)
    words = ["compile", model, "--gpu-mem", budget, "-o", tmp_path / "p.plan.json", "--json", "--reserve"]
    assert snplan(*words, "1M").code == 0
    assert snplan(*words, (1 << 20) + 512).code == 4


def test_a_bound_above_the_keep_all_time(snplan: Snplan, tmp_path: Path) -> None:
    """In a small budget no plan can be as fast as the keep-all plan, and the lower bound may know that."""
    path, plan = tmp_path / "m.onnx", tmp_path / "p.plan.json"
    assert snplan("model", "resnet18", "--light", "--batch", 64, "-o", path).code == 0
    words = ["compile", path, "--reserve", 0, "-o", plan, "--json", "--gpu-mem"]
    floor = snplan(*words, PLENTY).json["floor_bytes"]
    made = snplan(*words, floor)
    assert made.code == 0, made.err
    assert made.json["keep_all_step_time_us"] < made.json["lower_bound_us"] <= made.json["step_time_us"]


def test_the_same_bytes_everywhere(snplan: Snplan, model: Path, sizes: dict[str, int], tmp_path: Path) -> None:
    found = set()
    for seed in ("0", "1"):
        folder = tmp_path / seed
        folder.mkdir()
        words = ["compile", model, "--gpu-mem", sizes["floor_bytes"] * 5 // 4, "--reserve", 0, "-q"]
        assert snplan(*words, cwd=folder, env={"PYTHONHASHSEED": seed}).code == 0
        found.add((folder / "mlp.plan.json").read_bytes())
    assert len(found) == 1


def test_gradients_and_state(snplan: Snplan, model: Path, tmp_path: Path) -> None:
    plan, gradients, state = tmp_path / "p.plan.json", tmp_path / "g.npz", tmp_path / "s.npz"
    assert snplan("compile", model, "--gpu-mem", PLENTY, "-o", plan, "-q").code == 0
    words = ["run", plan, "--model", model, "--save-gradients", gradients, "--save-state", state]
    assert snplan(*words, "-q").code == 0
    weights = {tensor.name: tensor.dims for tensor in onnx.load(model).graph.initializer}
    with np.load(gradients) as left, np.load(state) as right:
        for arrays in (left, right):
            assert {name: list(arrays[name].shape) for name in arrays} == {n: list(d) for n, d in weights.items()}


def test_a_run_goes_on_from_its_snapshot(snplan: Snplan, model: Path, tmp_path: Path) -> None:
    plan, folder = tmp_path / "p.plan.json", tmp_path / "snapshots"
    words = ["run", plan, "--model", model, "--json", "--steps"]
    assert snplan("compile", model, "--gpu-mem", PLENTY, "--optimizer", "adam", "-o", plan, "-q").code == 0
    at_once = snplan(*words, 4).json["losses"]
    first = snplan(*words, 3, "--snapshot", folder).json["losses"]
    last = snplan(*words, 1, "--snapshot", folder).json["losses"]
    assert first + last == at_once


def test_another_model_is_refused(snplan: Snplan, model: Path, tmp_path: Path) -> None:
    plan, other = tmp_path / "p.plan.json", tmp_path / "other.onnx"
    assert snplan("compile", model, "--gpu-mem", PLENTY, "-o", plan, "-q").code == 0
    assert snplan("model", "mlp", "--widths", "64,128,64,10", "--batch", 9, "-o", other).code == 0
    done = snplan("run", plan, "--model", other, "--json")
    assert done.code == 2
    assert len(done.json["found_sha256"]) == 1


@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 40, None], ids=["empty", "noise", "truncated"])
def test_files_that_are_no_model(content: bytes | None, snplan: Snplan, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(model.read_bytes()[:1000] if content is None else content)
    done = snplan("compile", path, "--gpu-mem", "1G", "--json", cwd=tmp_path)
    assert done.code == 3
    assert done.json["status"] == "rejected"
    assert "Traceback" not in done.err
    assert [found.name for found in tmp_path.iterdir()] == ["broken.onnx"]


def test_inference(snplan: Snplan, model: Path, tmp_path: Path) -> None:
    plan = tmp_path / "p.plan.json"
    made = snplan("compile", model, "--gpu-mem", PLENTY, "--mode", "infer", "-o", plan, "--json")
    assert made.code == 0, made.err
    assert made.json["breakdown_bytes"]["gradients"] == 0
    ran = snplan("run", plan, "--model", model, "--check", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["checked"] is True


def test_interrupted_run(model: Path, snplan: Snplan, tmp_path: Path) -> None:
    """Ctrl-C in a long run: exit code 130, one message, no file."""
    plan = tmp_path / "p.plan.json"
    assert snplan("compile", model, "--gpu-mem", PLENTY, "-o", plan, "-q").code == 0
    words = ["run", plan, "--model", model, "--steps", 10**9, "--save-state", tmp_path / "s.npz"]
    process = subprocess.Popen(
        [sys.executable, "-m", "snplan", *map(str, words)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not (tmp_path / "s.npz").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["mlp", "--widths", "64,128,64,10", "--batch", 8],
        ["resnet18", "--image", 32, "--width", 0.125, "--batch", 2],
        ["gpt2", "--layers", 2, "--heads", 2, "--embed", 32, "--context", 16, "--vocab", 101, "--batch", 2],
    ],
    ids=lambda words: str(words[0]),
)
def test_the_contract(words: list[object], shared: Path, snplan: Snplan, tmp_path: Path) -> None:
    """The checks from outside: command line, exit codes, plan files."""
    path = tmp_path / f"{words[0]}.onnx"
    built = snplan("model", *words, "-o", path)
    assert built.code == 0, built.err
    command = [sys.executable, str(shared / "accept" / "contract.py"), "--quick", str(path)]
    environment = {"SNPLAN": f"{sys.executable} -m snplan"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " 0 failed" in done.stdout
