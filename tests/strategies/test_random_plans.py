"""Random graphs planned by every strategy: judge, verifier and replay agree, no bit changes, refusals say why."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.graphs import forwards
from tests_support import random_weights

from snplan.analysis.floor import floor
from snplan.analysis.index import IndexedStep, index_step
from snplan.compiler import CompileOptions, assemble_plan
from snplan.cost.device import load_device
from snplan.cost.roofline import op_costs
from snplan.errors import InfeasibleError
from snplan.ir import Forward
from snplan.passes.order import sink_updates
from snplan.passes.realise import step_costs
from snplan.passes.search import keep_all_candidate
from snplan.plan.file import encode_plan
from snplan.plan.model import ModelRef, StepPlan
from snplan.plan.verify import verify
from snplan.runtime.numpy.backend import NumpyBackend
from snplan.runtime.numpy.streams import Delays
from snplan.runtime.run import run_plan
from snplan.strategies.base import Task
from snplan.strategies.registry import STRATEGIES, parse_strategy
from snplan.training import attach_loss, build_step, make_optimizer

Judge = Callable[[dict[str, Any], int], tuple[list[Any], dict[str, Any]]]
DEVICE = load_device("h200")
SPECS = (*STRATEGIES, "superneurons:-cache", "superneurons:-recompute", "superneurons:-cache-recompute")
SHARES = (0.0, 0.1, 0.3, 0.5, 0.8, 1.0, 3.0)


def indexed(forward: Forward, optimizer: str = "sgd") -> IndexedStep:
    """The indexed training step of a forward graph."""
    step = sink_updates(build_step(attach_loss(forward, "auto"), optimizer=make_optimizer(optimizer)))
    return index_step(step, op_costs(step.graph, DEVICE, "fp32").tolist())


def task_of(step: IndexedStep, share: float) -> Task:
    """The task of planning within floor + share * (keep-all - floor)."""
    costs, lowest = step_costs(step, DEVICE), floor(step)
    everything = keep_all_candidate(step, costs).body.arena_bytes
    budget = int(lowest.bytes + share * (everything - lowest.bytes))
    return Task(step=step, costs=costs, budget=budget, floor=lowest)


def planned(step: IndexedStep, spec: str, share: float) -> StepPlan | InfeasibleError:
    """The plan of a strategy, or its refusal."""
    task, strategy = task_of(step, share), parse_strategy(spec)
    assert strategy is not None
    try:
        chosen = strategy.plan(task)
    except InfeasibleError as refusal:
        return refusal
    return assemble_plan(
        ModelRef(sha256="0" * 64, name="random"),
        CompileOptions(budget_bytes=task.budget, reserve_bytes=0, strategy=spec),
        strategy.device(DEVICE),
        0,
        step,
        chosen,
        bound=1,
        lowest=task.floor,
    )


@pytest.mark.parametrize("spec", SPECS)
@given(forward=forwards(), share=st.sampled_from(SHARES), optimizer=st.sampled_from(("sgd", "adam", "none")))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_plans_are_sound_and_replay_bit_for_bit(
    judge: Judge, spec: str, forward: Forward, share: float, optimizer: str
) -> None:
    plan = planned(indexed(forward, optimizer), spec, share)
    if isinstance(plan, InfeasibleError):
        assert plan.code == "SNP-P004"
        assert plan.details["wanted_bytes"] > plan.details["budget_bytes"]
        return
    assert plan.arena_bytes <= plan.budget_bytes
    assert verify(plan) == []
    assert judge(json.loads(encode_plan(plan)), plan.budget_bytes)[0] == []
    assert run_plan(plan, random_weights(plan), steps=2, seed=1, check=True).checked


@pytest.mark.parametrize("spec", ["tensorflow", "vdnn-all", "superneurons", "superneurons:-cache"])
@given(forward=forwards(max_ops=8), share=st.sampled_from((0.3, 0.6)))
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_poison_and_delays_change_no_bit(spec: str, forward: Forward, share: float) -> None:
    plan = planned(indexed(forward), spec, share)
    if isinstance(plan, StepPlan):
        backend = NumpyBackend(debug=True, delays=Delays(seed=4, seconds=0.0005))
        assert run_plan(plan, random_weights(plan), steps=2, seed=1, check=True, backend=backend).checked
