"""Softmax and class losses against onnxruntime; gradients against difference quotients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runtime_support import BFLOAT16, close, inner, normal, one, onnx_run

from snplan.runtime.numpy import KERNELS, Array, Context

REDUCTIONS = ["mean", "sum", "none"]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_and_its_gradients(axis: int) -> None:
    x = normal(3, 4, 5, dtype=np.float64) * 3
    attrs = {"axis": axis}
    y = one("softmax", [x], attrs)
    np.testing.assert_allclose(y, np.exp(x) / np.exp(x).sum(axis, keepdims=True), rtol=1e-13)
    logs = one("log_softmax", [x], attrs)
    np.testing.assert_allclose(logs, np.log(y), rtol=1e-12)
    dy, direction, h = normal(3, 4, 5, seed=1, dtype=np.float64), normal(3, 4, 5, seed=2, dtype=np.float64), 1e-5
    for kind, value in (("softmax", y), ("log_softmax", logs)):
        ends = [inner(dy, one(kind, [x + sign * h * direction], attrs)) for sign in (1, -1)]
        dx = one(f"{kind}_grad", [value, dy], attrs)
        np.testing.assert_allclose(inner(dx, direction), (ends[0] - ends[1]) / (2 * h), rtol=1e-7)


def test_softmax_of_large_and_masked_scores() -> None:
    x = np.array([[1e4, 1e4, -np.inf], [-1e4, 0.0, -1e4]], np.float32)
    np.testing.assert_allclose(one("softmax", [x], {"axis": 1}), [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]])
    np.testing.assert_allclose(one("log_softmax", [x], {"axis": 1})[0], [-np.log(2), -np.log(2), -np.inf], rtol=1e-6)


def _loss_case(spatial: tuple[int, ...], weighted: bool, ignore: int | None) -> tuple[list[Array], dict[str, Any]]:
    labels = np.random.default_rng(3).integers(0, 5, (6, *spatial))
    if ignore is not None:
        labels.reshape(-1)[::3] = ignore
    inputs: list[Array] = [normal(6, 5, *spatial) * 2, labels]
    if weighted:
        inputs.append(np.abs(normal(5, seed=1)) + 0.1)
    return inputs, {} if ignore is None else {"ignore_index": ignore}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("spatial", [(), (3,), (2, 3)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore", [None, 2, -100])
def test_losses_are_onnxruntimes(reduction: str, spatial: tuple[int, ...], weighted: bool, ignore: int | None) -> None:
    inputs, extra = _loss_case(spatial, weighted, ignore)
    attrs = {"axis": 1, "reduction": reduction, "ignore_index": ignore}
    (expected,) = onnx_run("SoftmaxCrossEntropyLoss", inputs, reduction=reduction, **extra)
    close(one("softmax_cross_entropy", inputs, attrs), np.asarray(expected), 1e-6)
    logs = [one("log_softmax", inputs[:1], {"axis": 1}), *inputs[1:]]
    (expected,) = onnx_run("NegativeLogLikelihoodLoss", logs, reduction=reduction, **extra)
    close(one("nll_loss", logs, attrs), np.asarray(expected), 1e-6)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore", [None, -100])
@pytest.mark.parametrize("axis", [1, 2])
def test_gradients_of_losses(reduction: str, weighted: bool, ignore: int | None, axis: int) -> None:
    inputs, _ = _loss_case((3,), weighted, ignore)
    scores = np.moveaxis(inputs[0].astype(np.float64), 1, axis)
    rest = [x.astype(np.float64) if x.dtype == np.float32 else x for x in inputs[1:]]
    attrs = {"axis": axis, "reduction": reduction, "ignore_index": ignore}
    loss = one("softmax_cross_entropy", [scores, *rest], attrs)
    dy, direction, h = (
        normal(*loss.shape, seed=4, dtype=np.float64),
        normal(*scores.shape, seed=5, dtype=np.float64),
        1e-5,
    )
    dy = np.asarray(dy)
    for kind in ("softmax_cross_entropy", "nll_loss"):
        ends = [inner(dy, one(kind, [scores + sign * h * direction, *rest], attrs)) for sign in (1, -1)]
        if kind == "nll_loss":
            dx = one("nll_loss_grad", [*rest, dy], {**attrs, "shape": list(scores.shape), "dtype": "float64"})
        else:
            dx = one("softmax_cross_entropy_grad", [scores, *rest, dy], attrs)
        np.testing.assert_allclose(inner(dx, direction), (ends[0] - ends[1]) / (2 * h), rtol=1e-7, atol=1e-9)


def test_a_label_that_is_no_class_is_an_error() -> None:
    attrs = {"axis": 1, "reduction": "mean", "ignore_index": -100}
    with pytest.raises(IndexError, match="label 5 is out of range: there are 5 classes"):
        KERNELS["softmax_cross_entropy"]([normal(2, 5), np.array([0, 5])], attrs, Context())


def test_all_labels_ignored() -> None:
    attrs = {"axis": 1, "reduction": "mean", "ignore_index": 0}
    inputs = [normal(2, 5), np.array([0, 0])]
    assert np.isnan(one("softmax_cross_entropy", inputs, attrs))
    assert one("softmax_cross_entropy", inputs, {**attrs, "reduction": "sum"}) == 0


def test_half_precision() -> None:
    logits = normal(4, 9).astype(BFLOAT16)
    labels = np.array([1, 2, 3, 8])
    attrs = {"axis": 1, "reduction": "mean", "ignore_index": None}
    loss = one("softmax_cross_entropy", [logits, labels], attrs)
    assert loss.dtype == BFLOAT16
    exact = one("softmax_cross_entropy", [logits.astype(np.float64), labels], attrs)
    np.testing.assert_allclose(loss.astype(np.float64), exact, rtol=4e-3)
    assert one("softmax_cross_entropy_grad", [logits, labels, loss], attrs).dtype == BFLOAT16
