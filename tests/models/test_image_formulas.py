"""Convolutional models against plain float64 loops: a whole ResNet, and AlexNet's normalisation."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto, numpy_helper

from snplan import models

Array = npt.NDArray[Any]
Weights = dict[str, Array]


def _run(model: ModelProto, image: Array) -> list[Array]:
    settings = onnxruntime.SessionOptions()
    # onnxruntime's fusions take a BatchNormalization in training mode for one in inference mode.
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, {"input": image})]


def _windows(x: Array, kernel: int, stride: int, pad: int, fill: float = 0.0) -> Array:
    """[batch, channels, height, width, kernel, kernel] of a padded image."""
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    return np.asarray(
        np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
    )


def _conv(x: Array, weight: Array, stride: int = 1, pad: int = 0) -> Array:
    return np.asarray(np.einsum("nchwij,ocij->nohw", _windows(x, weight.shape[2], stride, pad), weight))


def _norm_conv(x: Array, weights: Weights, conv: str, norm: str, stride: int = 1, pad: int = 0) -> Array:
    y = _conv(x, weights[f"{conv}.weight"], stride, pad)
    y = (y - y.mean((0, 2, 3), keepdims=True)) / np.sqrt(y.var((0, 2, 3), keepdims=True) + 1e-5)
    return np.asarray(y * weights[f"{norm}.weight"][:, None, None] + weights[f"{norm}.bias"][:, None, None])


def _bottleneck(x: Array, weights: Weights, scope: str, stride: int) -> Array:
    y = np.maximum(_norm_conv(x, weights, f"{scope}.conv1", f"{scope}.bn1"), 0)
    y = np.maximum(_norm_conv(y, weights, f"{scope}.conv2", f"{scope}.bn2", stride, 1), 0)
    y = _norm_conv(y, weights, f"{scope}.conv3", f"{scope}.bn3")
    if f"{scope}.downsample.0.weight" in weights:
        x = _norm_conv(x, weights, f"{scope}.downsample.0", f"{scope}.downsample.1", stride)
    return np.asarray(np.maximum(y + x, 0))


def test_bottleneck_resnet_is_the_formula() -> None:
    model = models.build("resnet", batch=3, blocks=(2, 1, 1, 1), image=64, width=0.0625, classes=5)
    weights = {tensor.name: numpy_helper.to_array(tensor).astype(np.float64) for tensor in model.graph.initializer}
    image = np.random.default_rng(2).standard_normal((3, 3, 64, 64), np.float32)
    x = np.maximum(_norm_conv(image.astype(np.float64), weights, "conv1", "bn1", 2, 3), 0)
    x = _windows(x, 3, 2, 1, -np.inf).max((4, 5))
    for stage, count in enumerate((2, 1, 1, 1), 1):
        for index in range(count):
            x = _bottleneck(x, weights, f"layer{stage}.{index}", 2 if stage > 1 and index == 0 else 1)
    expected = x.mean((2, 3)) @ weights["fc.weight"].T + weights["fc.bias"]
    (logits,) = _run(model, image)
    np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-4)


def test_alexnet_normalises_across_five_channels() -> None:
    """Krizhevsky et al., section 3.3, with alpha shared among the five channels as ONNX has it."""
    model = models.build("alexnet", image=67, width=0.1, classes=5)
    for name in ("relu1", "lrn1"):
        model.graph.output.add(name=name)
    _, x, y = _run(model, np.random.default_rng(2).standard_normal((1, 3, 67, 67), np.float32) * 20)
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (2, 2), (0, 0), (0, 0)))
    sums = sum(squares[:, shift : shift + x.shape[1]] for shift in range(5))
    np.testing.assert_allclose(y, x / (2 + 1e-4 / 5 * sums) ** 0.75, rtol=1e-5)


def test_unet_expands_by_disjoint_windows() -> None:
    """The transposed convolution of kernel and stride 2 puts each input pixel's 2x2 product side by side."""
    model = models.build("unet", image=8, width=0.0625, levels=1)
    for name in ("bottom.relu2", "up0.expand"):
        model.graph.output.add(name=name)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    _, x, y = _run(model, np.random.default_rng(2).standard_normal((1, 3, 8, 8), np.float32))
    kernel = weights["up0.expand.weight"]
    assert kernel.shape == (8, 4, 2, 2)
    expected = np.einsum("nchw,coij->nohiwj", x, kernel).reshape(1, 4, 8, 8)
    np.testing.assert_allclose(y, expected + weights["up0.expand.bias"][:, None, None], rtol=1e-5, atol=1e-6)
