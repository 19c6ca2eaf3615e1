"""Races in a plan by brute force: every pair of accesses, every pair of actions."""

from __future__ import annotations

from typing import TypeAlias

from snplan.plan.model import Algorithm, Offload, Prefetch, Recompute, Run, StepPlan

Span: TypeAlias = tuple[str, int, int, bool]
"""Arena, first byte, first byte after, whether it is a write."""

_STREAM = {Run: "compute", Recompute: "compute", Offload: "d2h", Prefetch: "h2d"}


def spans(plan: StepPlan) -> list[list[Span]]:
    """The bytes that each action touches."""
    buffers = {row.id: (row.offset, row.offset + row.bytes) for row in plan.buffers}
    slots = {row.id: (row.offset, row.offset + row.bytes) for row in plan.slots}
    workspace: dict[str, int | None] = {}
    result: list[list[Span]] = []
    for action in plan.actions:
        touched: list[Span] = []
        if isinstance(action, Algorithm):
            workspace[action.op] = action.workspace
        elif isinstance(action, Run | Recompute):
            touched += [("device", *buffers[buffer], False) for _, buffer in action.reads]
            touched += [("device", *buffers[buffer], True) for _, buffer in action.writes]
            extra = workspace.get(action.op)
            touched += [] if extra is None else [("device", *buffers[extra], True)]
        elif isinstance(action, Offload):
            touched = [("device", *buffers[action.buffer], False), ("host", *slots[action.slot], True)]
        elif isinstance(action, Prefetch):
            touched = [("host", *slots[action.slot], False), ("device", *buffers[action.buffer], True)]
        result.append(touched)
    return result


def ancestors(plan: StepPlan) -> list[set[int]]:
    """For each action the actions that are finished before it starts, by streams and `after` edges."""
    before: list[set[int]] = []
    last: dict[str, int] = {}
    for i, action in enumerate(plan.actions):
        known: set[int] = set()
        if isinstance(action, Run | Recompute | Offload | Prefetch):
            stream = _STREAM[type(action)]
            edges = [*action.after, *([last[stream]] if stream in last else [])]
            known = set(edges).union(*(before[edge] for edge in edges))
            last[stream] = i
        before.append(known)
    return before


def conflict(a: Span, b: Span) -> bool:
    """Whether two accesses have to be ordered."""
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2] and (a[3] or b[3])


def races(plan: StepPlan) -> list[tuple[int, int]]:
    """Pairs of actions that are not ordered, and touch the same bytes, one of them with a write."""
    touched, before = spans(plan), ancestors(plan)
    return [
        (earlier, later)
        for later in range(len(touched))
        for earlier in range(later)
        if earlier not in before[later] and any(conflict(a, b) for a in touched[earlier] for b in touched[later])
    ]
