"""A multi-layer perceptron: fully connected layers with ReLU between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from snplan.models.option import Option, dropout_option

if TYPE_CHECKING:
    from snplan.models.layers import Network

OPTIONS: Mapping[str, Option] = {
    "widths": Option(default=(784, 512, 256, 10), help="features: the input's, each hidden layer's, the classes"),
    "dropout": dropout_option(0.0),
}


def mlp(net: Network, *, widths: tuple[int, ...], dropout: float) -> str:
    """The logits [batch, widths[-1]] of `input` [batch, widths[0]]. Raises ValueError on fewer than two widths."""
    if len(widths) < 2:
        raise ValueError(f"widths is {widths}; it needs the input's features and the classes at least")
    x = net.input("input", (net.batch, widths[0]))
    for index, width in enumerate(widths[1:-1], 1):
        x = net.relu(net.linear(x, width, name=f"fc{index}"), name=f"relu{index}")
        x = net.dropout(x, dropout, name=f"dropout{index}")
    return net.linear(x, widths[-1], gain=1.0, name=f"fc{len(widths) - 1}")
