"""Finding the loss among the outputs, and computing one where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import values
from step_support import Model, evaluate

from snplan.errors import ModelError, UsageError
from snplan.ir import DType, Role, Spec, problems
from snplan.training import attach_loss
from snplan.training.loss import class_axis


def classifier(*shape: int, output: str = "logits") -> Model:
    """A model with one output of `shape`."""
    model = Model()
    x = model.source("x", values(*shape), fed=True)
    model.op("neg", [x], [output])
    return model


@pytest.mark.parametrize(("rank", "axis"), [(1, 0), (2, 1), (3, 2), (4, 1), (5, 1)])
def test_class_axis(rank: int, axis: int) -> None:
    assert class_axis(rank) == axis


@pytest.mark.parametrize(
    ("shape", "labels", "axis"),
    [((4, 10), (4,), 1), ((2, 5, 7), (2, 5), 2), ((2, 3, 4, 4), (2, 4, 4), 1), ((6,), (), 0)],
)
def test_cross_entropy(shape: tuple[int, ...], labels: tuple[int, ...], axis: int) -> None:
    forward = attach_loss(classifier(*shape).forward("logits"))
    assert problems(forward.graph) == []
    assert forward.loss == "loss"
    assert forward.inputs == ("x", "target")
    assert forward.graph.tensors["target"].spec == Spec(DType.INT64, labels)
    assert forward.graph.tensors["target"].role is Role.INPUT
    assert forward.graph.tensors["loss"].spec == Spec(DType.FLOAT64, ())
    assert forward.graph.tensors["loss"].role is Role.LOSS
    assert forward.graph.outputs == ("loss", "logits")
    target = np.zeros(labels, np.int64) + 1
    found = evaluate(forward.graph, {"x": values(*shape), "target": target})["loss"]
    probabilities = np.exp(-values(*shape)) / np.exp(-values(*shape)).sum(axis, keepdims=True)
    np.testing.assert_allclose(found, -np.log(np.take(probabilities, 1, axis)).mean())


def test_mse() -> None:
    forward = attach_loss(classifier(4, 3, output="y").forward("y"), "mse")
    assert forward.graph.tensors["target"].spec == Spec(DType.FLOAT64, (4, 3))
    target = values(4, 3, seed=1)
    found = evaluate(forward.graph, {"x": values(4, 3), "target": target})["loss"]
    np.testing.assert_allclose(found, ((-values(4, 3) - target) ** 2).mean())


def test_sum() -> None:
    forward = attach_loss(classifier(4, 3, output="y").forward("y"), "sum")
    assert forward.inputs == ("x",)
    np.testing.assert_allclose(evaluate(forward.graph, {"x": values(4, 3)})["loss"], -values(4, 3).sum())


@pytest.mark.parametrize("shape", [(), (1,)])
def test_scalar_output_is_the_loss(shape: tuple[int, ...]) -> None:
    model = classifier(2, 3, output="logits")
    total = model.sum("logits")
    loss = model.op("view", [total], ["L"], shape=[*shape])[0]
    forward = attach_loss(model.forward("logits", loss))
    assert forward.loss == "L"
    assert forward.graph.outputs == ("L", "logits")
    assert "target" not in forward.graph.tensors
    assert forward.graph.tensors["L"].role is Role.LOSS


def test_rank_0_goes_before_a_single_element() -> None:
    model = classifier(1, output="one")
    total = model.sum("one")
    assert attach_loss(model.forward("one", total)).loss == total


def test_integer_outputs_are_passed_over() -> None:
    model = classifier(2, 3)
    best = model.then("arg_max", "logits", axis=1, keepdims=False, last=False)
    assert attach_loss(model.forward(best, "logits")).loss == "loss"
    with pytest.raises(ModelError, match=r"SNP-D002: no output is floating-point.*int64"):
        attach_loss(model.forward(best))


def test_taken_names() -> None:
    model = classifier(2, 3)
    model.source("target", values(2), fed=True)
    model.op("neg", ["logits"], ["loss"])
    forward = attach_loss(model.forward("logits", "loss"))
    assert forward.loss == "loss.1"
    assert forward.inputs == ("x", "target", "target.1")
    assert problems(forward.graph) == []


def test_named_output() -> None:
    model = classifier(2, 3)
    total = model.sum("logits")
    assert attach_loss(model.forward("logits", total), f"output:{total}").loss == total
    inner = attach_loss(model.forward("logits"), f"output:{total}")
    assert inner.graph.outputs == (total, "logits")


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        ("hinge", "loss 'hinge' is unknown; use one of auto, cross-entropy, mse, sum, output:NAME"),
        ("output:nothing", "no tensor of that name; its outputs: logits"),
        ("output:logits", r"one computed floating-point number, this is a computed float64\[2, 3\]"),
        ("output:x", r"this is a given float64\[2, 3\]"),
    ],
)
def test_wrong_losses(loss: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"SNP-U042: .*{reason}"):
        attach_loss(classifier(2, 3).forward("logits"), loss)


def test_cross_entropy_of_a_scalar() -> None:
    model = classifier(2, 3)
    total = model.sum("logits")
    with pytest.raises(ModelError, match="has no classes"):
        attach_loss(model.forward(total), "cross-entropy")
