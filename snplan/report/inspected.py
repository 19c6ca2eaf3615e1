"""What `snplan inspect` says about a plan, as plain data; the plan is a verified one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from snplan.errors import UsageError
from snplan.plan.model import Offload, Prefetch, Recompute, Run, StepPlan
from snplan.plan.stays import stays
from snplan.plan.text import action_text
from snplan.plan.timeline import (
    Held,
    binding_op,
    breakdown,
    copied_bytes,
    count_actions,
    live_set,
    peak_moment,
)
from snplan.report.fates import fates

TOTALS = (
    *("budget_bytes", "reserve_bytes", "arena_bytes", "peak_live_bytes", "host_arena_bytes", "floor_bytes"),
    *("step_time_us", "lower_bound_us"),
)


def summary(plan: StepPlan) -> dict[str, Any]:
    """The plan's totals, action counts, copied bytes, fates of tensors, and what is live at the peak."""
    moment = peak_moment(plan)
    held = live_set(plan, moment)
    offloaded, prefetched = copied_bytes(plan)
    return {
        "model": {"name": plan.model.name, "sha256": plan.model.sha256},
        "device": plan.device.get("name"),
        "options": plan.options,
        **{name: getattr(plan, name) for name in TOTALS},
        "ops": len(plan.ops),
        "tensors": len(plan.tensors),
        "buffers": len(plan.buffers),
        "slots": len(plan.slots),
        **_pools(plan),
        "actions": count_actions(plan),
        "offload_bytes": offloaded,
        "prefetch_bytes": prefetched,
        "fates": {name: asdict(fate) for name, fate in fates(plan).items()},
        "breakdown_bytes": breakdown(held),
        "binding": binding_op(plan, moment),
        "peak": _moment(plan, moment, held),
    }


def _pools(plan: StepPlan) -> dict[str, dict[str, int]]:
    """Bytes of the host arena that each pool has, where slots name pools."""
    spans: dict[str, tuple[int, int]] = {}
    for slot in plan.slots:
        if slot.pool is not None:
            low, high = spans.get(slot.pool, (slot.offset, 0))
            spans[slot.pool] = min(low, slot.offset), max(high, slot.offset + slot.bytes)
    return {"pool_bytes": {name: high - low for name, (low, high) in sorted(spans.items())}} if spans else {}


def moment_of(plan: StepPlan, moment: int) -> dict[str, Any]:
    """What is live when action `moment` has been issued; -1 is before the first.

    Raises UsageError (SNP-U022) for a moment that the plan does not have.
    """
    last = len(plan.actions) - 1
    if not -1 <= moment <= last:
        raise UsageError("SNP-U022", f"--time {moment} is no action of the plan; choose -1 (the start) to {last}")
    return _moment(plan, moment, live_set(plan, moment))


def _moment(plan: StepPlan, moment: int, held: Sequence[Held]) -> dict[str, Any]:
    return {
        "time": moment,
        "action": action_text(plan.actions[moment]) if moment >= 0 else None,
        "live_bytes": sum(row.bytes for row in held),
        "live": [asdict(row) for row in held],
    }


def tensor_of(plan: StepPlan, name: str) -> dict[str, Any]:
    """A tensor's size, writer, readers, every stay in a place, and every action that touches it.

    Raises UsageError (SNP-U023) for a name that the plan does not have, with names like it.
    """
    row = next((row for row in plan.tensors if row.name == name), None)
    if row is None:
        close = difflib.get_close_matches(name, [row.name for row in plan.tensors], n=3)
        hint = f"names like it: {', '.join(close)}" if close else "--text lists all names"
        raise UsageError("SNP-U023", f"the plan has no tensor {name!r}; {hint}")
    return {
        "name": row.name,
        "dtype": row.dtype,
        "shape": row.shape,
        "bytes": row.bytes,
        "role": row.role,
        "written_by": [op.name for op in plan.ops if name in op.outputs],
        "read_by": [op.name for op in plan.ops if name in op.inputs],
        "stays": [asdict(stay) for stay in stays(plan).get(name, [])],
        "actions": [[i, action_text(action)] for i, action in enumerate(plan.actions) if _touches(action, name)],
    }


def _touches(action: object, name: str) -> bool:
    if isinstance(action, Offload | Prefetch):
        return action.tensor == name
    if isinstance(action, Run | Recompute):
        return any(tensor == name for tensor, _ in (*action.reads, *action.writes))
    return False
