"""Rows of a sound plan by name and id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from snplan.plan.model import Extent, PlanOp, PlanTensor, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanIndex:
    """A plan and its rows by name (tensors, ops) and id (buffers, slots)."""

    plan: StepPlan
    tensors: Mapping[str, PlanTensor]
    ops: Mapping[str, PlanOp]
    buffers: Mapping[int, Extent]
    slots: Mapping[int, Extent]


def index_plan(plan: StepPlan) -> PlanIndex:
    """The rows of `plan` by name and id, in the plan's order; names and ids are unique in a verified plan."""
    return PlanIndex(
        plan=plan,
        tensors={row.name: row for row in plan.tensors},
        ops={row.name: row for row in plan.ops},
        buffers={row.id: row for row in plan.buffers},
        slots={row.id: row for row in plan.slots},
    )
