"""`run_plan`: reports, checks against the unplanned execution, files, snapshots."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from runtime_support import Draft, normal
from safetensors.numpy import load_file

from snplan.errors import RunError
from snplan.plan.model import Place, StepPlan
from snplan.plan.verify import verify
from snplan.runtime import run as run_module
from snplan.runtime.data import random_data
from snplan.runtime.files import save_arrays, write_whole
from snplan.runtime.numpy import KERNELS
from snplan.runtime.numpy.backend import NumpyBackend
from snplan.runtime.numpy.streams import Delays
from snplan.runtime.run import run_plan
from snplan.runtime.session import TrainingSession
from snplan.runtime.snapshot import latest_snapshot, load_snapshot, save_snapshot

WEIGHT = "layers/0::weight"
ONES = np.ones(6, np.float32)
WEIGHTS = {WEIGHT: normal(6, 5, seed=1), "mean": 0 * ONES, "var": ONES, "scale": ONES, "bias": 0 * ONES}


def plan_with_everything(*, lr: float = 0.05) -> StepPlan:
    """Batch norm with running statistics, dropout, a linear layer, cross-entropy, Adam; dropout is computed twice."""
    d = Draft()
    where = {"x": d.source("x", 8, 6, role="input"), "target": d.source("target", 8, role="input", dtype="int64")}
    persistent = {WEIGHT: "parameter", "mean": "state", "var": "state", "W:m": "optimizer", "W:v": "optimizer"}
    shapes = {WEIGHT: (6, 5), "mean": (6,), "var": (6,), "W:m": (6, 5), "W:v": (6, 5)}
    for name, role in persistent.items():
        where[name] = where[f"{name}:next"] = d.source(name, *shapes[name], role=role, becomes=f"{name}:next")
        d.tensor(f"{name}:next", *shapes[name], role=role)
    for name in ("scale", "bias"):
        where[name] = d.source(name, 6, role="constant")
    gradient = f"{WEIGHT}:grad"
    sizes = {
        "n": (8, 6),
        "bm": (6,),
        "bv": (6,),
        "d": (8, 6),
        "y": (8, 5),
        "y:grad": (8, 5),
        gradient: (6, 5),
        "one": (),
    }
    for name, shape in sizes.items():
        d.tensor(name, *shape, role="gradient" if name.endswith("grad") else "activation")
        where[name] = d.buffer()
    d.tensor("loss", role="loss")
    where["loss"] = d.buffer()
    classes: dict[str, Any] = {"axis": 1, "reduction": "mean", "ignore_index": None}
    d.op("bn", "batch_norm_train", "x scale bias", "n bm bv", epsilon=1e-5)
    d.op("drop", "dropout", "n", "d", rng=1, ratio=0.3)
    d.op("fc", "matmul", f"d {WEIGHT}", "y", trans_a=False, trans_b=False, alpha=1.0)
    d.op("loss", "softmax_cross_entropy", "y target", "loss", **classes)
    d.op("one", "constant", "", "one", phase="backward", dtype="float32", shape=[], values=[1.0])
    d.op("dy", "softmax_cross_entropy_grad", "y target one", "y:grad", phase="backward", **classes)
    d.op("dw", "matmul", "d y:grad", gradient, phase="backward", trans_a=True, trans_b=False, alpha=1.0)
    d.op("stats", "batch_norm_update", "mean var bm bv", "mean:next var:next", phase="update", momentum=0.9)
    adam: dict[str, Any] = {"lr": lr, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01}
    outputs = f"{WEIGHT}:next W:m:next W:v:next"
    d.op("adam", "adam_update", f"{WEIGHT} {gradient} W:m W:v", outputs, phase="update", **adam)
    d.alloc(*(where[name] for name in (*sizes, "loss")))
    for op in ("bn", "drop", "fc", "loss", "one", "dy"):
        d.run(op, where)
    d.free(where["d"])
    d.alloc(where["d"])
    d.run("drop", where, again=True)
    for op in ("dw", "stats", "adam"):
        d.run(op, where)
    d.free(*(where[name] for name in sizes))
    d.outputs.append(Place(tensor="loss", buffer=where["loss"]))
    return d.plan()


def test_the_plan_is_sound() -> None:
    assert verify(plan_with_everything()) == []


def test_a_report_has_the_documented_keys_and_measures() -> None:
    plan = plan_with_everything()
    seen: list[tuple[int, int, float]] = []
    report = run_plan(plan, WEIGHTS, steps=3, check=True, progress=lambda *step: seen.append(step))
    assert list(report.as_json()) == [
        "losses",
        "steps",
        "peak_bytes",
        "arena_bytes",
        "step_us",
        "samples_per_second",
        "predicted_step_us",
        "checked",
        "backend",
        "device",
    ]
    assert report.steps == len(report.losses) == 3
    assert report.losses[2] < report.losses[0]
    assert report.peak_bytes == report.arena_bytes == plan.arena_bytes
    assert report.checked
    assert report.step_us > 0
    assert report.samples_per_second == pytest.approx(8e6 / report.step_us, abs=1e-3)
    assert (report.backend, report.predicted_step_us) == ("numpy", 1)
    assert seen == [(i + 1, 3, loss) for i, loss in enumerate(report.losses)]


def test_no_steps() -> None:
    report = run_plan(plan_with_everything(), WEIGHTS, steps=0, check=True)
    assert (report.losses, report.steps, report.step_us, report.samples_per_second, report.checked) == (
        [],
        0,
        0,
        0.0,
        False,
    )


@pytest.mark.parametrize("threads", [False, True])
def test_runs_repeat_bit_for_bit(threads: bool) -> None:
    def run(seed: int) -> list[float]:
        backend = NumpyBackend(debug=True, delays=Delays(seconds=0.002) if threads else None)
        return run_plan(plan_with_everything(), WEIGHTS, steps=3, seed=seed, backend=backend, check=True).losses

    assert run(4) == run(4) != run(5)


def _wrong_second_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every second call of a kernel give other bits in its last output."""
    right, calls = KERNELS[kind], []

    def wrong(inputs, attrs, context):  # type: ignore[no-untyped-def]
        outputs = right(inputs, attrs, context)
        calls.append(kind)
        return (*outputs[:-1], np.nextafter(outputs[-1], np.float32(9))) if len(calls) % 2 else outputs

    monkeypatch.setitem(KERNELS, kind, wrong)


@pytest.mark.parametrize(
    ("kind", "tensor"),
    [("softmax_cross_entropy", "loss"), ("softmax_cross_entropy_grad", f"{WEIGHT}:grad"), ("adam_update", "W:v:next")],
)
def test_the_check_names_the_first_tensor_that_differs(kind: str, tensor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _wrong_second_time(kind, monkeypatch)
    with pytest.raises(RunError, match=f"step 1: tensor {tensor} differs from the unplanned execution") as caught:
        run_plan(plan_with_everything(), WEIGHTS, check=True)
    assert caught.value.code == "SNP-R008"
    assert caught.value.details == {"tensor": tensor, "step": 1}


def test_the_check_sees_the_sign_of_zero_and_takes_nan_for_itself() -> None:
    zero = np.array([1.0, 0.0], np.float32)
    with pytest.raises(RunError, match="first at element 1"):
        run_module._same("t", zero, np.array([1.0, -0.0], np.float32), 1)
    nan = np.array([np.nan], np.float32)
    run_module._same("t", nan, nan.copy(), 1)


def test_gradients_and_state_are_saved_by_initializer_name(tmp_path: Path) -> None:
    paths = tmp_path / "g.npz", tmp_path / "s.npz"
    run_plan(plan_with_everything(), WEIGHTS, steps=2, save_gradients=paths[0], save_state=paths[1])
    with np.load(paths[0]) as gradients, np.load(paths[1]) as state:
        assert gradients.files == [WEIGHT]
        assert gradients[WEIGHT].shape == (6, 5)
        assert sorted(state.files) == sorted([WEIGHT, "mean", "var", "W:m", "W:v"])
        saved = dict(state)
    with TrainingSession(plan_with_everything(), WEIGHTS) as session:
        data = random_data(session.index, seed=0).step(1)
        session.step(data)
        session.step(data)
        for name, value in session.state().items():
            np.testing.assert_array_equal(saved[name], value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.npz", "s.npz"]


def test_data_from_a_file(tmp_path: Path) -> None:
    x, target = normal(3, 8, 6), np.random.default_rng(0).integers(0, 5, (3, 8))
    np.savez(tmp_path / "d.npz", x=x, target=target)
    report = run_plan(plan_with_everything(), WEIGHTS, steps=3, data=tmp_path / "d.npz", check=True)
    with TrainingSession(plan_with_everything(), WEIGHTS) as session:
        assert report.losses == [session.step({"x": x[i], "target": target[i]}) for i in range(3)]


def test_a_label_out_of_range_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=normal(8, 6), target=np.full(8, 7))
    with pytest.raises(RunError, match="label 7 is out of range: there are 5 classes"):
        run_plan(plan_with_everything(), WEIGHTS, data=tmp_path / "d.npz")


NAMES = ["a/b", "a//b", "../up", "file", "args", "x" * 400, "model::0/w.npy", "ü-λ", "with space", "a\\b", "."]


def test_any_name_makes_the_round_trip(tmp_path: Path) -> None:
    arrays = {name: np.full((2, i), i, np.float32) for i, name in enumerate(NAMES)}
    save_arrays(tmp_path / "n.npz", arrays)
    with np.load(tmp_path / "n.npz") as found:
        for name, value in arrays.items():
            np.testing.assert_array_equal(found[name], value)
    first = (tmp_path / "n.npz").read_bytes()
    save_arrays(tmp_path / "n.npz", arrays)
    assert (tmp_path / "n.npz").read_bytes() == first


def test_bfloat16_is_saved_as_float32(tmp_path: Path) -> None:
    x = normal(5).astype(ml_dtypes.bfloat16)
    save_arrays(tmp_path / "n.npz", {"x": x, "s": np.array(3.0)})
    with np.load(tmp_path / "n.npz") as found:
        assert found["x"].dtype == np.float32
        np.testing.assert_array_equal(found["x"].astype(ml_dtypes.bfloat16), x)
        assert found["s"].shape == ()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def fail(file: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match="no space left on device") as caught:
        write_whole(path, fail)
    assert caught.value.code == "SNP-R030"
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]
    with pytest.raises(RunError, match="cannot be written"):
        write_whole(tmp_path / "none" / "f", lambda file: None)


def test_a_run_that_resumes_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole = run_plan(plan_with_everything(), WEIGHTS, steps=5, seed=7, snapshot=tmp_path / "a")
    first = run_plan(plan_with_everything(), WEIGHTS, steps=2, seed=7, snapshot=tmp_path / "b")
    rest = run_plan(plan_with_everything(), WEIGHTS, steps=3, snapshot=tmp_path / "b", check=True)
    assert first.losses + rest.losses == whole.losses
    one, other = (load_file(tmp_path / folder / "step-00000005.safetensors") for folder in "ab")
    assert sorted(one) == sorted(other)
    for name, value in one.items():
        assert value.tobytes() == other[name].tobytes()
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == [
        "step-00000002.safetensors",
        "step-00000005.safetensors",
    ]


def test_snapshots_of_other_models_and_broken_ones_are_refused(tmp_path: Path) -> None:
    plan = plan_with_everything()
    with TrainingSession(plan, WEIGHTS) as session:
        path = save_snapshot(session, tmp_path)
        assert latest_snapshot(tmp_path) == path
        assert latest_snapshot(tmp_path / "none") is None
        data = path.read_bytes()
        for broken in (b"", data[:50], data[:-4], data.replace(b'"W:m"', b'"W:q"')):
            path.write_bytes(broken)
            with pytest.raises(RunError, match="cannot be used") as caught:
                load_snapshot(session, path)
            assert caught.value.code == "SNP-R021"
        path.write_bytes(data)
    other = msgspec.structs.replace(plan, model=msgspec.structs.replace(plan.model, sha256="1" * 64))
    with (
        TrainingSession(other, WEIGHTS) as session,
        pytest.raises(RunError, match="it is no snapshot of the plan's model"),
    ):
        load_snapshot(session, path)


def test_inference_has_outputs_and_no_losses() -> None:
    d = Draft()
    where = {"x": d.source("x", 4, 3, role="input")}
    d.tensor("y", 4, 3)
    where["y"] = d.buffer()
    d.op("relu", "relu", "x", "y")
    d.alloc(where["y"])
    d.run("relu", where)
    d.outputs.append(Place(tensor="y", buffer=where["y"]))
    report = run_plan(d.plan(), {}, steps=2, check=True)
    assert report.losses == []
    assert report.steps == 2
    assert report.checked
