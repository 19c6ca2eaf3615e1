"""DenseNets (Huang et al. 2017), in torchvision's form: a layer reads all earlier ones of its block, concatenated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from snplan.models.option import CHANNELS, CLASSES, Option, image_option

if TYPE_CHECKING:
    from snplan.models.layers import Network

OPTIONS: Mapping[str, Option] = {
    "image": image_option(224),
    "growth": Option(default=32, help="channels that each layer adds"),
    "classes": CLASSES,
    "channels": CHANNELS,
}

BOTTLENECK = 4
"""Channels between the two convolutions of a layer, in units of the growth."""


def densenet(net: Network, *, blocks: tuple[int, ...], image: int, growth: int, classes: int, channels: int) -> str:
    """The logits [batch, classes] of `input` [batch, channels, image, image], from dense `blocks` of so many layers."""
    x = net.input("input", (net.batch, channels, image, image))
    x = net.conv(x, 2 * growth, 7, stride=2, pad=3, bias=False, name="conv0")
    x = net.relu(net.batch_norm(x, name="norm0"), name="relu0")
    x = net.max_pool(x, 3, stride=2, pad=1, name="pool0")
    for index, layers in enumerate(blocks, 1):
        x = _dense_block(net, x, index, layers, growth)
        if index < len(blocks):
            with net.scope(f"transition{index}"):
                x = _transition(net, x)
    x = net.relu(net.batch_norm(x, name="norm5"), name="relu5")
    return net.linear(net.pooled_features(x), classes, gain=1.0, name="classifier")


def _dense_block(net: Network, x: str, index: int, layers: int, growth: int) -> str:
    parts = [x]
    for layer in range(1, layers + 1):
        with net.scope(f"denseblock{index}.denselayer{layer}"):
            joined = net.concat(parts) if len(parts) > 1 else x
            parts.append(_dense_layer(net, joined, growth))
    return net.concat(parts, name=f"denseblock{index}.concat")


def _dense_layer(net: Network, x: str, growth: int) -> str:
    x = net.relu(net.batch_norm(x, name="norm1"), name="relu1")
    x = net.conv(x, BOTTLENECK * growth, 1, bias=False, name="conv1")
    x = net.relu(net.batch_norm(x, name="norm2"), name="relu2")
    return net.conv(x, growth, 3, pad=1, bias=False, name="conv2")


def _transition(net: Network, x: str) -> str:
    """Half the channels at half the size."""
    half = net.shape(x)[1] // 2
    x = net.conv(net.relu(net.batch_norm(x, name="norm")), half, 1, bias=False)
    return net.average_pool(x, 2, stride=2)
