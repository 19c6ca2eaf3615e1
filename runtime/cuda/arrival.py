"""Where the next step's inputs arrive while a step runs: beside the arena, or in bytes of it that are done with."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from snplan.errors import UsageError
from snplan.ir import Role
from snplan.plan.index import PlanIndex
from snplan.plan.model import Action, Algorithm, Offload, Persistent, Place, Prefetch, Recompute, Run, StepPlan
from snplan.runtime.cuda.gpu import Gpu
from snplan.runtime.cuda.memory import Memory
from snplan.runtime.numpy.bind import touched_buffers
from snplan.units import round_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Addresses of the next step's inputs by name, none where there is no room for them.

    Inside the arena they may be written when the flags of `gates`, each raised after an action, are all up.
    """

    addresses: Mapping[str, int]
    gates: Mapping[int, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Bytes of the arena from `offset` on, and on each stream the last action of a step that touches them."""

    offset: int
    actions: tuple[int, ...]


def take_arrival(index: PlanIndex, gpu: Gpu, memory: Memory, arena: int) -> Arrival:
    """Addresses for the inputs of the next step: in what the budget leaves beside arena and reserve, else inside."""
    plan = index.plan
    sizes = {
        place.tensor: round_up(index.tensors[place.tensor].bytes)
        for place in plan.resident
        if place.buffer is not None and index.tensors[place.tensor].role == Role.INPUT
    }
    total = sum(sizes.values())
    gates: Mapping[int, Any] = {}
    if total and total <= min(plan.budget_bytes - plan.reserve_bytes - plan.arena_bytes, gpu.memory()[0]):
        address = memory.device(total, "a place for the next step's inputs")
    else:
        room = late_room(index, total) if total else None
        if room is None or not _is_worth_it(plan, room, total):
            return Arrival(addresses={}, gates={})
        address, gates = arena + room.offset, {action: gpu.flag() for action in room.actions}
    addresses = accumulate([address, *list(sizes.values())[:-1]])
    return Arrival(addresses=dict(zip(sizes, addresses, strict=True)), gates=gates)


def _is_worth_it(plan: StepPlan, room: Room, size: int) -> bool:
    """Whether at least half of the copy is hidden: below that, waiting and copying once more cost what is gained."""
    rate = int(plan.device.get("h2d_bytes_per_s", 0))
    return not rate or 2 * hidden_us(plan, room.actions) >= size * 1_000_000 // rate


def late_room(index: PlanIndex, size: int) -> Room | None:
    """The `size` bytes of the arena that a step is done with first; None where no op runs after that.

    Bytes of what is there at either end of a step are never done with.
    """
    touches = last_touches(index.plan.actions)
    never = len(index.plan.actions)
    done = {buffer: max(found.values()) for buffer, found in touches.items()} | dict.fromkeys(_held(index.plan), never)
    spans = sorted((index.buffers[buffer].offset, _end(index, buffer), when, buffer) for buffer, when in done.items())

    def gap(after: int) -> int | None:
        """Offset of the first bytes that nothing touches after an action."""
        end = 0
        for low, high, when, _ in spans:
            if when <= after:
                continue
            if low - end >= size:
                return end
            end = max(end, high)
        return end if index.plan.arena_bytes - end >= size else None

    times = [-1, *sorted(set(done.values()) - {never})]
    which = bisect_left(range(len(times)), True, key=lambda place: gap(times[place]) is not None)
    offset = gap(times[which]) if which < len(times) else None
    if offset is None or times[which] >= _last_run(index.plan.actions):
        return None
    last: dict[str, int] = {}
    for low, high, _, buffer in spans:
        if low < offset + size and high > offset:
            for stream, action in touches.get(buffer, {}).items():
                last[stream] = max(action, last.get(stream, -1))
    return Room(offset=offset, actions=tuple(sorted(last.values())))


def last_touches(actions: Sequence[Action]) -> dict[int, dict[str, int]]:
    """For each buffer, by stream, the last action that touches it, also as workspace."""
    last: dict[int, dict[str, int]] = defaultdict(dict)
    workspaces: dict[str, int] = {}
    for number, action in enumerate(actions):
        if isinstance(action, Algorithm):
            if action.workspace is not None:
                workspaces[action.op] = action.workspace
        elif isinstance(action, (Run, Recompute, Offload, Prefetch)):
            buffers = list(touched_buffers(action))
            if isinstance(action, (Run, Recompute)) and action.op in workspaces:
                buffers.append(workspaces.pop(action.op))
            for buffer in buffers:
                last[buffer][action.stream] = number
    return last


def hidden_us(plan: StepPlan, gates: Iterable[int]) -> int:
    """Microseconds of a step left when all gates are open, by the cost model; 0 where the device is not known."""
    from snplan.cost.timed import plan_timeline

    try:
        timeline = plan_timeline(plan)
    except UsageError:
        return 0
    opened = max((timeline.end[action] for action in gates), default=0)
    return plan.step_time_us * (timeline.step_time_us - opened) // max(1, timeline.step_time_us)


def _held(plan: StepPlan) -> list[int]:
    """Buffers of what is there when a step starts or ends."""
    places: tuple[Place | Persistent, ...] = (*plan.resident, *plan.persistent, *plan.outputs)
    return [place.buffer for place in places if place.buffer is not None]


def _end(index: PlanIndex, buffer: int) -> int:
    extent = index.buffers[buffer]
    return extent.offset + round_up(extent.bytes)


def _last_run(actions: Sequence[Action]) -> int:
    return max((number for number, action in enumerate(actions) if isinstance(action, (Run, Recompute))), default=-1)
