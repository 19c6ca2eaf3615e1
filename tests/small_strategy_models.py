"""Small models of the zoo, planned by every strategy: what the tests of strategies share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from snplan import models
from snplan.compiler import CompileOptions, Prepared, plan_prepared, prepare
from snplan.errors import InfeasibleError
from snplan.frontend import load_model, read_weights
from snplan.plan.model import Recompute, Run, StepPlan
from snplan.runtime.run import run_plan
from snplan.strategies.registry import STRATEGIES

SMALL: Mapping[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", {"batch": 64, "widths": (64, 128, 64, 10)}),
    "resnet": ("resnet", {"batch": 2, "blocks": (1, 1, 1, 1), "image": 32, "width": 0.125, "classes": 10}),
    "gpt2": ("gpt2", {"batch": 2, "layers": 2, "heads": 2, "embed": 32, "context": 32, "vocab": 64}),
}
SPECS = (*STRATEGIES, "superneurons:-cache", "superneurons:-recompute", "superneurons:-cache-recompute-algorithms")
TIGHT, LOOSE = 0.6, 8.0


@cache
def prepared(name: str) -> tuple[bytes, Prepared]:
    """A model's file and its training step."""
    model, form = SMALL[name]
    data = models.build(model, loss=True, **form).SerializeToString()
    return data, prepare(load_model(data), CompileOptions(budget_bytes=1 << 40, device="k40c"))


def planned(name: str, spec: str, share: float) -> tuple[StepPlan, dict[str, Any]]:
    """Plan and report at floor + share * (keep-all - floor)."""
    _, found = prepared(name)
    lowest, highest = found.lowest.bytes, found.everything.body.arena_bytes
    budget = int(lowest + share * (highest - lowest))
    options = CompileOptions(budget_bytes=budget, reserve_bytes=0, strategy=spec, device="k40c")
    result = plan_prepared(found, options)
    return result.plan, result.report


def planned_or_refused(name: str, spec: str, share: float) -> tuple[StepPlan, dict[str, Any]] | InfeasibleError:
    """Plan and report, or why there are none."""
    try:
        return planned(name, spec, share)
    except InfeasibleError as refusal:
        return refusal


def runs(plan: StepPlan) -> list[tuple[int, Run | Recompute]]:
    """The plan's executions of ops with their numbers, in order."""
    return [(number, action) for number, action in enumerate(plan.actions) if isinstance(action, Run | Recompute)]


def checked(name: str, plan: StepPlan) -> bool:
    """Whether a run of the plan computes what the unplanned step computes, bit for bit."""
    sources = {entry.tensor for entry in plan.persistent}
    wanted = [t.name for t in plan.tensors if t.name in sources and t.role != "optimizer"]
    return run_plan(plan, read_weights(load_model(prepared(name)[0]), wanted), seed=5, check=True).checked
