"""Live bytes of a training step under the paper's techniques: liveness, offload of CONV outputs, recompute.

The input batch is left out, as in the paper's figures after the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass

from superneurons.layers import Kind
from superneurons.segments import Mode, Segment, segment_modes, segments
from superneurons.trace import Role, Trace

Span = tuple[int, int]
"""First and last step of a stay on the device, both included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The most that is live at once within a step: tensors by index, and their bytes."""

    step: int
    bytes: int
    tensors: tuple[int, ...]


def baseline(trace: Trace) -> Usage:
    """Every tensor with a buffer of its own for the whole step, the input batch among them."""
    everything = tuple(range(len(trace.tensors)))
    return Usage(step=0, bytes=sum(tensor.bytes for tensor in trace.tensors), tensors=everything)


def in_out_sets(trace: Trace) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The in and out set of every step: tensors live before and after it (the paper's Figure 5).

    One pass over first and last uses, so O(N) for N layers; the out set of a step is the in set of the next.
    """
    made: list[list[int]] = [[] for _ in trace.steps]
    for tensor, first in enumerate(trace.first):
        made[first].append(tensor)
    live: tuple[int, ...] = ()
    sets = []
    for step in trace.steps:
        before = live
        live = tuple(t for t in (*live, *made[step.number]) if trace.last[t] > step.number)
        sets.append((before, live))
    return sets


def profile(trace: Trace, *, offload: bool = False, recompute: Mode | None = None) -> list[Usage]:
    """The live tensors of each step with liveness, and with the techniques that are switched on."""
    parts = segments(trace.network) if recompute else ()
    modes = segment_modes(trace, parts, recompute) if recompute else {}
    stays = [_stays(trace, tensor, offload) for tensor in range(len(trace.tensors))]
    for segment in parts:
        for tensor, stay in _recomputed(trace, segment, modes[segment]).items():
            stays[tensor] = stay
    live: list[list[int]] = [[] for _ in trace.steps]
    for tensor, spans in enumerate(stays):
        if trace.tensors[tensor].role is Role.INPUT:
            continue
        for number in sorted({step for first, last in spans for step in range(first, last + 1)}):
            live[number].append(tensor)
    usage = [_usage(trace, number, tensors) for number, tensors in enumerate(live)]
    for segment in parts:
        if modes[segment] is Mode.MEMORY:
            _add_chains(trace, segment, live, usage)
    return usage


def peak(usage: list[Usage]) -> Usage:
    """The step with the most live bytes, the first of equal ones."""
    return max(usage, key=lambda each: each.bytes)


def _usage(trace: Trace, number: int, tensors: list[int]) -> Usage:
    return Usage(step=number, bytes=sum(trace.tensors[t].bytes for t in tensors), tensors=tuple(tensors))


def _stays(trace: Trace, tensor: int, offload: bool) -> list[Span]:
    whole = (trace.first[tensor], trace.last[tensor])
    layer = trace.tensors[tensor].layer
    is_output = trace.tensors[tensor].role is Role.FORWARD
    if not (offload and is_output and trace.network[layer].kind is Kind.CONV):
        return [whole]
    forward = (whole[0], trace.forward_uses(tensor)[-1])
    uses = trace.backward_uses(tensor)
    return [forward, (_prefetched(trace, layer, uses[0]), uses[-1])] if uses else [forward]


def _prefetched(trace: Trace, layer: str, needed: int) -> int:
    """The step from which a CONV's output is back: its first use, or when it is the nearest CONV still to be used.

    That is the backward step of the next CONV along the route: there the fetch begins, one CONV ahead.
    """
    network = trace.network
    for following in network.layers[network.position[layer] + 1 :]:
        if following.kind is Kind.CONV:
            return min(needed, trace.backward_of(following.name))
    return min(needed, len(network.layers))


def _recomputed(trace: Trace, segment: Segment, mode: Mode) -> dict[int, list[Span]]:
    """Where the outputs of a segment are live when they are dropped after their forward use."""
    stays: dict[int, list[Span]] = {}
    outputs = [trace.output[name] for name in segment.layers]
    needed = [trace.backward_uses(tensor) for tensor in outputs]
    for i, tensor in enumerate(outputs):
        stays[tensor] = [(trace.first[tensor], trace.forward_uses(tensor)[-1])]
        made = needed[i][:1] if mode is Mode.MEMORY else [uses[0] for uses in needed[i:] if uses]
        if made:
            stays[tensor].append((min(made), max((min(made), *needed[i]))))
    return stays


def _add_chains(trace: Trace, segment: Segment, live: list[list[int]], usage: list[Usage]) -> None:
    """Count what a memory-centric recompute holds while it runs: ahead of its step, two neighbours at a time."""
    outputs = [trace.output[name] for name in segment.layers]
    for i, tensor in enumerate(outputs):
        uses = trace.backward_uses(tensor)
        if not uses:
            continue
        number = uses[0]
        waiting = [t for t in live[number] if t != tensor and trace.first[t] != number]
        for pair in zip([None, *outputs[:i]], outputs[: i + 1], strict=True):
            more = [t for t in pair if t is not None and t not in waiting]
            chained = _usage(trace, number, [*waiting, *more])
            if chained.bytes > usage[number].bytes:
                usage[number] = chained
