"""Every gradient rule against central differences of the forward kernel, in float64."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import Case, differentiable_cases, flat_cases
from step_support import Model, differences, gradients_of

from snplan.ir import Step
from snplan.ops import KINDS

CASES = differentiable_cases()


def weighted_loss(model: Model, outputs: list[str]) -> str:
    """The sum of all `outputs`, each element weighted by a number of its own."""
    parts = []
    for i, name in enumerate(outputs):
        shape = model.tensors[name].shape
        weights = np.random.default_rng(i).uniform(0.5, 1.5, shape)
        factor = model.source(f"weights{i}", weights, fed=True)
        parts.append(model.sum(model.then("mul", name, factor)))
    total = parts[0]
    for part in parts[1:]:
        total = model.then("add", total, part)
    return total


def model_of(case: Case, *, trained: set[int] | None = None) -> tuple[Model, list[str]]:
    """The op of `case` on initializers (float inputs, or those `trained`) and inputs, and its float outputs."""
    model = Model()
    names = []
    for i, x in enumerate(case.inputs):
        fed = x.dtype.kind != "f" or (trained is not None and i not in trained)
        names.append(model.source(f"x{i}", x, fed=fed))
    outputs = model.op(case.kind, names, rng=case.rng, name="op", **case.attrs)
    return model, [name for name in outputs if model.tensors[name].dtype.is_float]


def results_with_gradient(case: Case, outputs: list[str]) -> list[str]:
    """The outputs that the loss may depend on: statistics of norms have no gradient."""
    return outputs[:1] if "norm" in case.kind else outputs


def check(model: Model, loss: str, step: Step) -> None:
    """Compare each gradient of `step` with central differences."""
    graph = model.forward(loss).graph
    found = gradients_of(step, model.values)
    for name, gradient in found.items():
        expected = differences(graph, loss, model.values, name)
        np.testing.assert_allclose(gradient, expected, rtol=2e-6, atol=2e-7, err_msg=name)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradient(case: Case) -> None:
    model, outputs = model_of(case)
    loss = weighted_loss(model, results_with_gradient(case, outputs))
    step = model.step(loss)
    differentiable = KINDS[case.kind].differentiable
    wanted = [
        f"x{i}"
        for i, x in enumerate(case.inputs)
        if x.dtype.kind == "f" and (differentiable is None or i in differentiable)
    ]
    assert list(step.gradients) == wanted
    check(model, loss, step)


MANY = [case for case in CASES if sum(x.dtype.kind == "f" for x in case.inputs) > 1]


@pytest.mark.parametrize("case", MANY, ids=str)
def test_gradient_of_one_input_alone(case: Case) -> None:
    """Only what is asked for is computed, and rightly."""
    for i, x in enumerate(case.inputs):
        if x.dtype.kind != "f" or i not in (KINDS[case.kind].differentiable or range(9)):
            continue
        model, outputs = model_of(case, trained={i})
        loss = weighted_loss(model, results_with_gradient(case, outputs))
        step = model.step(loss)
        assert list(step.gradients) == [f"x{i}"]
        check(model, loss, step)
        read = {name for op in step.graph.ops for name in op.inputs} | {*step.graph.outputs}
        dead = [op.name for op in step.graph.ops if not any(name in read for name in op.outputs)]
        assert dead == []


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "split"], ids=str)
def test_gradient_of_one_part_alone(case: Case) -> None:
    for index in range(len(case.attrs["sizes"])):
        model, outputs = model_of(case)
        loss = weighted_loss(model, outputs[index : index + 1])
        check(model, loss, model.step(loss))


@pytest.mark.parametrize("case", flat_cases(), ids=str)
def test_no_path_where_the_gradient_is_zero(case: Case) -> None:
    model, outputs = model_of(case)
    step = model.step(weighted_loss(model, outputs))
    assert step.gradients == {}
    assert any("no parameter is trained" in warning for warning in step.warnings)


def test_every_kind_with_a_rule_has_a_case() -> None:
    assert {name for name, kind in KINDS.items() if kind.gradient is not None} <= {case.kind for case in CASES}
