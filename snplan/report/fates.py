"""What became of the tensors that backward needs: kept, moved, or dropped and recomputed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from snplan.ir import Role
from snplan.plan.model import Offload, Recompute, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """How many tensors share one fate, and their exact bytes."""

    tensors: int
    bytes: int


def fates(plan: StepPlan) -> dict[str, Fate]:
    """Counts and bytes by fate: `kept`, `moved`, `recomputed` and, of other roles, `moved_other`.

    The first three are of the forward ops' results that a later phase reads. One that is both moved and recomputed
    counts as moved. `moved_other` has what else goes to the host: parameters, gradients, optimiser state, inputs.
    """
    saved = _saved(plan)
    moved = {action.tensor for action in plan.actions if isinstance(action, Offload)}
    again = {tensor for action in plan.actions if isinstance(action, Recompute) for tensor, _ in action.writes}
    kept = saved - moved - again
    return {
        "kept": _fate(plan, kept),
        "moved": _fate(plan, saved & moved),
        "recomputed": _fate(plan, (saved & again) - moved),
        "moved_other": _fate(plan, moved - saved),
    }


def _saved(plan: StepPlan) -> set[str]:
    forward = {name for op in plan.ops if op.phase == "forward" for name in op.outputs}
    later = {name for op in plan.ops if op.phase != "forward" for name in op.inputs}
    activations = {row.name for row in plan.tensors if row.role == Role.ACTIVATION}
    return forward & later & activations


def _fate(plan: StepPlan, names: Collection[str]) -> Fate:
    sizes = [row.bytes for row in plan.tensors if row.name in names]
    return Fate(tensors=len(sizes), bytes=sum(sizes))
