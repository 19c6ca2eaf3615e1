"""Whole training steps on a real device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from cuda_zoo import TINY, planned
from onnx import TensorProto, helper, numpy_helper

from snplan import models
from snplan.codegen.script import replay_script
from snplan.compiler import CompileOptions, compile_model
from snplan.frontend import load_model, read_weights
from snplan.plan.model import StepPlan
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.data import random_data
from snplan.runtime.files import save_arrays
from snplan.runtime.numpy import Array
from snplan.runtime.numpy.streams import Delays
from snplan.runtime.protocol import Backend
from snplan.runtime.run import run_plan
from snplan.runtime.session import TrainingSession

pytestmark = pytest.mark.cuda


def steps(plan: StepPlan, weights: dict[str, Array], backend: str | Backend, count: int = 2) -> dict[str, Array]:
    """What some steps leave: losses, gradients, state."""
    with TrainingSession(plan, weights, backend=backend, seed=3) as session:
        feed = random_data(session.index, seed=1)
        losses = [session.step(feed.step(number)) for number in range(1, count + 1)]
        gradients = {f"{name}:grad": value for name, value in session.gradients().items()}
        return {"losses": np.array(losses), **session.outputs(), **session.state(), **gradients}


@pytest.mark.parametrize("name", sorted(TINY.keys() - {"inception_v4", "vgg16"}))
def test_zoo_as_numpy(name: str, tmp_path: Path) -> None:
    """A step agrees with the NumPy backend up to rounding."""
    plan, weights = planned(name, tmp_path, given={"batch": 8}, optimizer="momentum")
    device, host = steps(plan, weights, "cuda", 1), steps(plan, weights, "numpy", 1)
    np.testing.assert_allclose(device["losses"], host["losses"], rtol=1e-4)
    grads = [key for key in host if key.endswith(":grad")]
    total = sum(float(np.square(host[key].astype(np.float64)).sum()) for key in grads)
    error = sum(float(np.square(device[key].astype(np.float64) - host[key]).sum()) for key in grads)
    assert (error / total) ** 0.5 < 1e-3, name


@pytest.mark.parametrize("options", [{}, {"delays": Delays(seed=1, seconds=0.0005)}])
@pytest.mark.parametrize("share", [0.6, 0.3, 0.0])
@pytest.mark.parametrize("name", sorted(TINY.keys() - {"mobilenet_v2"}))
def test_planned_equals_unplanned(name: str, share: float, options: dict[str, Any], tmp_path: Path) -> None:
    """Whatever is moved and recomputed, no bit changes; also with waits at random places."""
    plan, weights = planned(name, tmp_path, share=share, optimizer="adam", deterministic=True)
    report = run_plan(plan, weights, steps=3, check=True, backend=CudaBackend(**options))
    assert report.checked
    assert report.peak_bytes == plan.arena_bytes


def test_debug_finds_nothing(tmp_path: Path) -> None:
    """A sound plan reads no dead bytes."""
    plan, weights = planned("resnet", tmp_path, share=0.2, optimizer="momentum")
    assert run_plan(plan, weights, steps=2, backend=CudaBackend(debug=True)).steps == 2


def test_captured_equals_eager(tmp_path: Path) -> None:
    """A step that was captured once gives the bits of steps that were not, with new inputs and random numbers."""
    plan, weights = planned("alexnet", tmp_path, share=0.5, optimizer="adam", deterministic=True)
    eager = steps(plan, weights, CudaBackend(replay="eager"), 20)
    graph = steps(plan, weights, CudaBackend(), 20)
    assert eager.keys() == graph.keys()
    assert all(eager[key].tobytes() == graph[key].tobytes() for key in eager)


def test_shares_the_context_with_torch(tmp_path: Path) -> None:
    """PyTorch's work before, between and after steps is not disturbed, and it does not disturb."""
    torch = pytest.importorskip("torch")
    plan, weights = planned("resnet", tmp_path, optimizer="momentum", deterministic=True)
    alone = steps(plan, weights, "cuda", 2)["losses"]
    event = torch.cuda.Event(enable_timing=True)
    x = torch.ones(1000, device="cuda")
    event.record()
    with TrainingSession(plan, weights, backend="cuda", seed=3) as session:
        feed = random_data(session.index, seed=1)
        losses = [session.step(feed.step(1))]
        assert float((x * 2).sum()) == 2000
        losses.append(session.step(feed.step(2)))
        event.synchronize()
    assert float(x.sum()) == 1000
    np.testing.assert_array_equal(losses, alone)


PROGRAM = """
import sys, threading
sys.path[:0] = {path!r}
from pathlib import Path
from cuda_zoo import planned
from snplan.runtime.data import random_data
from snplan.runtime.session import TrainingSession
plan, weights = planned("mlp", Path({folder!r}), given={{"widths": (5, 6, 7)}})
session = TrainingSession(plan, weights, backend="cuda")
feed = random_data(session.index, seed=1)
def work():
    session.step(feed.step(1))
    if {fail}:
        session.backend._bound.work[max(session.backend._bound.work)] = [lambda: 1 / 0]
        session.backend._capturing_next = False
        session.step(feed.step(2))
if {threaded}:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
else:
    work()
"""


@pytest.mark.parametrize(("fail", "threaded"), [(False, False), (True, False), (True, True)])
def test_interpreter_ends_clean(fail: bool, threaded: bool, tmp_path: Path) -> None:
    """A session left open, or broken by an error, ends with the interpreter: no abort, no context-stack banner."""
    program = PROGRAM.format(path=sys.path, folder=str(tmp_path), fail=fail, threaded=threaded)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == (1 if fail and not threaded else 0)
    assert "context stack" not in done.stderr
    assert ("ZeroDivisionError" in done.stderr or "division by zero" in done.stderr) == fail
    if not fail:
        assert done.stderr == ""


def test_script_gives_the_same_losses(tmp_path: Path) -> None:
    """What `snplan codegen` writes runs without snplan, and gives the backend's losses bit for bit."""
    for name, given in (("resnet", {}), ("gpt2", {}), ("alexnet", {"dropout": 0.5})):
        plan, weights = planned(name, tmp_path, given=given, share=0.3, optimizer="adam", deterministic=True)
        with TrainingSession(plan, weights, backend="cuda", seed=3) as session:
            feed = random_data(session.index, seed=1).step(1)
            losses = [session.step(feed) for _ in range(3)]
        folder = tmp_path / f"{name}-script"
        folder.mkdir()
        save_arrays(folder / "w.npz", weights)
        save_arrays(folder / "d.npz", feed)
        (folder / "replay.py").write_text(replay_script(plan))
        command = [sys.executable, "replay.py", "--weights", "w.npz", "--data", "d.npz", "--steps", "3", "--seed", "3"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        assert [float(line.split()[-1]) for line in done.stdout.splitlines()] == losses


@pytest.mark.parametrize("staged", [False, True])
def test_inputs_of_torch(staged: bool, tmp_path: Path) -> None:
    """PyTorch's tensors on the device, in both orders, give what arrays in host memory give."""
    torch = pytest.importorskip("torch")
    plan, weights = planned("resnet", tmp_path, share=0.5, optimizer="momentum", deterministic=True)
    found = []
    for last in (None, torch.contiguous_format, torch.channels_last):
        with TrainingSession(plan, weights, backend="cuda", seed=3) as session:
            feeds: list[dict[str, Any]] = [dict(random_data(session.index, seed=k).step(1)) for k in range(4)]
            if last is not None:
                for feed in feeds:
                    feed["input"] = torch.as_tensor(feed["input"], device="cuda").contiguous(memory_format=last)
                    feed["target"] = torch.as_tensor(feed["target"], device="cuda")
            found.append([session.step(a, b if staged else None) for a, b in pairwise(feeds)])
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize("options", [{}, {"delays": Delays(seed=2, seconds=0.0005)}, {"replay": "eager"}])
def test_inputs_that_arrive_in_the_arena(options: dict[str, Any], tmp_path: Path) -> None:
    """Where nothing is left beside the arena, the next inputs wait for bytes of it, and no bit changes."""
    plan, weights = planned(
        "resnet", tmp_path, given={"batch": 64, "image": 64}, share=0.6, optimizer="momentum", deterministic=True
    )
    # Without a speed of the link every room is worth waiting for, and the wait is what is to be seen.
    device = {key: value for key, value in plan.device.items() if key != "h2d_bytes_per_s"}
    plan = msgspec.structs.replace(plan, budget_bytes=plan.reserve_bytes + plan.arena_bytes, device=device)
    found = []
    for staged in (False, True):
        backend = CudaBackend(**options)
        with TrainingSession(plan, weights, backend=backend, seed=3) as session:
            assert backend._bound.ahead.gates
            blocks, losses = session.input_blocks(), []
            for number in range(1, 9):
                for ahead in (0, 1) if staged else (0,):
                    fill(blocks[(number + ahead - 1) % 2], random_data(session.index, seed=number + ahead).step(1))
                now, following = blocks[(number - 1) % 2], blocks[number % 2]
                losses.append(session.step(now, following if staged else None))
            found.append([*losses, *(value.tobytes() for value in session.state().values())])
    assert found[0] == found[1]


def fill(block: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Put inputs into pinned blocks."""
    for name, value in values.items():
        block[name][...] = value


def test_trained_weights_to_onnx(tmp_path: Path) -> None:
    """A model exported from a session on the device holds the session's weights."""
    plan, weights = planned("resnet", tmp_path, share=0.5, optimizer="momentum", deterministic=True)
    path = tmp_path / "resnet.onnx"
    models.save(models.build("resnet", **{**TINY["resnet"], "batch": 2}), path)
    with TrainingSession(plan, weights, backend="cuda") as session:
        session.step(random_data(session.index, seed=1).step(1))
        session.export_onnx(path, tmp_path / "trained.onnx")
        state = session.trained()
    found = read_weights(load_model(tmp_path / "trained.onnx"), list(state))
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value)


def test_convolution_that_is_flattened(tmp_path: Path) -> None:
    """A convolution whose result is read as rows runs in the plain order, and agrees with NumPy."""
    dice = np.random.default_rng(0)
    shapes = {"w": (5, 3, 3, 3), "m": (5 * 6 * 6, 4)}
    stored = [numpy_helper.from_array(dice.standard_normal(x).astype(np.float32), name) for name, x in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"]),
        helper.make_node("Flatten", ["y"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["z"]),
    ]
    x, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 3, 8, 8]), ("z", [2, 4])))
    graph = helper.make_graph(nodes, "g", [x], [z], stored)
    path = tmp_path / "flat.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    plan = compile_model(path, CompileOptions(budget_bytes=1 << 30, reserve_bytes=0, optimizer="sgd")).plan
    weights = read_weights(load_model(path), ["w", "m"])
    device, host = steps(plan, weights, "cuda", 1), steps(plan, weights, "numpy", 1)
    for name in ("losses", "w:grad", "m:grad"):
        np.testing.assert_allclose(device[name], host[name], rtol=1e-4, atol=1e-5)
