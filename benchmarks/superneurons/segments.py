"""Recomputation segments of a network, and when each is recomputed speed-centric or memory-centric (section 3.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from superneurons.layers import JOINS, READS_INPUT, Kind, Network
from superneurons.trace import Role, Step, Trace


class Mode(StrEnum):
    """How the outputs of a segment come back for the backward pass.

    SPEED   once for all its backward steps: n extra runs for n layers
    MEMORY  for one backward step at a time, the output of the layer before it: n (n + 1) / 2 extra runs
    COST    MEMORY exactly for the segments whose memory with SPEED is above the largest layer's, else SPEED
    """

    SPEED = "speed-centric"
    MEMORY = "memory-centric"
    COST = "cost-aware"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of layers between kept layers, with the kept layer that it starts from."""

    checkpoint: str
    layers: tuple[str, ...]


def is_kept(network: Network, name: str) -> bool:
    """Whether a layer's output is kept: CONV, FC, joins, whatever has several readers; and the ends of the network."""
    kind = network[name].kind
    return kind in JOINS or kind in (Kind.CONV, Kind.FC, Kind.DATA) or len(network.readers[name]) != 1


def segments(network: Network) -> tuple[Segment, ...]:
    """The segments in route order. A layer that is not kept has one input and one reader, so each is a chain."""
    chains: dict[str, tuple[str, list[str]]] = {}
    for layer in network.layers:
        if is_kept(network, layer.name):
            continue
        before = layer.inputs[0]
        checkpoint, chain = chains.pop(before, (before, []))
        chains[layer.name] = (checkpoint, [*chain, layer.name])
    return tuple(Segment(checkpoint=checkpoint, layers=tuple(chain)) for checkpoint, chain in chains.values())


def segment_modes(trace: Trace, parts: Sequence[Segment], mode: Mode) -> dict[Segment, Mode]:
    """SPEED or MEMORY for each segment; COST decides by `largest_layer`."""
    if mode is not Mode.COST:
        return dict.fromkeys(parts, mode)
    limit = largest_layer(trace, parts)
    return {part: Mode.SPEED if segment_bytes(trace, part, Mode.SPEED) <= limit else Mode.MEMORY for part in parts}


def extra_runs(modes: Mapping[Segment, Mode]) -> int:
    """Extra forward runs of layers in a training step."""
    return sum(_runs(len(part.layers), mode) for part, mode in modes.items())


def _runs(count: int, mode: Mode) -> int:
    return count if mode is Mode.SPEED else count * (count + 1) // 2


def largest_layer(trace: Trace, parts: Iterable[Segment]) -> int:
    """The paper's l_peak = max(l_i): the most bytes that one layer needs, with what it takes to recompute its input."""
    plain = max(_bytes(trace, {*step.reads, *step.writes}) for step in trace.steps)
    return max([plain, *(segment_bytes(trace, part, Mode.MEMORY) for part in parts)])


def segment_bytes(trace: Trace, part: Segment, mode: Mode) -> int:
    """The most bytes over a segment's backward steps: what the step uses, the checkpoint, and what is recomputed."""
    checkpoint = trace.output[part.checkpoint]
    outputs = [trace.output[name] for name in part.layers]
    worst = 0
    for step in _steps(trace, part):
        held = {*step.reads, *step.writes, checkpoint}
        if mode is Mode.SPEED:
            held.update(t for t in outputs if any(use >= step.number for use in trace.backward_uses(t)))
        worst = max(worst, _bytes(trace, held))
    return worst


def _steps(trace: Trace, part: Segment) -> list[Step]:
    """Backward steps of a segment's layers, and of the reader behind it when that reads its input."""
    (reader,) = trace.network.readers[part.layers[-1]]
    names = [*part.layers, *([reader] if trace.network[reader].kind in READS_INPUT else [])]
    return [trace.steps[trace.backward_of(name)] for name in names]


def _bytes(trace: Trace, tensors: Iterable[int]) -> int:
    return sum(trace.tensors[t].bytes for t in tensors if trace.tensors[t].role is not Role.INPUT)
