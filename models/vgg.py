"""VGG networks without normalisation (Simonyan and Zisserman 2015), in torchvision's form."""

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
    "dropout": dropout_option(0.5),
}

STAGE_CHANNELS = (64, 128, 256, 512, 512)


def vgg(
    net: Network,
    *,
    convs: tuple[int, ...],
    image: int,
    width: float,
    classes: int,
    channels: int,
    dropout: float,
) -> str:
    """The logits [batch, classes] of `input` [batch, channels, image, image], from stages of so many `convs`."""
    x = net.input("input", (net.batch, channels, image, image))
    for stage, (count, features) in enumerate(zip(convs, STAGE_CHANNELS, strict=True), 1):
        for index in range(1, count + 1):
            x = net.conv(x, scaled(features, width), 3, pad=1, name=f"conv{stage}_{index}")
            x = net.relu(x, name=f"relu{stage}_{index}")
        x = net.max_pool(x, 2, stride=2, name=f"pool{stage}")
    x = net.flatten(x)
    for index in (6, 7):
        x = net.relu(net.linear(x, scaled(4096, width), name=f"fc{index}"), name=f"relu{index}")
        x = net.dropout(x, dropout, name=f"dropout{index}")
    return net.linear(x, classes, gain=1.0, name="fc8")
