"""What a plan holds when: pure functions over a verified plan, in issue order, for reports and for `inspect`.

A moment is the number of an action, and means when it has been issued; -1 is before the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from snplan.ir import Role
from snplan.plan.index import PlanIndex, index_plan
from snplan.plan.model import (
    Action,
    Algorithm,
    Alloc,
    Free,
    Offload,
    Prefetch,
    Recompute,
    Run,
    StepPlan,
)
from snplan.plan.stays import actions_with_writes

_NOTHING = ""
"""Content of a buffer that is never written: no tensor's name."""

BREAKDOWN = ("parameters", "gradients", "optimizer", "activations", "inputs", "workspace", "other")
"""Keys of `breakdown_bytes`, in the order of reports."""

_GROUP = {
    Role.PARAMETER: "parameters",
    Role.GRADIENT: "gradients",
    Role.OPTIMIZER: "optimizer",
    Role.ACTIVATION: "activations",
    Role.INPUT: "inputs",
}
_KINDS: dict[type[Action], str] = {
    Alloc: "alloc",
    Free: "free",
    Run: "run",
    Recompute: "recompute",
    Algorithm: "algorithm",
    Offload: "offload",
    Prefetch: "prefetch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A live buffer at one moment; `tensor` is None for a workspace, `bytes` are the buffer's.

    A buffer that nothing is written to yet counts for the tensor that it is for: its first one.
    """

    buffer: int
    tensor: str | None
    bytes: int
    group: str


def kind_of(action: Action) -> str:
    """The action's kind as the plan file writes it."""
    return _KINDS[type(action)]


def count_actions(plan: StepPlan) -> dict[str, int]:
    """The number of actions of each kind; kinds that the plan lacks count 0."""
    counts = dict.fromkeys(_KINDS.values(), 0)
    for action in plan.actions:
        counts[kind_of(action)] += 1
    return counts


def copied_bytes(plan: StepPlan) -> tuple[int, int]:
    """Exact bytes that a step offloads and prefetches."""
    size = {row.name: row.bytes for row in plan.tensors}
    offloaded = sum(size[action.tensor] for action in plan.actions if isinstance(action, Offload))
    prefetched = sum(size[action.tensor] for action in plan.actions if isinstance(action, Prefetch))
    return offloaded, prefetched


def live_at_start(plan: StepPlan) -> int:
    """Live bytes at moment -1: all resident buffers."""
    size = {row.id: row.bytes for row in plan.buffers}
    return sum(size[place.buffer] for place in plan.resident if place.buffer is not None)


def live_bytes(plan: StepPlan) -> list[int]:
    """Live bytes at the moment of each action."""
    size = {row.id: row.bytes for row in plan.buffers}
    live = live_at_start(plan)
    profile = []
    for action in plan.actions:
        if isinstance(action, Alloc):
            live += size[action.buffer]
        elif isinstance(action, Free):
            live -= size[action.buffer]
        profile.append(live)
    return profile


def peak_moment(plan: StepPlan) -> int:
    """The first moment at which live bytes are at their maximum."""
    best, moment = live_at_start(plan), -1
    for i, live in enumerate(live_bytes(plan)):
        if live > best:
            best, moment = live, i
    return moment


def binding_op(plan: StepPlan, moment: int) -> str | None:
    """The op of the first execution at or after a moment, else of the last one before it; None without executions."""
    last = None
    for i, action in enumerate(plan.actions):
        if not isinstance(action, Run | Recompute):
            continue
        last = action.op
        if i >= moment:
            break
    return last


def live_set(plan: StepPlan, moment: int) -> list[Held]:
    """The live buffers at a moment, the largest first; buffers of one size in order of their ids."""
    index = index_plan(plan)
    births = _births(plan, moment)
    content: dict[int, str | None] = {}
    for place in plan.resident:
        if place.buffer is not None and births.get(place.buffer) == -1:
            content[place.buffer] = place.tensor
    waiting = births.keys() - content.keys()
    for i, (action, writes) in enumerate(actions_with_writes(plan)):
        if i > moment and not waiting:
            break
        for buffer, tensor in writes:
            if births.get(buffer, i + 1) <= i and (i <= moment or buffer in waiting):
                content[buffer] = tensor
                waiting.discard(buffer)
        if i > moment and isinstance(action, Free):
            waiting.discard(action.buffer)
    held = [_held(index, buffer, content.get(buffer, _NOTHING)) for buffer in births]
    return sorted(held, key=lambda row: (-row.bytes, row.buffer))


def _births(plan: StepPlan, moment: int) -> dict[int, int]:
    """The buffers that are live at a moment, and the moments at which they became so."""
    births = {place.buffer: -1 for place in plan.resident if place.buffer is not None}
    for i, action in enumerate(plan.actions[: moment + 1]):
        if isinstance(action, Alloc):
            births[action.buffer] = i
        elif isinstance(action, Free):
            del births[action.buffer]
    return births


def _held(index: PlanIndex, buffer: int, tensor: str | None) -> Held:
    size = index.buffers[buffer].bytes
    if tensor is None:
        return Held(buffer=buffer, tensor=None, bytes=size, group="workspace")
    row = index.tensors.get(tensor)
    group = "other" if row is None else group_of(row.role)
    return Held(buffer=buffer, tensor=tensor or None, bytes=size, group=group)


def group_of(role: str) -> str:
    """The key of BREAKDOWN that tensors of a role count for."""
    return _GROUP.get(Role(role), "other")


def breakdown(held: Iterable[Held]) -> dict[str, int]:
    """Bytes of live buffers by group, with every key of BREAKDOWN; at the peak they sum to `peak_live_bytes`."""
    groups = dict.fromkeys(BREAKDOWN, 0)
    for row in held:
        groups[row.group] += row.bytes
    return groups
