"""AlexNet as the SuperNeurons paper measures it: 23 layers with the softmax, one tower, no grouped convolutions.

Layer order and feature maps follow section 4 of Wang et al. (PPoPP 2018); the response normalisation has the
constants of Krizhevsky et al. (2012).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from snplan.models.option import CHANNELS, CLASSES, WIDTH, Option, dropout_option, image_option, scaled

if TYPE_CHECKING:
    from snplan.models.layers import Network

OPTIONS: Mapping[str, Option] = {
    "image": image_option(227),
    "width": WIDTH,
    "classes": CLASSES,
    "channels": CHANNELS,
    "dropout": dropout_option(0.5),
}


def alexnet(net: Network, *, image: int, width: float, classes: int, channels: int, dropout: float) -> str:
    """The logits [batch, classes] of `input` [batch, channels, image, image]."""
    x = net.input("input", (net.batch, channels, image, image))
    x = net.conv(x, scaled(96, width), 11, stride=4, name="conv1")
    x = net.max_pool(_normalise(net, net.relu(x, name="relu1"), "lrn1"), 3, stride=2, name="pool1")
    x = net.conv(x, scaled(256, width), 5, pad=2, name="conv2")
    x = net.max_pool(_normalise(net, net.relu(x, name="relu2"), "lrn2"), 3, stride=2, name="pool2")
    for index, features in ((3, 384), (4, 384), (5, 256)):
        x = net.relu(net.conv(x, scaled(features, width), 3, pad=1, name=f"conv{index}"), name=f"relu{index}")
    x = net.flatten(net.max_pool(x, 3, stride=2, name="pool5"))
    for index in (1, 2):
        x = net.relu(net.linear(x, scaled(4096, width), name=f"fc{index}"), name=f"relu{index + 5}")
        x = net.dropout(x, dropout, name=f"dropout{index}")
    return net.linear(x, classes, gain=1.0, name="fc3")


def _normalise(net: Network, x: str, name: str) -> str:
    return net.node("LRN", [x], net.shape(x), name=name, size=5, alpha=1e-4, beta=0.75, bias=2.0)
