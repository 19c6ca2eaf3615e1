"""Which initializers are parameters, state and constants."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import positive, values
from step_support import Model

from snplan.errors import UsageError
from snplan.ir import Phase, Role
from snplan.training import find_parameters


def batch_norm_model() -> tuple[Model, str]:
    """x @ w, BatchNorm in training form with running statistics."""
    model = Model()
    x = model.source("x", values(4, 3), fed=True)
    y = model.matmul(x, model.source("w", values(3, 2)))
    for name in ("scale", "bias", "mean", "var"):
        model.source(f"bn.{name}", positive(2))
    y, mean, var = model.op("batch_norm_train", [y, "bn.scale", "bn.bias"], epsilon=1e-5)
    model.op(
        "batch_norm_update",
        ["bn.mean", "bn.var", mean, var],
        ["bn.mean:next", "bn.var:next"],
        phase=Phase.UPDATE,
        momentum=0.9,
    )
    model.states = {"bn.mean": "bn.mean:next", "bn.var": "bn.var:next"}
    return model, model.sum(y)


def test_running_statistics_are_state() -> None:
    """ORT's "all initializers need a gradient" fails here: running statistics are listed, not trained."""
    model, loss = batch_norm_model()
    found = find_parameters(model.forward(loss, loss=loss))
    assert found.trained == ("w", "bn.scale", "bn.bias")
    assert found.roles["bn.mean"] is found.roles["bn.var"] is Role.STATE
    assert found.roles["w"] is Role.PARAMETER


def test_running_statistics_in_evaluation_are_state() -> None:
    model = Model()
    x = model.source("x", values(4, 2), fed=True)
    names = [model.source(name, positive(2)) for name in ("scale", "bias", "mean", "var")]
    loss = model.sum(model.then("batch_norm_eval", x, *names, epsilon=1e-5))
    found = find_parameters(model.forward(loss, loss=loss))
    assert found.trained == ("scale", "bias")
    assert found.roles["mean"] is found.roles["var"] is Role.STATE


def test_paths_through_views_casts_and_products() -> None:
    model = Model()
    x = model.source("x", values(4, 3), fed=True)
    w = model.source("w", values(6).astype(np.float32))
    scale = model.source("scale", np.float64(0.5))
    view = model.then("view", w, shape=[2, 3])
    wide = model.then("cast", model.then("transpose", view, perm=[1, 0]), to="float64")
    loss = model.sum(model.matmul(x, model.then("mul", wide, scale)))
    assert find_parameters(model.forward(loss, loss=loss)).trained == ("w", "scale")


def test_constants() -> None:
    """Integers, what no path leads from, and what only a comparison or a flat function reads."""
    model = Model()
    x = model.source("x", values(4, 3), fed=True)
    table = model.source("table", values(5, 3))
    index = model.source("index", np.array([0, 2, 1, 4]))
    threshold = model.source("threshold", values(3))
    steps = model.source("steps", values(3))
    row = model.then("gather", table, index, axis=0)
    mask = model.then("less", x, threshold)
    y = model.then("where", mask, row, model.then("mul", x, model.then("sign", steps)))
    model.source("unused", values(3))
    loss = model.sum(y)
    found = find_parameters(model.forward(loss, loss=loss))
    assert found.trained == ("table",)
    assert {name for name, role in found.roles.items() if role is Role.CONSTANT} == {
        "index",
        "threshold",
        "steps",
        "unused",
    }


def test_freezing() -> None:
    model, loss = batch_norm_model()
    found = find_parameters(model.forward(loss, loss=loss), ("bn.*",))
    assert found.trained == ("w",)
    assert found.frozen == ("bn.scale", "bn.bias")
    assert found.roles["bn.scale"] is Role.PARAMETER
    everything = find_parameters(model.forward(loss, loss=loss), ("*",))
    assert everything.trained == ()


def test_globs_that_match_nothing() -> None:
    model, loss = batch_norm_model()
    with pytest.raises(UsageError, match=r"SNP-U043: --freeze W\* layer1 matches no parameter; there are: w, bn.scale"):
        find_parameters(model.forward(loss, loss=loss), ("w", "W*", "layer1"))


def test_state_that_is_a_weight_too() -> None:
    model, _ = batch_norm_model()
    y = model.then("add", model.ops[1].outputs[0], "bn.mean")
    loss = model.sum(y)
    found = find_parameters(model.forward(loss, loss=loss))
    assert "bn.mean" not in found.trained
    assert found.roles["bn.mean"] is Role.STATE
    assert "updated as a statistic and not trained" in found.warnings[0]
