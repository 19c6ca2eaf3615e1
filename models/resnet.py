"""Residual networks (He et al. 2016), in torchvision's form and with its parameter names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from snplan.models.option import CHANNELS, CLASSES, WIDTH, Option, image_option, scaled

if TYPE_CHECKING:
    from snplan.models.layers import Network

OPTIONS: Mapping[str, Option] = {
    "blocks": Option(default=(3, 4, 6, 3), help="residual blocks of each stage"),
    "image": image_option(224),
    "width": WIDTH,
    "classes": CLASSES,
    "channels": CHANNELS,
    "shortcut_norm": Option(default=True, help="BatchNormalization behind the projection of a shortcut"),
}


def resnet(
    net: Network,
    *,
    bottleneck: bool,
    blocks: tuple[int, ...],
    image: int,
    width: float,
    classes: int,
    channels: int,
    shortcut_norm: bool,
) -> str:
    """The logits of a residual network: 3 * sum(blocks) + 2 layers deep, or with basic blocks 2 * sum(blocks) + 2."""
    base = scaled(64, width)
    x = net.input("input", (net.batch, channels, image, image))
    x = net.conv(x, base, 7, stride=2, pad=3, bias=False, name="conv1")
    x = net.relu(net.batch_norm(x, name="bn1"))
    x = net.max_pool(x, 3, stride=2, pad=1, name="maxpool")
    for stage, count in enumerate(blocks):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            with net.scope(f"layer{stage + 1}.{index}"):
                branch = (_bottleneck if bottleneck else _basic)(net, x, base * 2**stage, stride)
                x = net.relu(net.add(branch, _shortcut(net, x, branch, stride, shortcut_norm)))
    return net.linear(net.pooled_features(x), classes, gain=1.0, name="fc")


def _shortcut(net: Network, x: str, branch: str, stride: int, norm: bool) -> str:
    if net.shape(x) == net.shape(branch):
        return x
    x = net.conv(x, net.shape(branch)[1], 1, stride=stride, bias=False, name="downsample.0")
    return net.batch_norm(x, name="downsample.1") if norm else x


def _bottleneck(net: Network, x: str, planes: int, stride: int) -> str:
    """The residual branch of 1x1, 3x3 (with the stride) and 1x1 to four times the planes."""
    x = net.relu(net.batch_norm(net.conv(x, planes, 1, bias=False, name="conv1"), name="bn1"))
    x = net.conv(x, planes, 3, stride=stride, pad=1, bias=False, name="conv2")
    x = net.relu(net.batch_norm(x, name="bn2"))
    return net.batch_norm(net.conv(x, planes * 4, 1, bias=False, name="conv3"), name="bn3")


def _basic(net: Network, x: str, planes: int, stride: int) -> str:
    """The residual branch of two 3x3 convolutions, the first with the stride."""
    x = net.conv(x, planes, 3, stride=stride, pad=1, bias=False, name="conv1")
    x = net.relu(net.batch_norm(x, name="bn1"))
    return net.batch_norm(net.conv(x, planes, 3, pad=1, bias=False, name="conv2"), name="bn2")
