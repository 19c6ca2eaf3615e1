"""Inception-v4 (Szegedy et al. 2016): normalisation and ReLU behind each convolution, dropout ahead of the logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from snplan.models.option import CHANNELS, CLASSES, WIDTH, Option, dropout_option, image_option, scaled

if TYPE_CHECKING:
    from snplan.models.layers import Network

OPTIONS: Mapping[str, Option] = {
    "image": image_option(299),
    "width": WIDTH,
    "classes": CLASSES,
    "channels": CHANNELS,
    "dropout": dropout_option(0.2),
    "blocks": Option(default=(4, 7, 3), help="blocks of kind A, B and C"),
}

NORM_EPS = 1e-3

Unit = tuple[int, tuple[int, int]]
"""Channels and kernel (height, width) of one convolution."""

ONE, ROW, COLUMN, THREE = (1, 1), (1, 7), (7, 1), (3, 3)

A_BRANCHES: tuple[tuple[Unit, ...], ...] = (
    ((96, ONE),),
    ((64, ONE), (96, THREE)),
    ((64, ONE), (96, THREE), (96, THREE)),
)
B_BRANCHES: tuple[tuple[Unit, ...], ...] = (
    ((384, ONE),),
    ((192, ONE), (224, ROW), (256, COLUMN)),
    ((192, ONE), (192, COLUMN), (224, ROW), (224, COLUMN), (256, ROW)),
)
REDUCE_A: tuple[tuple[Unit, ...], ...] = (((384, THREE),), ((192, ONE), (224, THREE), (256, THREE)))
REDUCE_B: tuple[tuple[Unit, ...], ...] = (
    ((192, ONE), (192, THREE)),
    ((256, ONE), (256, ROW), (320, COLUMN), (320, THREE)),
)


class _Inception:
    """Writes the blocks, every channel count scaled by the width factor."""

    def __init__(self, net: Network, width: float) -> None:
        self.net = net
        self.width = width

    def unit(self, x: str, channels: int, kernel: tuple[int, int], *, stride: int = 1, same: bool = True) -> str:
        """A convolution with normalisation and ReLU; `same` pads so that stride 1 keeps the size."""
        pad = (kernel[0] // 2, kernel[1] // 2) if same else 0
        x = self.net.conv(x, scaled(channels, self.width), kernel, stride=stride, pad=pad, bias=False)
        return self.net.relu(self.net.batch_norm(x, eps=NORM_EPS))

    def chain(self, x: str, units: Sequence[Unit], *, reduce: bool = False) -> str:
        """The units one after another; with `reduce` the last has stride 2 and no padding."""
        for index, (channels, kernel) in enumerate(units, 1):
            last = reduce and index == len(units)
            x = self.unit(x, channels, kernel, stride=2 if last else 1, same=not last)
        return x

    def stem(self, x: str) -> str:
        """384 channels at an eighth of the size, through three forks."""
        x = self.unit(x, 32, THREE, stride=2, same=False)
        x = self.unit(self.unit(x, 32, THREE, same=False), 64, THREE)
        x = self.net.concat([self.shrunk(x), self.unit(x, 96, THREE, stride=2, same=False)])
        short = self.unit(self.unit(x, 64, ONE), 96, THREE, same=False)
        long = self.chain(x, ((64, ONE), (64, ROW), (64, COLUMN)))
        x = self.net.concat([short, self.unit(long, 96, THREE, same=False)])
        return self.net.concat([self.unit(x, 192, THREE, stride=2, same=False), self.shrunk(x)])

    def shrunk(self, x: str) -> str:
        """The maximum of 3x3 windows at stride 2."""
        return self.net.max_pool(x, 3, stride=2)

    def averaged(self, x: str, channels: int) -> str:
        """The mean of 3x3 windows at stride 1, through a 1x1 convolution."""
        return self.unit(self.net.average_pool(x, 3, stride=1, pad=1), channels, ONE)

    def block_a(self, x: str) -> str:
        """384 channels at 35x35."""
        return self.net.concat([*(self.chain(x, units) for units in A_BRANCHES), self.averaged(x, 96)])

    def block_b(self, x: str) -> str:
        """1024 channels at 17x17."""
        return self.net.concat([*(self.chain(x, units) for units in B_BRANCHES), self.averaged(x, 128)])

    def block_c(self, x: str) -> str:
        """1536 channels at 8x8; two of the branches fork into 1x3 and 3x1 at their end."""
        first = self.unit(x, 256, ONE)
        short = self.unit(x, 384, ONE)
        long = self.chain(x, ((384, ONE), (448, (3, 1)), (512, (1, 3))))
        forks = [self.unit(end, 256, kernel) for end in (short, long) for kernel in ((1, 3), (3, 1))]
        return self.net.concat([first, *forks, self.averaged(x, 256)])

    def reduction(self, x: str, branches: Sequence[Sequence[Unit]]) -> str:
        """Half the size: every branch ends at stride 2, beside a max pool."""
        return self.net.concat([*(self.chain(x, units, reduce=True) for units in branches), self.shrunk(x)])


def inception_v4(
    net: Network,
    *,
    image: int,
    width: float,
    classes: int,
    channels: int,
    dropout: float,
    blocks: tuple[int, ...],
) -> str:
    """The logits [batch, classes] of `input` [batch, channels, image, image].

    Raises ValueError on other than three `blocks`.
    """
    if len(blocks) != 3:
        raise ValueError(f"blocks is {blocks}; it needs three counts, of the blocks A, B and C")
    parts = _Inception(net, width)
    x = parts.stem(net.input("input", (net.batch, channels, image, image)))
    x = _repeat(net, parts.block_a, x, "a", blocks[0])
    x = parts.reduction(x, REDUCE_A)
    x = _repeat(net, parts.block_b, x, "b", blocks[1])
    x = parts.reduction(x, REDUCE_B)
    x = _repeat(net, parts.block_c, x, "c", blocks[2])
    return net.linear(net.dropout(net.pooled_features(x), dropout), classes, gain=1.0)


def _repeat(net: Network, block: Callable[[str], str], x: str, name: str, count: int) -> str:
    for index in range(count):
        with net.scope(f"{name}{index}"):
            x = block(x)
    return x
