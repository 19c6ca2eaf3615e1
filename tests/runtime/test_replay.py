"""Replays of plans written by hand: what moves, recomputes or works in place changes no bit; what is unsound is found.

All plans are of one small step: h = x W, a = gelu(h), loss = mean(a a), and its backward and update.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from runtime_support import Draft, normal

from snplan.errors import RunError
from snplan.plan.model import Place, StepPlan
from snplan.plan.verify import verify
from snplan.runtime.numpy import Array
from snplan.runtime.numpy.backend import NumpyBackend
from snplan.runtime.numpy.streams import Delays
from snplan.runtime.session import TrainingSession

ROWS, WIDTH = 32, 32
BYTES = ROWS * WIDTH * 4


def step_draft() -> tuple[Draft, dict[str, int]]:
    """The step's tensors and ops, with its sources in buffers: where they are."""
    d = Draft()
    where = {
        "x": d.source("x", ROWS, WIDTH, role="input"),
        "W": d.source("W", WIDTH, WIDTH, role="parameter", becomes="W:next"),
    }
    where["W:next"] = where["W"]
    for name in ("h", "a", "s"):
        d.tensor(name, ROWS, WIDTH)
    for name in ("a:grad", "h:grad", "W:grad"):
        d.tensor(name, ROWS, WIDTH, role="gradient")
    d.tensor("W:next", WIDTH, WIDTH, role="parameter")
    d.tensor("loss", role="loss")
    d.op("fc", "matmul", "x W", "h", trans_a=False, trans_b=False, alpha=1.0)
    d.op("act", "gelu", "h", "a", approximate="none")
    d.op("square", "mul", "a a", "s")
    d.op("mean", "reduce_mean", "s", "loss", axes=[0, 1], keepdims=False)
    d.op("da", "mul", "a", "a:grad", phase="backward", scalar=2.0 / (ROWS * WIDTH))
    d.op("dh", "gelu_grad", "h a:grad", "h:grad", phase="backward", approximate="none")
    d.op("dw", "matmul", "x h:grad", "W:grad", phase="backward", trans_a=True, trans_b=False, alpha=1.0)
    d.op("sgd", "sgd_update", "W W:grad", "W:next", phase="update", lr=0.5, weight_decay=0.0)
    return d, where


def _finish(d: Draft, where: dict[str, int]) -> StepPlan:
    d.outputs.append(Place(tensor="loss", buffer=where["loss"]))
    return d.plan()


def keep_all() -> StepPlan:
    """Every tensor in a buffer of its own until its last use."""
    d, where = step_draft()
    for name in ("h", "a", "s", "a:grad", "h:grad", "W:grad"):
        where[name] = d.buffer(BYTES)
    where["loss"] = d.buffer()
    d.alloc(*(where[name] for name in ("h", "a", "s", "loss", "a:grad", "h:grad", "W:grad")))
    for op in d.ops:
        d.run(op, where)
    d.free(*(where[name] for name in ("h", "a", "s", "a:grad", "h:grad", "W:grad")))
    return _finish(d, where)


def recompute() -> StepPlan:
    """h is dropped after its forward use and computed again; buffers are shared; h:grad takes the bytes of a:grad."""
    d, where = step_draft()
    first, second, third = (d.buffer(BYTES) for _ in range(3))
    where["loss"] = d.buffer()
    where |= {"h": first, "a": second, "s": third}
    d.alloc(first, second, third, where["loss"])
    d.run("fc", where)
    d.run("act", where)
    d.free(first)
    d.run("square", where)
    d.run("mean", where)
    d.free(third)
    d.alloc(third)
    where |= {"a:grad": third, "h:grad": third}
    d.run("da", where)
    d.free(second)
    d.alloc(first)
    d.run("fc", where, again=True)
    d.run("dh", where)
    d.free(first)
    again = d.buffer(BYTES, d.buffers[second].offset)
    where["W:grad"] = again
    d.alloc(again)
    d.run("dw", where)
    d.run("sgd", where)
    d.free(third, again)
    return _finish(d, where)


def offload(*, drop: str = "", swap_free: bool = False) -> StepPlan:
    """h goes to the host after its forward use and comes back into other bytes; `drop` leaves one `after` edge out."""
    d, where = step_draft()
    first, second, third = (d.buffer(BYTES) for _ in range(3))
    where["loss"] = d.buffer()
    slot = d.slot(BYTES)
    where |= {"h": first, "a": second, "s": first}
    d.alloc(first, second, where["loss"])
    fc = d.run("fc", where)
    out = d.offload("h", first, slot, *([fc] if drop != "offload" else []))
    d.run("act", where)
    d.free(first)
    d.alloc(first)
    d.run("square", where, *([out] if drop != "reuse" else []))
    d.run("mean", where)
    d.free(first)
    d.alloc(third)
    back = d.prefetch("h", slot, third, *([out] if drop != "prefetch" else []))
    d.alloc(first)
    where |= {"h": third, "a:grad": first, "h:grad": first}
    d.run("da", where)
    if swap_free:
        d.free(third)
    d.run("dh", where, *([back] if drop != "read" else []))
    d.free(second)
    if not swap_free:
        d.free(third)
    where["W:grad"] = d.buffer(BYTES, d.buffers[second].offset)
    d.alloc(where["W:grad"])
    d.run("dw", where)
    d.run("sgd", where)
    d.free(first, where["W:grad"])
    return _finish(d, where)


PLANS: Mapping[str, Callable[[], StepPlan]] = {"keep_all": keep_all, "recompute": recompute, "offload": offload}
WEIGHTS = {"W": normal(WIDTH, WIDTH, seed=1) * np.float32(0.3)}
INPUTS = {"x": normal(ROWS, WIDTH)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What three steps give: losses, the last gradient, the state, all as bytes."""

    losses: list[float]
    gradient: bytes
    state: bytes


def replayed(plan: StepPlan, **options: Any) -> Result:
    """Three steps of `plan` on the NumPy backend."""
    with TrainingSession(plan, WEIGHTS, backend=NumpyBackend(**options)) as session:
        losses = [session.step(INPUTS) for _ in range(3)]
        return Result(losses=losses, gradient=session.gradients()["W"].tobytes(), state=session.state()["W"].tobytes())


def by_formula(steps: int) -> tuple[list[float], Array, Array]:
    """Losses, the last gradient and W of the step, in float64 from its definition."""
    x, w = INPUTS["x"].astype(np.float64), WEIGHTS["W"].astype(np.float64)
    cdf = np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))
    losses = []
    gradient = np.zeros_like(w)
    for _ in range(steps):
        h = x @ w
        a = h * cdf(h)
        losses.append(float((a * a).mean()))
        slope = cdf(h) + h * np.exp(-h * h / 2) / math.sqrt(2 * math.pi)
        gradient = x.T @ (2 * a / a.size * slope)
        w = w - 0.5 * gradient
    return losses, gradient, w


@pytest.mark.parametrize("name", PLANS)
def test_the_plans_are_sound(name: str) -> None:
    assert verify(PLANS[name]()) == []


def test_the_step_is_its_formula() -> None:
    losses, gradient, w = by_formula(3)
    found = replayed(keep_all())
    np.testing.assert_allclose(found.losses, losses, rtol=1e-6)
    np.testing.assert_allclose(
        np.frombuffer(found.gradient, np.float32).reshape(w.shape), gradient, rtol=1e-4, atol=1e-7
    )
    np.testing.assert_allclose(np.frombuffer(found.state, np.float32).reshape(w.shape), w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("threads", [False, True])
def test_moves_and_recomputes_change_no_bit(name: str, debug: bool, threads: bool) -> None:
    assert replayed(PLANS[name](), debug=debug, threads=threads) == replayed(keep_all())


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("seed", range(4))
def test_delays_change_no_bit(name: str, seed: int) -> None:
    delays = Delays(seed=seed, seconds=0.004)
    assert replayed(PLANS[name](), debug=True, delays=delays) == replayed(keep_all())


LATE = {
    # The stream that has to be slow for the missing edge to matter.
    "offload": "compute",
    "reuse": "d2h",
    "prefetch": "d2h",
    "read": "h2d",
}


def _outcome(plan: StepPlan, delays: Delays) -> str:
    """Whether the replay gives the keep-all plan's bits, others, or an error."""
    try:
        return "equal" if replayed(plan, debug=True, delays=delays) == replayed(keep_all()) else "other bits"
    except RunError as error:
        return error.code


@pytest.mark.parametrize("drop", LATE)
def test_a_missing_edge_is_found_by_the_verifier_and_by_a_delay(drop: str) -> None:
    plan = offload(drop=drop)
    # Without the edge of the prefetch on the offload the slot holds nothing in time: h comes back as poison.
    assert verify(plan)
    outcomes = [_outcome(plan, Delays(seed=seed, seconds=0.03, streams=(LATE[drop],))) for seed in range(4)]
    assert set(outcomes) - {"equal"}
    assert set(outcomes) <= {"equal", "other bits", "SNP-R006"}


def test_a_buffer_freed_too_early_is_named() -> None:
    plan = offload(swap_free=True)
    with pytest.raises(RunError, match=r"op dh \(gelu_grad\), reads NaN from tensor h") as caught:
        replayed(plan, debug=True)
    assert caught.value.code == "SNP-R006"
    assert plan.actions[caught.value.details["action"]].op == "dh"


def test_bytes_that_nobody_wrote_are_found() -> None:
    d, where = step_draft()
    for name in ("h", "a", "s", "a:grad", "h:grad", "W:grad"):
        where[name] = d.buffer(BYTES)
    where["loss"] = d.buffer()
    d.alloc(*(where[name] for name in ("h", "a", "s", "loss", "a:grad", "h:grad", "W:grad")))
    for op in d.ops:
        if op != "da":
            d.run(op, where)
    plan = _finish(d, where)
    for _ in range(2):
        with pytest.raises(RunError, match="reads NaN from tensor a:grad"):
            replayed(plan, debug=True)


def test_a_step_takes_no_memory_and_its_peak_is_the_plans() -> None:
    for make in PLANS.values():
        plan = make()
        with TrainingSession(plan, WEIGHTS) as session:
            session.step(INPUTS)
            measured = session.measured
        assert measured is not None
        assert measured.allocations == 0
        assert measured.peak_bytes == plan.arena_bytes
        assert measured.peak_live_bytes == plan.peak_live_bytes
        assert measured.actions == len(plan.actions)


def test_taking_memory_in_a_step_is_an_error() -> None:
    backend = NumpyBackend()
    session = TrainingSession(keep_all(), WEIGHTS, backend=backend)
    run = backend.run

    def greedy(action: int) -> None:
        backend._device.allocations += 1
        run(action)

    backend.run = greedy  # type: ignore[method-assign]
    with pytest.raises(RunError, match="SNP-R012: step 1 took 8 blocks"):
        session.step(INPUTS)


def _cycle() -> StepPlan:
    """One slot, two tensors: the second cannot go out before the first is back, which waits for the second."""
    d, where = step_draft()
    for name in ("h", "a"):
        where[name] = d.buffer(BYTES)
    slot = d.slot(BYTES)
    d.alloc(where["h"], where["a"])
    d.run("fc", where)
    act = d.run("act", where)
    out = d.offload("h", where["h"], slot, act)
    second = d.offload("a", where["a"], slot, out, out + 2)
    d.prefetch("h", slot, where["h"], out, second)
    d.prefetch("a", slot, where["a"], second)
    return d.plan()


def test_a_deadlock_is_named_at_once() -> None:
    backend = NumpyBackend(threads=True, timeout=30)
    session = TrainingSession(_cycle(), WEIGHTS, backend=backend)
    with pytest.raises(RunError, match="can never start") as caught:
        session.step(INPUTS)
    assert caught.value.code == "SNP-R005"
    assert "action 5 (offload of a, buffer 3, slot 0, stream d2h) waits for 6" in caught.value.message
    assert "action 6 (prefetch of h, buffer 2, slot 0, stream h2d) waits for 5" in caught.value.message


def test_without_threads_what_comes_too_early_is_named() -> None:
    session = TrainingSession(_cycle(), WEIGHTS)
    with pytest.raises(RunError, match=r"action 5 .*comes after \[6\]"):
        session.step(INPUTS)


def test_an_action_that_never_ends_is_named() -> None:
    backend = NumpyBackend(threads=True, timeout=0.2)
    session = TrainingSession(keep_all(), WEIGHTS, backend=backend)
    gate = threading.Event()
    execute = backend._pool._execute  # type: ignore[union-attr]

    def stuck(bound: Any) -> None:
        if bound.call.op.name == "act":
            gate.wait(10)
        execute(bound)

    backend._pool._execute = stuck  # type: ignore[union-attr]
    with pytest.raises(RunError, match=r"no action ended in 0.2 s.*op act"):
        session.step(INPUTS)
    gate.set()


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    plan = keep_all()
    plan.ops[3].attrs["axes"] = [7]
    session = TrainingSession(plan, WEIGHTS, backend=NumpyBackend(threads=True))
    with pytest.raises(RunError, match=r"op mean \(reduce_mean\) failed: IndexError") as caught:
        session.step(INPUTS)
    assert caught.value.code == "SNP-R007"


def test_the_first_op_that_makes_nan_is_remembered() -> None:
    backend = NumpyBackend(debug=True)
    session = TrainingSession(keep_all(), {"W": WEIGHTS["W"] * np.float32(1e38)}, backend=backend)
    assert not np.isfinite(session.step(INPUTS))
    assert backend.first_nan == "act"
    # NaN that was computed may be read: the next step starts from it.
    session.step(INPUTS)
