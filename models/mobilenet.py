"""MobileNetV2 (Sandler et al. 2018), in torchvision's form: inverted residuals around depthwise convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from snplan.models.option import CHANNELS, CLASSES, WIDTH, Option, dropout_option, image_option

if TYPE_CHECKING:
    from snplan.models.layers import Network

OPTIONS: Mapping[str, Option] = {
    "image": image_option(224),
    "width": WIDTH,
    "classes": CLASSES,
    "channels": CHANNELS,
    "dropout": dropout_option(0.2),
}

# Expansion, channels, blocks, stride of the first block (table 2 of the paper).
SETTINGS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)

CHANNEL_MULTIPLE = 8


def mobilenet_v2(net: Network, *, image: int, width: float, classes: int, channels: int, dropout: float) -> str:
    """The logits [batch, classes] of `input` [batch, channels, image, image]."""
    x = net.input("input", (net.batch, channels, image, image))
    x = _unit(net, x, _rounded(32 * width), 3, stride=2, name="stem")
    index = 1
    for expansion, features, count, stride in SETTINGS:
        for position in range(count):
            with net.scope(f"features.{index}"):
                x = _inverted_residual(net, x, _rounded(features * width), expansion, 1 if position else stride)
            index += 1
    x = _unit(net, x, _rounded(1280 * max(1.0, width)), 1, name="last")
    return net.linear(net.dropout(net.pooled_features(x), dropout), classes, gain=1.0, name="classifier")


def _inverted_residual(net: Network, x: str, channels: int, expansion: int, stride: int) -> str:
    depth = net.shape(x)[1]
    y = _unit(net, x, depth * expansion, 1, name="expand") if expansion != 1 else x
    y = _unit(net, y, depth * expansion, 3, stride=stride, groups=depth * expansion, name="depthwise")
    y = net.batch_norm(net.conv(y, channels, 1, bias=False, name="project.conv"), name="project.bn")
    return net.add(x, y) if stride == 1 and depth == channels else y


def _unit(net: Network, x: str, channels: int, kernel: int, *, stride: int = 1, groups: int = 1, name: str) -> str:
    with net.scope(name):
        x = net.conv(x, channels, kernel, stride=stride, pad=kernel // 2, groups=groups, bias=False)
        return net.relu6(net.batch_norm(x))


def _rounded(channels: float) -> int:
    """The nearest multiple of 8 that is no more than 10 % below, and at least 8."""
    nearest = max(CHANNEL_MULTIPLE, int(channels + CHANNEL_MULTIPLE / 2) // CHANNEL_MULTIPLE * CHANNEL_MULTIPLE)
    return nearest if nearest >= 0.9 * channels else nearest + CHANNEL_MULTIPLE
