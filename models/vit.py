"""The vision transformer (Dosovitskiy et al. 2021), in torchvision's form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from snplan.models.option import CHANNELS, CLASSES, Option, dropout_option, image_option

if TYPE_CHECKING:
    from snplan.models.layers import Network

OPTIONS: Mapping[str, Option] = {
    "image": image_option(224),
    "patch": Option(default=16, help="side of a patch, in pixels"),
    "layers": Option(default=12, help="transformer blocks"),
    "heads": Option(default=12, help="attention heads"),
    "embed": Option(default=768, help="features of the residual stream"),
    "classes": CLASSES,
    "channels": CHANNELS,
    "dropout": dropout_option(0.0),
}

NORM_EPS = 1e-6


def vit(
    net: Network,
    *,
    image: int,
    patch: int,
    layers: int,
    heads: int,
    embed: int,
    classes: int,
    channels: int,
    dropout: float,
) -> str:
    """The logits [batch, classes] of `input` [batch, channels, image, image]."""
    from snplan.models.transformer import Block, check_heads

    check_heads(embed, heads)
    if image % patch:
        raise ValueError(f"image is {image}, which patches of {patch} do not divide; use a multiple of {patch}")
    std = 1 / math.sqrt(embed)
    block = Block(
        heads=heads, hidden=4 * embed, dropout=dropout, eps=NORM_EPS, gelu="none", std=std, residual_std=std / 2
    )
    x = _patches(net, net.input("input", (net.batch, channels, image, image)), patch, embed)
    x = net.concat([_class_token(net, x), x], name="sequence")
    x = net.add(x, net.weight("pos_embedding", net.shape(x)[1:], std=0.02), name="embedding")
    x = net.dropout(x, dropout, name="embedding_dropout")
    for index in range(layers):
        with net.scope(f"encoder.{index}"):
            x = block.write(net, x)
    x = net.layer_norm(x, eps=NORM_EPS, name="ln")
    first = net.node("Gather", [x, net.constant(0)], (net.batch, embed), name="class_feature", axis=1)
    return net.linear(first, classes, gain=1.0, name="head")


def _patches(net: Network, x: str, patch: int, embed: int) -> str:
    """Each patch as a row: [batch, patches, embed]."""
    x = net.conv(x, embed, patch, stride=patch, name="conv_proj")
    return net.transpose(net.reshape(x, (0, 0, -1)), (0, 2, 1))


def _class_token(net: Network, like: str) -> str:
    """The class token once a sample, [batch, 1, embed]; the batch is read from `like`, so that it can be re-bound."""
    embed = net.shape(like)[2]
    token = net.weight("class_token", (1, 1, embed), std=0.02)
    batch = net.node("Shape", [like], (1,), start=0, end=1)
    target = net.concat([batch, net.constant([1, embed])], axis=0)
    return net.node("Expand", [token, target], (net.batch, 1, embed), name="class_tokens")
