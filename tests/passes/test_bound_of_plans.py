"""No plan of a random step is faster than the lower bound, whatever the budget, the engines and the optimiser."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.graphs import forwards
from solver.steps import slow_link

from snplan.analysis.floor import floor
from snplan.analysis.index import Choice, IndexedStep, index_step
from snplan.cost.bounds import lower_bound_us
from snplan.ir import Forward
from snplan.passes.order import sink_updates
from snplan.passes.realise import step_costs
from snplan.passes.search import Search, keep_all_candidate
from snplan.training import attach_loss, build_step, fuse_step, make_optimizer

DEVICE = slow_link()


def indexed(forward: Forward, optimizer: str, seed: int) -> IndexedStep:
    """A step whose ops take 1 to 40 microseconds; every third has an engine that is as slow again and needs less."""
    rng = random.Random(seed)
    built = build_step(attach_loss(forward, "auto"), optimizer=make_optimizer(optimizer))
    step = sink_updates(fuse_step(built))
    cost = [rng.randint(1, 40) for _ in step.graph.ops]
    engines = {op: [Choice(0, 0, 2 * us), Choice(1, 512 * rng.randint(1, 8), us)] for op, us in enumerate(cost)}
    return index_step(step, cost, {op: choices for op, choices in engines.items() if op % 3 == 0})


@given(
    forwards(),
    st.sampled_from(["none", "sgd", "momentum", "adam"]),
    st.integers(0, 99),
    st.floats(0, 1, exclude_max=True),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_plan_beats_the_bound(forward: Forward, optimizer: str, seed: int, share: float) -> None:
    step = indexed(forward, optimizer, seed)
    costs, lowest = step_costs(step, DEVICE), floor(step)
    everything = keep_all_candidate(step, costs)
    budget = int(lowest.bytes + share * (everything.body.arena_bytes - lowest.bytes))
    found = Search(step=step, costs=costs, budget=budget, floor=lowest).run(everything)
    assert found is not None
    assert lower_bound_us(step, DEVICE, budget) <= found.step_us
