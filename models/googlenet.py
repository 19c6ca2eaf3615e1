"""GoogLeNet (Szegedy et al. 2015), in torchvision's form: normalisation behind each convolution, no auxiliary heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from snplan.models.option import CHANNELS, CLASSES, WIDTH, Option, dropout_option, image_option, scaled

if TYPE_CHECKING:
    from snplan.models.layers import Network

OPTIONS: Mapping[str, Option] = {
    "image": image_option(224),
    "width": WIDTH,
    "classes": CLASSES,
    "channels": CHANNELS,
    "dropout": dropout_option(0.2),
}

NORM_EPS = 1e-3

# Channels of: the 1x1 branch; the first 3x3 branch, reduced and full; the second, likewise; the pooled branch.
STAGES: tuple[tuple[tuple[str, tuple[int, int, int, int, int, int]], ...], ...] = (
    (
        ("inception3a", (64, 96, 128, 16, 32, 32)),
        ("inception3b", (128, 128, 192, 32, 96, 64)),
    ),
    (
        ("inception4a", (192, 96, 208, 16, 48, 64)),
        ("inception4b", (160, 112, 224, 24, 64, 64)),
        ("inception4c", (128, 128, 256, 24, 64, 64)),
        ("inception4d", (112, 144, 288, 32, 64, 64)),
        ("inception4e", (256, 160, 320, 32, 128, 128)),
    ),
    (
        ("inception5a", (256, 160, 320, 32, 128, 128)),
        ("inception5b", (384, 192, 384, 48, 128, 128)),
    ),
)


def googlenet(net: Network, *, image: int, width: float, classes: int, channels: int, dropout: float) -> str:
    """The logits [batch, classes] of `input` [batch, channels, image, image]."""
    x = _stem(net, net.input("input", (net.batch, channels, image, image)), width)
    for index, modules in enumerate(STAGES, 3):
        for name, features in modules:
            with net.scope(name):
                x = _inception(net, x, tuple(scaled(count, width) for count in features))
        if index < 5:
            x = net.max_pool(x, 3 if index == 3 else 2, stride=2, ceil=True, name=f"maxpool{index}")
    return net.linear(net.dropout(net.pooled_features(x), dropout), classes, gain=1.0)


def _stem(net: Network, x: str, width: float) -> str:
    x = _unit(net, x, scaled(64, width), 7, stride=2, name="conv1")
    x = net.max_pool(x, 3, stride=2, ceil=True, name="maxpool1")
    x = _unit(net, x, scaled(64, width), 1, name="conv2")
    x = _unit(net, x, scaled(192, width), 3, name="conv3")
    return net.max_pool(x, 3, stride=2, ceil=True, name="maxpool2")


def _inception(net: Network, x: str, features: tuple[int, ...]) -> str:
    """Four branches side by side. torchvision's second wide branch is 3x3, not the paper's 5x5."""
    single, first_reduced, first, second_reduced, second, pooled = features
    pool = net.max_pool(x, 3, stride=1, pad=1, ceil=True)
    branches = [
        _unit(net, x, single, 1, name="branch1"),
        _unit(net, _unit(net, x, first_reduced, 1, name="branch2.0"), first, 3, name="branch2.1"),
        _unit(net, _unit(net, x, second_reduced, 1, name="branch3.0"), second, 3, name="branch3.1"),
        _unit(net, pool, pooled, 1, name="branch4.1"),
    ]
    return net.concat(branches)


def _unit(net: Network, x: str, channels: int, kernel: int, *, stride: int = 1, name: str) -> str:
    with net.scope(name):
        x = net.conv(x, channels, kernel, stride=stride, pad=kernel // 2, bias=False)
        return net.relu(net.batch_norm(x, eps=NORM_EPS))
