"""Optimisers: options, state, and updates by hand."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import values
from step_support import Model, evaluate, gradients_of

from snplan.errors import UsageError
from snplan.ir import Phase, Role, Step
from snplan.training import make_optimizer
from snplan.training.optimizer import NAMES


@pytest.mark.parametrize(("name", "rate"), [("sgd", 0.01), ("momentum", 0.01), ("adam", 0.001)])
def test_default_rates(name: str, rate: float) -> None:
    assert make_optimizer(name).lr == rate
    assert make_optimizer(name, lr=0.5).lr == 0.5


def test_unknown_optimizer() -> None:
    """An unknown optimiser is an error, not -1 bytes of state."""
    with pytest.raises(UsageError, match="SNP-U040: optimizer 'lion' is unknown; use one of sgd, momentum, adam, none"):
        make_optimizer("lion")


def test_unknown_option() -> None:
    with pytest.raises(UsageError, match="SNP-U040: optimizer options nesterov are unknown; there are lr, momentum"):
        make_optimizer("sgd", nesterov=1.0)


@pytest.mark.parametrize("options", [{"lr": -1.0}, {"lr": float("nan")}, {"momentum": 1.0}, {"beta1": 1.5}])
def test_options_out_of_range(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="SNP-U041"):
        make_optimizer("adam", **options)


def model_of(size: int = 1000) -> tuple[Model, str]:
    model = Model()
    x = model.source("x", values(size), fed=True)
    w = model.source("w", values(size, seed=1).astype(np.float32))
    return model, model.sum(model.then("mul", model.then("cast", w, to="float64"), x))


def state_bytes(step: Step) -> int:
    tensors = step.graph.tensors
    return sum(tensors[name].bytes for name in step.graph.sources if tensors[name].role is Role.OPTIMIZER)


@pytest.mark.parametrize(("name", "expected"), [("none", 0), ("sgd", 0), ("momentum", 4000), ("adam", 8000)])
def test_state_of_1000_parameters(name: str, expected: int) -> None:
    model, loss = model_of()
    assert state_bytes(model.step(loss, optimizer=make_optimizer(name))) == expected


@pytest.mark.parametrize("name", NAMES)
def test_what_becomes_what(name: str) -> None:
    model, loss = model_of()
    step = model.step(loss, optimizer=make_optimizer(name))
    states = {"momentum": ["w:momentum"], "adam": ["w:m", "w:v"]}.get(name, [])
    updated = [] if name == "none" else ["w", *states]
    assert step.becomes == {"w": "w", **{source: f"{source}:next" for source in updated}}
    assert step.graph.outputs == ((loss, "w:grad") if name == "none" else (loss,))
    for state in states:
        assert step.graph.tensors[f"{state}:next"].role is Role.OPTIMIZER
    if name != "none":
        assert step.graph.tensors["w:next"].role is Role.PARAMETER
        assert step.graph.ops[-1].phase is Phase.UPDATE


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_two_steps_by_hand(name: str) -> None:
    model, loss = model_of(5)
    optimizer = make_optimizer(name, lr=0.1, weight_decay=0.01)
    step = model.step(loss, optimizer=optimizer)
    current = {**model.values, **{s: np.zeros(5, np.float32) for s in step.graph.sources if s not in model.values}}
    g, w = model.values["x"].astype(np.float32), model.values["w"].copy()
    m, v = np.zeros(5), np.zeros(5)
    for t in (1, 2):
        found = evaluate(step.graph, current, step=t)
        current = {**current, **{source: found[after] for source, after in step.becomes.items()}}
        if name == "adam":
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            w = w - 0.1 * ((m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) + 0.01 * w)
        else:
            m = (0.9 if name == "momentum" else 0.0) * m + g + 0.01 * w
            w = w - 0.1 * m
        np.testing.assert_allclose(current["w"], w, rtol=1e-5)


def test_gradients_do_not_depend_on_the_optimizer() -> None:
    model, loss = model_of(7)
    step = model.step(loss, optimizer=make_optimizer("adam"))
    zeros = {name: np.zeros(7, np.float32) for name in ("w:m", "w:v")}
    np.testing.assert_array_equal(gradients_of(step, {**model.values, **zeros})["w"], model.gradients(loss)["w"])
