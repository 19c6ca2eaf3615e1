"""Actions of a plan bound to arenas: each becomes one call without arguments to look up."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from snplan.plan.index import PlanIndex
from snplan.plan.model import Alloc, Extent, Free, Offload, Prefetch, Recompute, Run
from snplan.runtime.arena import Arena
from snplan.runtime.calls import Layout, OpCall, layout, op_call
from snplan.runtime.numpy.base import Array, Context


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRun:
    """A `run` or `recompute`: views it reads and writes (None: an output of no bytes), and outputs to tap by name."""

    action: int
    call: OpCall
    inputs: tuple[Array, ...]
    outputs: tuple[Array | None, ...]
    taps: tuple[tuple[str, Array], ...]
    after: tuple[int, ...]
    stream: str = "compute"

    def execute(self, context: Context, tapped: dict[str, Array]) -> None:
        """Run the op. Its outputs may be the bytes of its inputs: results are copied in when all are there."""
        results = self.call(self.inputs, self.call.context(context))
        for output, result in zip(self.outputs, results, strict=True):
            if output is not None:
                np.copyto(output, result, casting="no")
        for name, view in self.taps:
            tapped[name] = view.copy()


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCopy:
    """An `offload` or `prefetch`: bytes of one arena to the other; `what` says in words which."""

    action: int
    what: str
    source: Array
    target: Array
    after: tuple[int, ...]
    stream: str

    def execute(self, context: Context, tapped: dict[str, Array]) -> None:
        """Copy."""
        np.copyto(self.target, self.source)


Bound: TypeAlias = "BoundRun | BoundCopy"


def bind_actions(index: PlanIndex, device: Arena, host: Arena, taps: Collection[str]) -> dict[int, Bound]:
    """Every stream action of the plan by its id."""
    calls = {name: op_call(op, index) for name, op in index.ops.items()}
    bound: dict[int, Bound] = {}
    for number, action in enumerate(index.plan.actions):
        if isinstance(action, (Run, Recompute)):
            bound[number] = _bind_run(number, action, calls[action.op], index, device, taps)
        elif isinstance(action, (Offload, Prefetch)):
            bound[number] = _bind_copy(number, action, index, device, host)
    return bound


def _bind_run(
    number: int, action: Run | Recompute, call: OpCall, index: PlanIndex, device: Arena, taps: Collection[str]
) -> BoundRun:
    reads, writes = dict(action.reads), dict(action.writes)
    outputs = tuple(
        _view(name, writes, shape, index.buffers, device)
        for name, shape in zip(call.op.outputs, call.outputs, strict=True)
    )
    inputs = []
    for name, shape in zip(call.op.inputs, call.inputs, strict=True):
        view = _view(name, reads, shape, index.buffers, device)
        source = np.empty(shape[1], shape[0]) if view is None else view
        source.flags.writeable = False
        inputs.append(source)
    tapped = [
        (name, view) for name, view in zip(call.op.outputs, outputs, strict=True) if name in taps and view is not None
    ]
    return BoundRun(
        action=number, call=call, inputs=tuple(inputs), outputs=outputs, taps=tuple(tapped), after=tuple(action.after)
    )


def _view(
    name: str, places: Mapping[str, int], shape: Layout, buffers: Mapping[int, Extent], device: Arena
) -> Array | None:
    """The tensor's view, or None for a tensor without bytes that the action therefore does not list."""
    if name not in places:
        return None
    return device.view(buffers[places[name]], *shape)


def _bind_copy(number: int, action: Offload | Prefetch, index: PlanIndex, device: Arena, host: Arena) -> BoundCopy:
    kind = layout(index.tensors[action.tensor])
    inside = device.view(index.buffers[action.buffer], *kind)
    outside = host.view(index.slots[action.slot], *kind)
    out = isinstance(action, Offload)
    source, target = (inside, outside) if out else (outside, inside)
    return BoundCopy(
        action=number,
        what=f"{'offload' if out else 'prefetch'} of {action.tensor}, buffer {action.buffer}, slot {action.slot}",
        source=source,
        target=target,
        after=tuple(action.after),
        stream="d2h" if out else "h2d",
    )


@dataclass(slots=True, kw_only=True)
class Interval:
    """One live interval of a buffer: its extent and the stream actions that touch it meanwhile."""

    extent: Extent
    actions: list[int]


def freed_intervals(index: PlanIndex) -> Iterator[tuple[int, Interval]]:
    """Each `free` action's id with the live interval that it ends."""
    live = {
        place.buffer: Interval(extent=index.buffers[place.buffer], actions=[])
        for place in index.plan.resident
        if place.buffer is not None
    }
    for number, action in enumerate(index.plan.actions):
        if isinstance(action, Alloc):
            live[action.buffer] = Interval(extent=index.buffers[action.buffer], actions=[])
        elif isinstance(action, Free):
            yield number, live.pop(action.buffer)
        else:
            for buffer in touched_buffers(action):
                if buffer in live:
                    live[buffer].actions.append(number)


def touched_buffers(action: object) -> Iterator[int]:
    """Buffers that a stream action reads or writes, each once."""
    if isinstance(action, (Run, Recompute)):
        yield from dict.fromkeys(buffer for _, buffer in (*action.reads, *action.writes))
    elif isinstance(action, (Offload, Prefetch)):
        yield action.buffer
