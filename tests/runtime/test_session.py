"""Sessions: state between steps, what goes in and comes out, and errors that name what does not fit."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from runtime_support import Draft, normal, run_kernel

from snplan.errors import ExitCode, RunError
from snplan.plan.model import Algorithm, Alloc, Extent, Free, Persistent, Place, Run, StepPlan
from snplan.plan.verify import verify
from snplan.runtime import rng
from snplan.runtime.numpy import Array, Context
from snplan.runtime.numpy.backend import NumpyBackend
from snplan.runtime.session import TrainingSession, make_backend


def linear(optimizer: str = "momentum_update") -> StepPlan:
    """loss = mean((x W)^2) with an update of W: all in buffers of their own."""
    d = Draft()
    where = {"x": d.source("x", 4, 3, role="input"), "W": d.source("W", 3, 2, role="parameter", becomes="W:next")}
    d.tensor("W:next", 3, 2, role="parameter")
    where["W:next"] = where["W"]
    state = {"sgd_update": [], "momentum_update": ["W:momentum"], "adam_update": ["W:m", "W:v"]}[optimizer]
    for name in state:
        where[name] = where[f"{name}:next"] = d.source(name, 3, 2, role="optimizer", becomes=f"{name}:next")
        d.tensor(f"{name}:next", 3, 2, role="optimizer")
    shapes = {"y": (4, 2), "s": (4, 2), "y:grad": (4, 2), "W:grad": (3, 2)}
    for name, shape in shapes.items():
        d.tensor(name, *shape, role="gradient" if name.endswith("grad") else "activation")
        where[name] = d.buffer()
    d.tensor("loss", role="loss")
    where["loss"] = d.buffer()
    d.op("fc", "matmul", "x W", "y", trans_a=False, trans_b=False, alpha=1.0)
    d.op("square", "mul", "y y", "s")
    d.op("mean", "reduce_mean", "s", "loss", axes=[0, 1], keepdims=False)
    d.op("dy", "mul", "y", "y:grad", phase="backward", scalar=0.25)
    d.op("dw", "matmul", "x y:grad", "W:grad", phase="backward", trans_a=True, trans_b=False, alpha=1.0)
    attrs: dict[str, Any] = {
        "lr": 0.1,
        "weight_decay": 0.0,
        "momentum": 0.9,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
    }
    inputs, outputs = " ".join(["W", "W:grad", *state]), " ".join(["W:next", *(f"{name}:next" for name in state)])
    d.op("update", optimizer, inputs, outputs, phase="update", **attrs)
    d.alloc(*(where[name] for name in (*shapes, "loss")))
    for op in d.ops:
        d.run(op, where)
    d.free(*(where[name] for name in shapes))
    d.outputs.append(Place(tensor="loss", buffer=where["loss"]))
    return d.plan()


W, X = normal(3, 2, seed=1), normal(4, 3)


@pytest.mark.parametrize("optimizer", ["sgd_update", "momentum_update", "adam_update"])
def test_state_goes_from_step_to_step(optimizer: str) -> None:
    plan = linear(optimizer)
    assert verify(plan) == []
    attrs = plan.ops[-1].attrs
    w, rest = W, [np.zeros_like(W)] * (len(plan.ops[-1].inputs) - 2)
    with TrainingSession(plan, {"W": W}) as session:
        for number in (1, 2, 3):
            loss = session.step({"x": X})
            y = X @ w
            np.testing.assert_allclose(loss, (y * y).mean(), rtol=1e-6)
            gradient = X.T @ (y * np.float32(0.25))
            np.testing.assert_allclose(session.gradients()["W"], gradient, rtol=1e-5, atol=1e-7)
            w, *rest = run_kernel(optimizer, [w, session.gradients()["W"], *rest], attrs, Context(step=number))
            state = session.state()
            np.testing.assert_array_equal(state["W"], w)
            for name, value in zip(plan.ops[-1].inputs[2:], rest, strict=True):
                np.testing.assert_array_equal(state[name], value)
        assert session.outputs()["loss"].shape == ()
        assert session.has_loss


def test_optimizer_state_may_be_given() -> None:
    momentum = np.ones((3, 2), np.float32)
    with TrainingSession(linear(), {"W": W, "W:momentum": momentum}) as session:
        session.step({"x": X})
        np.testing.assert_allclose(session.state()["W:momentum"], 0.9 + session.gradients()["W"], rtol=1e-6)


def test_weights_and_inputs_are_not_changed_and_not_kept() -> None:
    w, x = W.copy(), X.copy()
    with TrainingSession(linear(), {"W": w}) as session:
        session.step({"x": x})
        state, gradient = session.state()["W"], session.gradients()["W"]
        held = state.copy(), gradient.copy()
        session.step({"x": x * 2})
        np.testing.assert_array_equal(w, W)
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(state, held[0])
        np.testing.assert_array_equal(gradient, held[1])


def test_gradients_need_not_be_kept() -> None:
    with TrainingSession(linear(), {"W": W}, keep_gradients=False) as session:
        session.step({"x": X})
        assert session.gradients() == {}


@pytest.mark.parametrize(
    ("weights", "inputs", "code", "message"),
    [
        ({}, {"x": X}, "SNP-R001", r"parameter W \(float32\[3, 2\]\) is missing"),
        ({"W": W.T}, {"x": X}, "SNP-R001", r"parameter W must be float32\[3, 2\], it is float32\[2, 3\]"),
        ({"W": W.astype(np.float64)}, {"x": X}, "SNP-R001", "W is float64 and may lose values as float32"),
        ({"W": W}, {}, "SNP-R002", r"input x \(float32\[4, 3\]\) is missing"),
        ({"W": W}, {"x": X[:2]}, "SNP-R002", r"input x must be float32\[4, 3\], it is float32\[2, 3\]"),
        ({"W": W}, {"x": X, "z": X}, "SNP-R002", "z is not an input of the plan's model; its inputs are x"),
        ({"W": W}, {"x": X.astype(np.int64)}, "SNP-R002", "x is int64 and may lose values"),
    ],
)
def test_what_does_not_fit_is_named(weights: Any, inputs: Any, code: str, message: str) -> None:
    with pytest.raises(RunError, match=message) as caught:
        TrainingSession(linear(), weights).step(inputs)
    assert caught.value.code == code
    assert caught.value.exit_code == ExitCode.RUN_FAILED


def test_types_change_only_without_loss() -> None:
    session = TrainingSession(linear(), {"W": W.astype(np.float16).astype(np.float32)})
    same = TrainingSession(linear(), {"W": W.astype(np.float16)})
    assert session.step({"x": X}) == same.step({"x": X})
    assert same.step({"x": X.astype(np.float16)}) == session.step({"x": X.astype(np.float16).astype(np.float32)})


class _Lent:
    """Memory that is offered through DLPack only."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_inputs_by_dlpack() -> None:
    losses = set()
    for x in (X, _Lent(X.copy())):
        with TrainingSession(linear(), {"W": W}) as session:
            losses.add(session.step({"x": x}))
    assert len(losses) == 1


def test_a_value_that_ends_elsewhere_is_brought_back() -> None:
    """The verifier refuses such plans; a session of one still trains."""
    plan = linear("sgd_update")
    expected = TrainingSession(plan, {"W": W})
    draft = linear("sgd_update")
    other = draft.buffers[-1].offset + 512
    buffers = [*draft.buffers, Extent(id=99, offset=other, bytes=512)]
    update = draft.actions[-5]
    assert isinstance(update, Run)
    moved = Run(op="update", reads=update.reads, writes=[("W:next", 99)], after=[])
    actions = [*draft.actions[:-5], moved, *draft.actions[-4:]]
    elsewhere = msgspec.structs.replace(
        draft,
        buffers=buffers,
        actions=actions,
        arena_bytes=other + 512,
        persistent=[Persistent(tensor="W", becomes="W:next", buffer=99)],
    )
    session = TrainingSession(elsewhere, {"W": W})
    for _ in range(3):
        assert session.step({"x": X}) == expected.step({"x": X})
    np.testing.assert_array_equal(session.state()["W"], expected.state()["W"])


def test_backends_by_name() -> None:
    assert make_backend("numpy").name == "numpy"
    with pytest.raises(RunError, match="there is no backend 'abacus'"):
        make_backend("abacus")


def test_an_arena_that_does_not_fit_is_refused() -> None:
    with pytest.raises(RunError, match=r"the arena of 1024.00 TiB .* does not fit") as caught:
        TrainingSession(msgspec.structs.replace(linear(), arena_bytes=1 << 50), {"W": W})
    assert caught.value.code == "SNP-R009"


def test_a_kind_without_a_kernel_is_named() -> None:
    plan = linear()
    ops = [msgspec.structs.replace(plan.ops[0], kind="fc9"), *plan.ops[1:]]
    with pytest.raises(RunError, match="op fc is of kind fc9") as caught:
        TrainingSession(msgspec.structs.replace(plan, ops=ops), {"W": W})
    assert caught.value.code == "SNP-R004"


def _batch_norm(*, recomputed: bool) -> StepPlan:
    """y = batch norm of x with statistics, its running statistics updated; y may be computed twice."""
    d = Draft()
    where = {"x": d.source("x", 2, 1, role="input")}
    for name in ("scale", "bias"):
        where[name] = d.source(name, 1, role="parameter")
    for name in ("running_mean", "running_var"):
        where[name] = where[f"{name}:next"] = d.source(name, 1, role="state", becomes=f"{name}:next")
        d.tensor(f"{name}:next", 1, role="state")
    for name, shape in {"y": (2, 1), "mean": (1,), "var": (1,), "z": (2, 1)}.items():
        d.tensor(name, *shape)
        where[name] = d.buffer()
    d.tensor("loss", role="loss")
    where["loss"] = d.buffer()
    d.op("bn", "batch_norm_train", "x scale bias", "y mean var", epsilon=1e-5)
    d.op("z", "exp", "y", "z")
    d.op("loss", "reduce_sum", "z", "loss", axes=[0, 1], keepdims=False)
    inputs = "running_mean running_var mean var"
    d.op("stats", "batch_norm_update", inputs, "running_mean:next running_var:next", phase="update", momentum=0.9)
    statistics = [where[name] for name in ("y", "mean", "var")]
    d.alloc(*statistics, where["z"], where["loss"])
    d.run("bn", where)
    d.run("z", where)
    if recomputed:
        d.free(*statistics)
        d.alloc(*statistics)
        d.run("bn", where, again=True)
    d.run("loss", where)
    d.run("stats", where)
    d.free(*statistics, where["z"])
    d.outputs.append(Place(tensor="loss", buffer=where["loss"]))
    return d.plan()


@pytest.mark.parametrize("recomputed", [False, True])
def test_a_recompute_updates_running_statistics_once(recomputed: bool) -> None:
    """x = [1, 5], momentum 0.9: 0.300, 1.300 after one step, 0.813, 1.813 after three (twice a step: 1.406, 2.406)."""
    weights = {
        "scale": np.ones(1, np.float32),
        "bias": np.zeros(1, np.float32),
        "running_mean": np.zeros(1, np.float32),
        "running_var": np.ones(1, np.float32),
    }
    plan = _batch_norm(recomputed=recomputed)
    assert verify(plan) == []
    with TrainingSession(plan, weights, debug=True) as session:
        for expected in ((0.3, 1.3), (0.57, 1.57), (0.813, 1.813)):
            session.step({"x": np.array([[1.0], [5.0]], np.float32)})
            state = session.state()
            np.testing.assert_allclose([state["running_mean"][0], state["running_var"][0]], expected, rtol=1e-6)


def _dropout(*, recomputed: bool) -> StepPlan:
    """d = dropout(x), y = d w, loss = sum(y): the gradient of w is d, which may be computed again for it."""
    d = Draft()
    where = {"x": d.source("x", 1024, role="input"), "w": d.source("w", 1024, role="parameter")}
    for name, role in {"d": "activation", "y": "activation", "w:grad": "gradient"}.items():
        d.tensor(name, 1024, role=role)
        where[name] = d.buffer(4096)
    d.tensor("loss", role="loss")
    where["loss"] = d.buffer()
    d.op("drop", "dropout", "x", "d", rng=11, ratio=0.5)
    d.op("times", "mul", "d w", "y")
    d.op("sum", "reduce_sum", "y", "loss", axes=[0], keepdims=False)
    d.op("dw", "copy", "d", "w:grad", phase="backward")
    d.alloc(where["d"], where["y"], where["loss"])
    d.run("drop", where)
    d.run("times", where)
    d.run("sum", where)
    d.free(where["y"])
    if recomputed:
        d.free(where["d"])
        d.alloc(where["d"])
        d.run("drop", where, again=True)
    d.alloc(where["w:grad"])
    d.run("dw", where)
    d.free(where["d"])
    d.outputs += [Place(tensor="loss", buffer=where["loss"]), Place(tensor="w:grad", buffer=where["w:grad"])]
    return d.plan()


def test_a_recomputed_dropout_draws_the_same_mask() -> None:
    x = np.ones(1024, np.float32)
    w = np.arange(1024, dtype=np.float32)
    sessions = [TrainingSession(_dropout(recomputed=again), {"w": w}, seed=5, debug=True) for again in (False, True)]
    for step in (1, 2):
        losses = [session.step({"x": x}) for session in sessions]
        kept = rng.keep(1024, 0.5, seed=5, stream=11, step=step)
        np.testing.assert_array_equal(sessions[1].gradients()["w"], np.where(kept, 2.0, 0.0))
        assert losses[0] == losses[1] == pytest.approx(float((kept * 2.0 * w).sum()), rel=1e-6)
        np.testing.assert_array_equal(sessions[1].outputs()["w:grad"], sessions[1].gradients()["w"])


def test_views_are_read_under_their_shape() -> None:
    """An output that is a view of an intermediate stays whole while later ops use other bytes."""
    d = Draft()
    where = {"x": d.source("x", 2, 6, role="input")}
    for name, shape in {"y": (2, 6), "t": (4, 3), "u": (4, 3)}.items():
        d.tensor(name, *shape)
        where[name] = d.buffer()
    d.op("y", "neg", "x", "y")
    d.op("t", "transpose", "y", "t", perm=[1, 0], in_shapes=[[3, 4]])
    d.op("u", "exp", "t", "u")
    d.alloc(where["y"], where["t"])
    d.run("y", where)
    d.run("t", where)
    d.alloc(where["u"])
    d.run("u", where)
    d.free(where["t"], where["u"])
    d.outputs.append(Place(tensor="y", buffer=where["y"]))
    x = normal(2, 6)
    backend = NumpyBackend(debug=True)
    with TrainingSession(d.plan(), {}, backend=backend) as session:
        assert np.isnan(session.step({"x": x}))
        assert not session.has_loss
        np.testing.assert_array_equal(session.outputs()["y"], -x)


def test_workspaces_are_part_of_the_arena() -> None:
    """A plan with an algorithm's workspace replays without taking memory for it."""
    plan = linear("sgd_update")
    workspace = Extent(id=50, offset=plan.arena_bytes, bytes=2048)
    alloc, free = Alloc(buffer=50), Free(buffer=50)
    first = next(i for i, action in enumerate(plan.actions) if getattr(action, "op", None) == "fc")
    algorithm = Algorithm(op="fc", engine=0, workspace=50)
    actions = [*plan.actions[:first], alloc, algorithm, plan.actions[first], free, *plan.actions[first + 1 :]]
    bigger = msgspec.structs.replace(
        plan, buffers=[*plan.buffers, workspace], actions=actions, arena_bytes=plan.arena_bytes + 2048
    )
    with TrainingSession(bigger, {"W": W}) as session:
        session.step({"x": X})
        assert session.measured is not None
        assert session.measured.allocations == 0
        assert session.measured.peak_bytes == bigger.arena_bytes
