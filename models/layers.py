"""The layers that the models of the zoo are made of, in training form, on top of the graph builder."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from snplan.models.builder import GraphBuilder, Shape

Pair = int | tuple[int, int]


class Network(GraphBuilder):
    """A graph builder with layers; each returns its output's name. Images are [batch, channels, height, width]."""

    def token_input(self, name: str, shape: Shape) -> str:
        """A new int64 graph input."""
        return self.input(name, shape, TensorProto.INT64)

    def conv(
        self,
        x: str,
        channels: int,
        kernel: Pair,
        *,
        stride: int = 1,
        pad: Pair = 0,
        groups: int = 1,
        bias: bool = True,
        name: str = "conv",
    ) -> str:
        """A convolution with He-type weights: their standard deviation is sqrt(2 / fan-in)."""
        full = self.fresh(name)
        dims = (channels, self.shape(x)[1] // groups, *_pair(kernel))
        inputs = [x, self.weight(f"{full}.weight", dims, std=math.sqrt(2 / math.prod(dims[1:])))]
        if bias:
            inputs.append(self.weight(f"{full}.bias", (channels,)))
        window = _window(kernel, stride, pad)
        return self.emit("Conv", inputs, {full: self._slide(full, x, channels, window)}, group=groups, **window)

    def conv_transpose(self, x: str, channels: int, kernel: int, *, name: str = "up") -> str:
        """A transposed convolution whose stride is its kernel, so that windows do not overlap."""
        batch, depth, height, width = self.shape(x)
        full = self.fresh(name)
        weight = self.weight(f"{full}.weight", (depth, channels, kernel, kernel), std=math.sqrt(2 / depth))
        inputs = [x, weight, self.weight(f"{full}.bias", (channels,))]
        shape = (batch, channels, height * kernel, width * kernel)
        return self.emit("ConvTranspose", inputs, {full: shape}, kernel_shape=(kernel,) * 2, strides=(kernel,) * 2)

    def batch_norm(self, x: str, *, eps: float = 1e-5, name: str = "bn") -> str:
        """Batch normalisation by the batch's own statistics, with the next running statistics as further outputs."""
        full = self.fresh(name)
        shape, channels = self.shape(x), (self.shape(x)[1],)
        fills = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}
        inputs = [x, *(self.weight(f"{full}.{part}", channels, fill=fill) for part, fill in fills.items())]
        outputs = {full: shape, f"{full}.running_mean_next": channels, f"{full}.running_var_next": channels}
        return self.emit("BatchNormalization", inputs, outputs, epsilon=eps, momentum=0.9, training_mode=1)

    def layer_norm(self, x: str, *, eps: float, name: str) -> str:
        """Layer normalisation over the last dimension, with scale and shift."""
        full = self.fresh(name)
        width = self.shape(x)[-1:]
        inputs = [x, self.weight(f"{full}.weight", width, fill=1.0), self.weight(f"{full}.bias", width)]
        return self.emit("LayerNormalization", inputs, {full: self.shape(x)}, axis=-1, epsilon=eps)

    def linear(self, x: str, features: int, *, gain: float = 2.0, name: str = "fc") -> str:
        """A fully connected layer on [batch, features]: variance `gain` / fan-in (2 ahead of a ReLU, 1 for logits)."""
        batch, depth = self.shape(x)
        full = self.fresh(name)
        inputs = [x, self.weight(f"{full}.weight", (features, depth), std=math.sqrt(gain / depth))]
        inputs.append(self.weight(f"{full}.bias", (features,)))
        return self.emit("Gemm", inputs, {full: (batch, features)}, transB=1)

    def project(self, x: str, features: int, *, std: float, name: str) -> str:
        """A fully connected layer on the last dimension of a tensor of any rank: a MatMul and an Add."""
        *lead, depth = self.shape(x)
        full = self.fresh(name)
        product = self.fresh(f"{name}.matmul")
        weight = self.weight(f"{full}.weight", (depth, features), std=std)
        self.emit("MatMul", [x, weight], {product: (*lead, features)})
        bias = self.weight(f"{full}.bias", (features,))
        return self.emit("Add", [product, bias], {full: (*lead, features)})

    def relu(self, x: str, *, name: str = "relu") -> str:
        """max(x, 0)."""
        return self.node("Relu", [x], self.shape(x), name=name)

    def relu6(self, x: str, *, name: str = "relu") -> str:
        """x clipped to 0 .. 6."""
        bounds = [self.constant(bound, np.float32) for bound in (0.0, 6.0)]
        return self.node("Clip", [x, *bounds], self.shape(x), name=name)

    def dropout(self, x: str, ratio: float, *, name: str = "dropout") -> str:
        """A Dropout in training mode, or `x` itself when the ratio is 0."""
        if not ratio:
            return x
        inputs = [x, self.constant(ratio, np.float32), self.constant(True, np.bool_)]
        return self.node("Dropout", inputs, self.shape(x), name=name)

    def add(self, a: str, b: str, *, name: str = "add") -> str:
        """The sum of two tensors; the second may broadcast to the first."""
        return self.node("Add", [a, b], self.shape(a), name=name)

    def concat(self, parts: Sequence[str], *, axis: int = 1, name: str = "concat") -> str:
        """The tensors side by side along an axis."""
        shape = list(self.shape(parts[0]))
        shape[axis] = sum(self.shape(part)[axis] for part in parts)
        return self.node("Concat", list(parts), tuple(shape), name=name, axis=axis)

    def max_pool(
        self, x: str, kernel: int, *, stride: int, pad: int = 0, ceil: bool = False, name: str = "pool"
    ) -> str:
        """The maximum of each window; with `ceil` a last partial window counts."""
        full = self.fresh(name)
        window = _window(kernel, stride, pad)
        shape = self._slide(full, x, self.shape(x)[1], window, ceil=ceil)
        return self.emit("MaxPool", [x], {full: shape}, ceil_mode=1 if ceil else None, **window)

    def average_pool(self, x: str, kernel: int, *, stride: int, pad: int = 0, name: str = "pool") -> str:
        """The mean of each window, padding not counted."""
        full = self.fresh(name)
        window = _window(kernel, stride, pad)
        return self.emit("AveragePool", [x], {full: self._slide(full, x, self.shape(x)[1], window)}, **window)

    def pooled_features(self, x: str) -> str:
        """The mean over each channel's image, as [batch, channels]."""
        batch, channels = self.shape(x)[:2]
        return self.flatten(self.node("GlobalAveragePool", [x], (batch, channels, 1, 1), name="avgpool"))

    def flatten(self, x: str) -> str:
        """The tensor as [batch, all other dimensions]."""
        shape = self.shape(x)
        return self.node("Flatten", [x], (shape[0], math.prod(shape[1:])), axis=1)

    def reshape(self, x: str, target: Sequence[int], *, name: str = "reshape") -> str:
        """The tensor with the dimensions of an ONNX Reshape target: 0 copies a dimension, one -1 takes the rest."""
        shape = self.shape(x)
        dims = [shape[i] if dim == 0 else dim for i, dim in enumerate(target)]
        known = math.prod(dim for dim in dims if dim != -1)
        full = tuple(math.prod(shape) // known if dim == -1 else dim for dim in dims)
        return self.node("Reshape", [x, self.constant(target)], full, name=name)

    def transpose(self, x: str, order: Sequence[int], *, name: str = "transpose") -> str:
        """The tensor with its dimensions in this order."""
        shape = self.shape(x)
        return self.node("Transpose", [x], tuple(shape[i] for i in order), name=name, perm=list(order))

    def matmul(self, a: str, b: str, *, name: str = "matmul") -> str:
        """The matrix product over the last two dimensions."""
        return self.node("MatMul", [a, b], (*self.shape(a)[:-1], self.shape(b)[-1]), name=name)

    def _slide(self, name: str, x: str, channels: int, window: dict[str, list[int]], *, ceil: bool = False) -> Shape:
        batch, _, *sides = self.shape(x)
        kernel, strides, pads = window["kernel_shape"], window["strides"], window["pads"]
        out = [_windows(name, *each, ceil=ceil) for each in zip(sides, kernel, strides, pads, strict=False)]
        return (batch, channels, *out)


def _pair(value: Pair) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def _window(kernel: Pair, stride: int, pad: Pair) -> dict[str, list[int]]:
    return {"kernel_shape": list(_pair(kernel)), "strides": [stride, stride], "pads": [*_pair(pad), *_pair(pad)]}


def _windows(name: str, side: int, kernel: int, stride: int, pad: int, *, ceil: bool) -> int:
    """How many windows fit along a side; a partial one must start inside the image or its leading padding."""
    room = side + 2 * pad - kernel
    if room < 0:
        raise ValueError(f"{name}: side {side} with padding {pad} is below kernel {kernel}; use a larger image")
    if not ceil:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= side + pad else count
