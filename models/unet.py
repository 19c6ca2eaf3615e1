"""U-Net (Ronneberger et al. 2015) with BatchNormalization, and padded convolutions so that skips fit uncropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from snplan.models.option import CHANNELS, WIDTH, Option, image_option, scaled

if TYPE_CHECKING:
    from snplan.models.layers import Network

OPTIONS: Mapping[str, Option] = {
    "image": image_option(256),
    "width": WIDTH,
    "levels": Option(default=4, help="times that the image is halved; channels double from 64"),
    "classes": Option(default=2, help="classes of a pixel", minimum=2),
    "channels": CHANNELS,
}


def unet(net: Network, *, image: int, width: float, levels: int, classes: int, channels: int) -> str:
    """The logits [batch, classes, image, image] of `input` [batch, channels, image, image].

    Raises ValueError when the image cannot be halved `levels` times.
    """
    if image % 2**levels:
        raise ValueError(f"image is {image}; {levels} levels need a multiple of {2**levels}")
    base = scaled(64, width)
    x = net.input("input", (net.batch, channels, image, image))
    skips = []
    for level in range(levels):
        skips.append(_double_conv(net, x, base << level, f"down{level}"))
        x = net.max_pool(skips[-1], 2, stride=2, name=f"down{level}.pool")
    x = _double_conv(net, x, base << levels, "bottom")
    for level in reversed(range(levels)):
        x = net.conv_transpose(x, base << level, 2, name=f"up{level}.expand")
        x = net.concat([skips[level], x], name=f"up{level}.concat")
        x = _double_conv(net, x, base << level, f"up{level}")
    return net.conv(x, classes, 1, name="out")


def _double_conv(net: Network, x: str, channels: int, name: str) -> str:
    with net.scope(name):
        for index in (1, 2):
            x = net.conv(x, channels, 3, pad=1, bias=False, name=f"conv{index}")
            x = net.relu(net.batch_norm(x, name=f"bn{index}"), name=f"relu{index}")
    return x
