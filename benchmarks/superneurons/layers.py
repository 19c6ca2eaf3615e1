"""Networks as the paper sees them: layers with one output tensor each, and the order they run in (its Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import Any

MIB = 1 << 20
FLOAT = 4


class Kind(StrEnum):
    """Kinds of layers; ADD and CONCAT are the joins."""

    DATA = "DATA"
    CONV = "CONV"
    FC = "FC"
    ACT = "ACT"
    LRN = "LRN"
    BN = "BN"
    POOL = "POOL"
    DROPOUT = "DROPOUT"
    SOFTMAX = "SOFTMAX"
    ADD = "ADD"
    CONCAT = "CONCAT"


JOINS = frozenset({Kind.ADD, Kind.CONCAT})
READS_INPUT = frozenset(Kind) - JOINS - {Kind.DATA}
"""Kinds whose backward reads the layer's input."""
READS_OUTPUT = frozenset({Kind.ACT, Kind.LRN, Kind.POOL, Kind.DROPOUT, Kind.SOFTMAX})
"""Kinds whose backward reads the layer's output; those of CONV, FC and BN do not."""
IN_PLACE = frozenset({Kind.ACT, Kind.LRN})
"""Kinds that write the gradient of their input over the gradient of their output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer: its kind, the layers it reads, and the shape of its output, the batch first.

    `weight` is the shape of the filter of a CONV or FC, `attrs` say how a CONV slides (strides, pads, group).
    """

    name: str
    kind: Kind
    inputs: tuple[str, ...]
    shape: tuple[int, ...]
    weight: tuple[int, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes of the forward output in float32."""
        return FLOAT * prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Network:
    """Layers in the order they run; the first is DATA, and only the last (SOFTMAX) has no reader."""

    name: str
    batch: int
    layers: tuple[Layer, ...]
    parameter_bytes: int = 0

    @cached_property
    def position(self) -> dict[str, int]:
        """Index of each layer in the route: the number of its forward step."""
        return {layer.name: i for i, layer in enumerate(self.layers)}

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """Layers that read the output of each layer, in route order."""
        found: dict[str, list[str]] = {layer.name: [] for layer in self.layers}
        for layer in self.layers:
            for name in layer.inputs:
                found[name].append(layer.name)
        return {name: tuple(names) for name, names in found.items()}

    def __getitem__(self, name: str) -> Layer:
        return self.layers[self.position[name]]


def make_network(name: str, layers: Sequence[Layer], parameter_bytes: int = 0) -> Network:
    """The network of these layers, put in the order of Algorithm 1. The batch is that of the first layer."""
    by_name = {layer.name: layer for layer in layers}
    order = route({layer.name: layer.inputs for layer in layers})
    return Network(
        name=name,
        batch=layers[0].shape[0],
        layers=tuple(by_name[each] for each in order),
        parameter_bytes=parameter_bytes,
    )


def route(inputs: Mapping[str, Sequence[str]]) -> list[str]:
    """The forward order of layers, given what each reads: the paper's Algorithm 1, without its recursion.

    A depth-first walk from the first layer; every visit raises a layer's counter, and a layer runs at the visit that
    makes it as many as the layers it reads. The backward pass is the reverse.
    """
    successors: dict[str, list[str]] = {name: [] for name in inputs}
    for name, sources in inputs.items():
        for source in sources:
            successors[source].append(name)
    counter = dict.fromkeys(inputs, 0)
    order: list[str] = []
    stack = [next(iter(inputs))]
    while stack:
        name = stack.pop()
        counter[name] += 1
        if counter[name] < len(inputs[name]):
            continue
        order.append(name)
        stack.extend(reversed(successors[name]))
    return order
