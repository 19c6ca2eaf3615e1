"""Normalisation against onnxruntime, its gradients against difference quotients, statistics by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from runtime_support import BFLOAT16, close, inner, normal, one, onnx_run, run_kernel

from snplan.runtime.numpy import Array

EPSILON = {"epsilon": 1e-5}


def _check_gradients(
    forward: Callable[[Sequence[Array]], Array], inputs: Sequence[Array], dy: Array, found: Sequence[Array]
) -> None:
    """Each array of `found` is the gradient of <dy, forward(inputs)> in the input at its position, by differences."""
    rng = np.random.default_rng(7)
    for position, gradient in enumerate(found):
        direction = rng.standard_normal(inputs[position].shape)
        h = 1e-5
        ends = []
        for sign in (1, -1):
            moved = [x + sign * h * direction if i == position else x for i, x in enumerate(inputs)]
            ends.append(inner(dy, forward(moved)))
        assert gradient.shape == inputs[position].shape
        np.testing.assert_allclose(inner(gradient, direction), (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-8)


def _affine(channels: int) -> list[Array]:
    return [normal(channels, seed=1, dtype=np.float64) + 2, normal(channels, seed=2, dtype=np.float64)]


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 4)])
def test_batch_norm_training(shape: tuple[int, ...]) -> None:
    x, (scale, bias) = normal(*shape, dtype=np.float64) * 3 + 10, _affine(3)
    y, mean, var = run_kernel("batch_norm_train", [x, scale, bias], EPSILON)
    axes, channels = (0, *range(2, len(shape))), (1, 3, *(1,) * (len(shape) - 2))
    np.testing.assert_allclose(mean, x.mean(axes), rtol=1e-13)
    np.testing.assert_allclose(var, x.var(axes), rtol=1e-12)
    expected = (x - mean.reshape(channels)) / np.sqrt(var.reshape(channels) + 1e-5)
    np.testing.assert_allclose(y, expected * scale.reshape(channels) + bias.reshape(channels), rtol=1e-11)
    dy = normal(*shape, seed=3, dtype=np.float64)
    found = run_kernel("batch_norm_grad", [x, scale, mean, var, dy], EPSILON)
    _check_gradients(lambda v: run_kernel("batch_norm_train", v, EPSILON)[0], [x, scale, bias], dy, found)


def test_batch_norm_training_is_onnxruntimes() -> None:
    x, scale, bias = normal(4, 3, 5, 6) * 2 + 1, normal(3, seed=1), normal(3, seed=2)
    running = [normal(3, seed=3), np.abs(normal(3, seed=4))]
    expected = onnx_run(
        "BatchNormalization", [x, scale, bias, *running], opset=15, outputs=3, training_mode=1, momentum=0.8
    )
    y, mean, var = run_kernel("batch_norm_train", [x, scale, bias], EPSILON)
    close(y, expected[0], 1e-6)
    updated = run_kernel("batch_norm_update", [*running, mean, var], {"momentum": 0.8})
    close(updated[0], expected[1], 1e-6)
    close(updated[1], expected[2], 1e-6)


def test_batch_norm_evaluation() -> None:
    x, scale, bias = normal(4, 3, 5, 6), normal(3, seed=1), normal(3, seed=2)
    mean, var = normal(3, seed=3), np.abs(normal(3, seed=4))
    (expected,) = onnx_run("BatchNormalization", [x, scale, bias, mean, var], opset=15)
    close(one("batch_norm_eval", [x, scale, bias, mean, var], EPSILON), expected, 1e-6)
    exact = [a.astype(np.float64) for a in (x, scale, bias, mean, var)]
    dy = normal(*x.shape, seed=5, dtype=np.float64)
    found = run_kernel("batch_norm_eval_grad", [exact[0], exact[1], exact[3], exact[4], dy], EPSILON)
    _check_gradients(lambda v: one("batch_norm_eval", [*v[:3], *exact[3:]], EPSILON), exact[:3], dy, found)


def test_running_statistics_use_the_population_variance() -> None:
    """x = [1, 5], momentum 0.9, from mean 0 and variance 1: 0.300 and 1.300 (1.700 with the unbiased variance)."""
    x = np.array([[1.0], [5.0]], np.float32)
    _, mean, var = run_kernel("batch_norm_train", [x, np.ones(1, np.float32), np.zeros(1, np.float32)], EPSILON)
    assert (mean.tolist(), var.tolist()) == ([3.0], [4.0])
    running = (np.zeros(1, np.float32), np.ones(1, np.float32))
    for expected in ((0.3, 1.3), (0.57, 1.57), (0.813, 1.813)):
        running = run_kernel("batch_norm_update", [*running, mean, var], {"momentum": 0.9})  # type: ignore[assignment]
        np.testing.assert_allclose([running[0][0], running[1][0]], expected, rtol=1e-6)


def test_statistics_far_from_zero_keep_their_digits() -> None:
    x = (normal(64, 2, 8, 8) + np.float32(3000)).astype(np.float32)
    _, mean, var = run_kernel("batch_norm_train", [x, np.ones(2, np.float32), np.zeros(2, np.float32)], EPSILON)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean((0, 2, 3)), rtol=1e-7)
    np.testing.assert_allclose(var, exact.var((0, 2, 3)), rtol=1e-6)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("weights", [0, 1, 2])
def test_layer_norm(axis: int, weights: int) -> None:
    shape = (3, 4, 5)
    x = normal(*shape, dtype=np.float64) + 2
    affine = [normal(*shape[axis:], seed=i, dtype=np.float64) for i in range(weights)]
    attrs: dict[str, Any] = {**EPSILON, "axis": axis}
    y, mean, inv_std = run_kernel("layer_norm", [x, *affine], attrs)
    if weights:
        single = [a.astype(np.float32) for a in (x, *affine)]
        (expected,) = onnx_run("LayerNormalization", single, axis=axis)
        close(y, expected, 1e-6)
    dy = normal(*shape, seed=5, dtype=np.float64)
    flags = {"has_scale": weights > 0, "has_bias": weights > 1}
    found = run_kernel("layer_norm_grad", [x, *affine[:1], mean, inv_std, dy], {**attrs, **flags})
    assert len(found) == 1 + weights
    _check_gradients(lambda v: run_kernel("layer_norm", v, attrs)[0], [x, *affine], dy, found)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("weights", [0, 1])
def test_rms_norm(axis: int, weights: int) -> None:
    shape = (3, 4, 5)
    x = normal(*shape, dtype=np.float64) + 1
    affine = [normal(*shape[axis:], seed=1, dtype=np.float64)] * weights
    attrs: dict[str, Any] = {**EPSILON, "axis": axis}
    y, inv_rms = run_kernel("rms_norm", [x, *affine], attrs)
    axes = tuple(range(axis, 3))
    expected = x / np.sqrt((x**2).mean(axes, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, expected * affine[0] if weights else expected, rtol=1e-12)
    dy = normal(*shape, seed=5, dtype=np.float64)
    found = run_kernel("rms_norm_grad", [x, *affine, inv_rms, dy], {**attrs, "has_scale": weights > 0})
    _check_gradients(lambda v: run_kernel("rms_norm", v, attrs)[0], [x, *affine], dy, found)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups: int) -> None:
    x, (scale, bias) = normal(2, 6, 3, 4, dtype=np.float64) + 1, _affine(6)
    attrs: dict[str, Any] = {**EPSILON, "groups": groups}
    y, mean, inv_std = run_kernel("group_norm", [x, scale, bias], attrs)
    assert mean.shape == inv_std.shape == (2, groups)
    if groups == 6:
        (expected,) = onnx_run("InstanceNormalization", [a.astype(np.float32) for a in (x, scale, bias)])
        close(y, expected, 1e-6)
    rows = x.reshape(2, groups, -1)
    plain = ((rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)).reshape(x.shape)
    np.testing.assert_allclose(y, plain * scale[:, None, None] + bias[:, None, None], rtol=1e-10, atol=1e-12)
    dy = normal(*x.shape, seed=5, dtype=np.float64)
    found = run_kernel("group_norm_grad", [x, scale, mean, inv_std, dy], attrs)
    _check_gradients(lambda v: run_kernel("group_norm", v, attrs)[0], [x, scale, bias], dy, found)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 12])
def test_lrn(size: int) -> None:
    x = normal(2, 7, 3, 3)
    attrs: dict[str, Any] = {"size": size, "alpha": 0.3, "beta": 0.75, "bias": 1.5}
    if size % 2:
        (expected,) = onnx_run("LRN", [x], **attrs)
        close(one("lrn", [x], attrs), expected, 1e-6)
    exact = x.astype(np.float64)
    dy = normal(*x.shape, seed=1, dtype=np.float64)
    dx = one("lrn_grad", [exact, dy], attrs)
    _check_gradients(lambda v: one("lrn", v, attrs), [exact], dy, [dx])


@pytest.mark.parametrize("half", [np.dtype(np.float16), BFLOAT16])
def test_half_precision_keeps_statistics_in_float32(half: Any) -> None:
    x, scale, bias = (a.astype(half) for a in (normal(8, 4, 6, 6), normal(4, seed=1), normal(4, seed=2)))
    y, mean, var = run_kernel("batch_norm_train", [x, scale, bias], EPSILON)
    assert [a.dtype for a in (y, mean, var)] == [half, np.float32, np.float32]
    gradients = run_kernel("batch_norm_grad", [x, scale, mean, var, x], EPSILON)
    assert [g.dtype for g in gradients] == [half] * 3
    mixed = run_kernel("batch_norm_train", [x, scale.astype(np.float32), bias.astype(np.float32)], EPSILON)
    assert mixed[0].dtype == half
    row, inverse = run_kernel("rms_norm", [x], {**EPSILON, "axis": 3})
    assert [a.dtype for a in (row, inverse)] == [half, np.float32]
    exact = x.astype(np.float64)
    close(mean, exact.mean((0, 2, 3)), 1e-6)
