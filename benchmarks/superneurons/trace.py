"""One training step of a network: which tensors its forward and backward steps read and write, and when each is live.

Forward steps are numbered by route position (DATA is step 0), backward steps follow in reverse order. Weights, their
gradients and workspaces are left out, as in the paper's figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from superneurons.layers import IN_PLACE, READS_INPUT, READS_OUTPUT, Kind, Layer, Network


class Role(StrEnum):
    """What a tensor is."""

    INPUT = "input"
    FORWARD = "forward"
    GRADIENT = "gradient"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor with the layer that it belongs to: the output of a layer, or the gradient of that output."""

    name: str
    layer: str
    role: Role
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One forward or backward step, with the indices of the tensors that it reads and writes."""

    number: int
    layer: str
    backward: bool
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The steps of a network over its tensors."""

    network: Network
    tensors: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    output: Mapping[str, int]
    """Layer -> the tensor of its forward output."""

    @cached_property
    def first(self) -> list[int]:
        """Step that makes each tensor."""
        return [used[0] for used in self._uses]

    @cached_property
    def last(self) -> list[int]:
        """Last step that reads or writes each tensor."""
        return [used[-1] for used in self._uses]

    @cached_property
    def _uses(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.tensors]
        for step in self.steps:
            for tensor in dict.fromkeys((*step.reads, *step.writes)):
                found[tensor].append(step.number)
        return found

    def backward_uses(self, tensor: int) -> list[int]:
        """Backward steps that read or write a tensor."""
        return [number for number in self._uses[tensor] if number >= len(self.network.layers)]

    def forward_uses(self, tensor: int) -> list[int]:
        """Forward steps that read or write a tensor."""
        return [number for number in self._uses[tensor] if number < len(self.network.layers)]

    def backward_of(self, layer: str) -> int:
        """Number of the backward step of a layer."""
        return 2 * len(self.network.layers) - 1 - self.network.position[layer]


def trace(network: Network) -> Trace:
    """The training step of `network` under the reading rules of the layer API."""
    tensors: list[Tensor] = []
    output: dict[str, int] = {}
    for layer in network.layers:
        role = Role.INPUT if layer.kind is Kind.DATA else Role.FORWARD
        output[layer.name] = len(tensors)
        tensors.append(Tensor(name=layer.name, layer=layer.name, role=role, bytes=layer.bytes))
    gradient = _gradients(network, tensors, output)
    forward = [
        Step(number=i, layer=layer.name, backward=False, reads=_outputs(layer, output), writes=(output[layer.name],))
        for i, layer in enumerate(network.layers)
    ]
    backward = [
        _backward(layer, len(network.layers) + i, output, gradient) for i, layer in enumerate(reversed(network.layers))
    ]
    return Trace(network=network, tensors=tuple(tensors), steps=(*forward, *backward), output=output)


def _outputs(layer: Layer, output: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(output[name] for name in layer.inputs)


def _backward(layer: Layer, number: int, output: Mapping[str, int], gradient: Mapping[str, int]) -> Step:
    reads = list(_outputs(layer, output)) if layer.kind in READS_INPUT else []
    if layer.kind in READS_OUTPUT:
        reads.append(output[layer.name])
    if layer.name in gradient:
        reads.append(gradient[layer.name])
    writes = tuple(dict.fromkeys(gradient[name] for name in layer.inputs if name in gradient))
    return Step(number=number, layer=layer.name, backward=True, reads=tuple(reads), writes=writes)


def _gradients(network: Network, tensors: list[Tensor], output: Mapping[str, int]) -> dict[str, int]:
    """Layer -> the tensor of its output's gradient; DATA and the last layer have none. New ones go into `tensors`."""
    gradient: dict[str, int] = {}
    joined: dict[str, int] = {}
    for layer in reversed(network.layers):
        readers = network.readers[layer.name]
        if layer.kind is Kind.DATA or not readers:
            continue
        reader = network[readers[0]]
        shared = _shared(layer, reader, gradient, output, joined) if len(readers) == 1 else None
        if shared is None:
            shared = len(tensors)
            tensors.append(Tensor(name=f"{layer.name}:grad", layer=layer.name, role=Role.GRADIENT, bytes=layer.bytes))
            if len(readers) == 1 and len(reader.inputs) > 1:
                joined.setdefault(reader.name, shared)
        gradient[layer.name] = shared
    return gradient


def _shared(
    layer: Layer, reader: Layer, gradient: Mapping[str, int], output: Mapping[str, int], joined: Mapping[str, int]
) -> int | None:
    """The existing tensor that also holds the gradient of `layer`, whose only reader is `reader`; None without one."""
    if reader.kind is Kind.SOFTMAX:
        return output[reader.name]
    if reader.kind in IN_PLACE or reader.kind is Kind.CONCAT:
        return gradient.get(reader.name)
    if reader.kind is Kind.ADD:
        # Both summands would share it, so neither may overwrite it.
        return None if layer.kind in IN_PLACE else gradient.get(reader.name)
    return joined.get(reader.name)
