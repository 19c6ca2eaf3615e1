"""The layers that the models of the zoo are made of, in training form, on top of the graph builder."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from snplan.models.builder import GraphBuilder, Shape

Pair = int | tuple[int, int]


class Network(GraphBuilder):
    """A graph builder with layers. Images are [batch, channels, height, width]; every method gives its output's name."""

    def conv(
        self, x: str, channels: int, kernel: Pair, *, stride: int = 1, pad: Pair = 0, groups: int = 1,
        bias: bool = True, name: str = "conv",
    ) -> str:  # fmt: skip
        """A convolution with He-type weights (standard deviation sqrt(2 / fan-in))."""
        size, (pad_h, pad_w) = _pair(kernel), _pair(pad)
        batch, depth, height, width = self.shape(x)
        full = self.fresh(name)
        dims = (channels, depth // groups, *size)
        inputs = [x, self.weight(f"{full}.weight", dims, std=math.sqrt(2 / math.prod(dims[1:])))]
        if bias:
            inputs.append(self.weight(f"{full}.bias", (channels,)))
        out = (_extent(full, height, size[0], stride, 2 * pad_h), _extent(full, width, size[1], stride, 2 * pad_w))
        return self.emit(
            "Conv", inputs, (batch, channels, *out), full,
            kernel_shape=size, strides=(stride, stride), pads=(pad_h, pad_w, pad_h, pad_w), group=groups,
        )  # fmt: skip
