"""Random graphs planned at random budgets: judge, verifier and replay agree, and no bit changes."""

from __future__ import annotations

import json

from conftest import Judge
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.graphs import forwards
from tests_support import random_weights

from snplan.analysis.floor import floor
from snplan.analysis.index import IndexedStep, index_step
from snplan.compiler import CompileOptions, assemble_plan
from snplan.cost.device import load_device
from snplan.cost.roofline import op_costs
from snplan.ir import Forward
from snplan.passes.order import sink_updates
from snplan.passes.realise import step_costs
from snplan.passes.search import Search, keep_all_candidate
from snplan.plan.file import encode_plan
from snplan.plan.model import ModelRef, StepPlan
from snplan.plan.verify import verify
from snplan.runtime.numpy.backend import NumpyBackend
from snplan.runtime.numpy.streams import Delays
from snplan.runtime.run import run_plan
from snplan.training import attach_loss, build_step, fuse_step, make_optimizer

DEVICE = load_device("h200")
RELAXED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def indexed(forward: Forward, optimizer: str = "sgd", *, fuse: bool = True) -> IndexedStep:
    """The indexed training step of a forward graph."""
    built = build_step(attach_loss(forward, "auto"), optimizer=make_optimizer(optimizer))
    step = sink_updates(fuse_step(built) if fuse else built)
    return index_step(step, op_costs(step.graph, DEVICE, "fp32").tolist())


def planned(step: IndexedStep, share: float) -> StepPlan:
    """The plan at floor + share * (keep-all - floor)."""
    costs, lowest = step_costs(step, DEVICE), floor(step)
    everything = keep_all_candidate(step, costs)
    budget = int(lowest.bytes + share * (everything.body.arena_bytes - lowest.bytes))
    chosen = Search(step=step, costs=costs, budget=budget, floor=lowest).run(everything)
    assert chosen is not None
    return assemble_plan(
        ModelRef(sha256="0" * 64, name="random"),
        CompileOptions(budget_bytes=budget, reserve_bytes=0),
        DEVICE,
        0,
        step,
        chosen,
        bound=1,
        lowest=lowest,
    )


@given(
    forward=forwards(),
    share=st.sampled_from((0.0, 0.02, 0.1, 0.3, 0.5, 0.8, 1.0)),
    optimizer=st.sampled_from(("sgd", "adam", "none")),
    fuse=st.booleans(),
)
@RELAXED
def test_plans_are_sound_and_replay_bit_for_bit(
    judge: Judge, forward: Forward, share: float, optimizer: str, fuse: bool
) -> None:
    plan = planned(indexed(forward, optimizer, fuse=fuse), share)
    assert verify(plan) == []
    assert judge(json.loads(encode_plan(plan)), plan.budget_bytes)[0] == []
    report = run_plan(plan, random_weights(plan), steps=2, seed=1, check=True)
    assert report.checked
    assert report.peak_bytes <= plan.arena_bytes


@given(forward=forwards(max_ops=8), share=st.sampled_from((0.0, 0.3)))
@settings(RELAXED, max_examples=10)
def test_poison_and_delays_change_no_bit(forward: Forward, share: float) -> None:
    plan = planned(indexed(forward), share)
    backend = NumpyBackend(debug=True, delays=Delays(seed=4, seconds=0.0005))
    assert run_plan(plan, random_weights(plan), steps=2, seed=1, check=True, backend=backend).checked


@given(forward=forwards())
@settings(RELAXED, max_examples=20)
def test_the_floor_is_met_to_the_byte(forward: Forward) -> None:
    step = indexed(forward)
    plan = planned(step, 0.0)
    assert plan.arena_bytes == floor(step).bytes == plan.peak_live_bytes


@given(forward=forwards())
@settings(RELAXED, max_examples=20)
def test_nothing_moves_when_everything_fits(forward: Forward) -> None:
    plan = planned(indexed(forward), 1.0)
    kinds = {type(action).__name__ for action in plan.actions}
    assert not kinds & {"Offload", "Prefetch", "Recompute"}
