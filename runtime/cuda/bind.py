"""A plan bound to a device: all its memory, and the work of every action as calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from snplan.codegen.launch import CONTROL
from snplan.ir import Role
from snplan.plan.index import PlanIndex
from snplan.plan.model import Offload, Prefetch, Recompute, Run
from snplan.runtime.cuda.arrival import Arrival, take_arrival
from snplan.runtime.cuda.calls import device_calls
from snplan.runtime.cuda.gpu import Array, Gpu, Issue, Stream
from snplan.runtime.cuda.issue import Streams
from snplan.runtime.cuda.kernels import Kernels
from snplan.runtime.cuda.memory import (
    HostArena,
    Memory,
    Staging,
    check_room,
    is_resident,
    take_host_arena,
    take_staging,
)
from snplan.runtime.layout import Orders, assign_orders
from snplan.units import round_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Addresses, host memory and work of a bound plan.

    `work` holds each action's calls by its id; `taps` a pinned block for each tapped tensor; `staging` the blocks of
    inputs; `ahead` says where on the device the next step's inputs arrive, where there is room for them.
    `is_resident` is false where the device's free memory did not go down by what was taken.
    """

    orders: Orders
    arena: int
    control: int
    host: HostArena
    staging: Mapping[str, Staging]
    ahead: Arrival
    taps: Mapping[str, Array]
    work: dict[int, Sequence[Issue]]
    is_resident: bool


def bind_plan(
    index: PlanIndex,
    gpu: Gpu,
    streams: Streams,
    memory: Memory,
    kernels: Kernels,
    taps: Collection[str],
    *,
    orders: Orders | None,
    engines: Mapping[str, int],
) -> Bound:
    """Take all memory and prepare all work. Raises RunError for what does not fit or cannot run here."""
    orders = assign_orders(index) if orders is None else orders
    scratch_bytes = round_up(kernels.prepare(index, orders))
    own = scratch_bytes + round_up(CONTROL.itemsize)
    free = check_room(gpu, index.plan, own)
    arena = memory.device(index.plan.arena_bytes, "the arena")
    resident = is_resident(free, gpu.memory()[0], index.plan.arena_bytes)
    control = memory.device(own, "the executor's scratch")
    scratch = control + round_up(CONTROL.itemsize)
    for address, size in ((arena, index.plan.arena_bytes), (control, own)):
        if size:
            gpu.fill(address, size, 0, streams.compute)
    host = take_host_arena(memory, index.plan.host_arena_bytes, index.plan.slots)
    inputs = [row.name for row in index.plan.tensors if row.role == Role.INPUT]
    staging = dict(zip(inputs, take_staging(memory, [index.tensors[name].bytes for name in inputs]), strict=True))
    ahead = take_arrival(index, gpu, memory, arena)
    tapped = {name: memory.pinned(index.tensors[name].bytes) for name in sorted(taps) if index.tensors[name].bytes}
    calls = device_calls(index, orders, arena)
    kernels.load(calls, scratch=scratch, control=control, engines=engines)
    work: dict[int, Sequence[Issue]] = {number: kernels.issues(number) for number in calls}
    work |= _copies(index, gpu, streams, arena, host)
    for number, issues in _taps(index, gpu, streams, arena, tapped).items():
        work[number] = [*work[number], *issues]
    gpu.synchronize(streams.compute)
    return Bound(
        orders=orders,
        arena=arena,
        control=control,
        host=host,
        staging=staging,
        ahead=ahead,
        taps=tapped,
        work=work,
        is_resident=resident,
    )


def control_word(control: int, name: str) -> int:
    """Address of one of the words that kernels share with the executor."""
    fields = CONTROL.fields
    assert fields is not None
    return control + int(fields[name][1])


def _copies(index: PlanIndex, gpu: Gpu, streams: Streams, arena: int, host: HostArena) -> dict[int, Sequence[Issue]]:
    """The work of offloads and prefetches."""
    work: dict[int, Sequence[Issue]] = {}
    for number, action in enumerate(index.plan.actions):
        if not isinstance(action, (Offload, Prefetch)):
            continue
        size = index.tensors[action.tensor].bytes
        if size == 0:
            work[number] = ()
            continue
        address = arena + index.buffers[action.buffer].offset
        block = host.bytes_of(index.slots[action.slot].offset, size)
        outward = isinstance(action, Offload)
        work[number] = (_copy(gpu, address, block, streams.d2h if outward else streams.h2d, outward=outward),)
    return work


def _copy(gpu: Gpu, address: int, block: Array, stream: Stream, *, outward: bool) -> Issue:
    if outward:
        return lambda: gpu.to_host(block, address, stream)
    return lambda: gpu.to_device(address, block, stream)


def _taps(
    index: PlanIndex, gpu: Gpu, streams: Streams, arena: int, tapped: Mapping[str, Array]
) -> dict[int, list[Issue]]:
    """Copies of tapped tensors behind the actions that write them, on the same stream."""
    work: dict[int, list[Issue]] = {}
    for number, action in enumerate(index.plan.actions):
        if isinstance(action, (Run, Recompute)):
            found = [(name, buffer) for name, buffer in action.writes if name in tapped]
            if found:
                work[number] = [
                    _copy(gpu, arena + index.buffers[buffer].offset, tapped[name], streams.compute, outward=True)
                    for name, buffer in found
                ]
    return work
