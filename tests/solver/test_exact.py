"""CP-SAT against enumeration: the same optimum on every small step at every budget."""

from __future__ import annotations

import pytest
from solver.steps import brute_force, budgets, chain, fan, random_graph, slow_link, step_of

from snplan.cost.bounds import lower_bound_us
from snplan.ir import Forward
from snplan.passes.realise import step_costs
from snplan.passes.refine import Realiser
from snplan.passes.search import keep_all_candidate
from snplan.solver.refine import Outcome, refine
from snplan.solver.space import Decisions, Space, decisions_of, make_space, residency_of

DEVICE = slow_link()
STEPS = {"chain": chain(3), "fan": fan(1), **{f"random {seed}": random_graph(5, seed) for seed in (1, 2, 4)}}


def everything_away(space: Space) -> Decisions:
    """The plan that keeps nothing: it is within every budget from the floor up."""
    return Decisions(evicted=space.closed(range(len(space.gaps)), frozenset()))


def solved(space: Space, realiser: Realiser, *, seconds: float = 60.0) -> Outcome:
    """The outcome of a search that starts from the plan that keeps nothing."""
    start = everything_away(space)
    time = realiser.evaluate(start)
    assert time is not None
    return refine(space, realiser.budget, (start, time), realiser.evaluate, realiser.live, seconds=seconds)


@pytest.mark.parametrize("name", STEPS)
def test_the_optimum_is_that_of_enumeration_at_every_budget(name: str) -> None:
    step = step_of(STEPS[name], seed=len(name))
    costs, space = step_costs(step, DEVICE), make_space(step, DEVICE)
    for budget in budgets(step, keep_all_candidate(step, costs).body.arena_bytes, 4):
        found = solved(space, Realiser(space=space, costs=costs, budget=budget))
        assert found.status == "optimal"
        assert found.time_us == brute_force(space, Realiser(space=space, costs=costs, budget=budget))
        assert found.bound_us == found.time_us


def test_the_bound_of_a_search_without_time_holds() -> None:
    step = step_of(random_graph(6, 11), seed=3)
    costs, space = step_costs(step, DEVICE), make_space(step, DEVICE)
    budget = budgets(step, keep_all_candidate(step, costs).body.arena_bytes, 2)[1]
    hurried = solved(space, Realiser(space=space, costs=costs, budget=budget), seconds=0.0)
    patient = solved(space, Realiser(space=space, costs=costs, budget=budget))
    assert hurried.status == "feasible"
    assert hurried.bound_us <= patient.time_us <= hurried.time_us


def test_an_interrupt_keeps_the_start() -> None:
    step = step_of(random_graph(6, 11), seed=3)
    costs, space = step_costs(step, DEVICE), make_space(step, DEVICE)
    budget = budgets(step, keep_all_candidate(step, costs).body.arena_bytes, 2)[1]
    realiser = Realiser(space=space, costs=costs, budget=budget)
    start = everything_away(space)
    time = realiser.evaluate(start)
    assert time is not None
    found = refine(
        space, budget, (start, time), realiser.evaluate, realiser.live, interrupted=lambda: True, progress=print
    )
    assert (found.status, found.decisions, found.time_us) == ("interrupted", start, time)


@pytest.mark.parametrize("forward", STEPS.values(), ids=STEPS)
def test_decisions_survive_a_residency(forward: Forward) -> None:
    """What is read back from the residency of some decisions makes the same residency."""
    step = step_of(forward, seed=1)
    space = make_space(step, DEVICE)
    for saved in space.saved:
        gaps = [n for n, gap in enumerate(space.gaps) if gap.tensor != saved.tensor]
        dropped = frozenset({saved.tensor})
        decisions = Decisions(dropped=dropped, evicted=space.closed(gaps[::2], dropped))
        again = decisions_of(space, residency_of(space, decisions))
        assert again.dropped == decisions.dropped
        first, second = residency_of(space, decisions), residency_of(space, again)
        assert first.evicted == second.evicted
        assert first.live.tolist() == second.live.tolist()


BOUNDED = {"chain": chain(4), "fan": fan(2), "random 1": random_graph(5, 1), "random 2": random_graph(5, 2)}


@pytest.mark.parametrize("forward", BOUNDED.values(), ids=BOUNDED)
def test_the_lower_bound_is_under_the_optimum(forward: Forward) -> None:
    """The lower bound on all plans of the step is under the optimum of the space."""
    step = step_of(forward, seed=2)
    costs, space = step_costs(step, DEVICE), make_space(step, DEVICE)
    for budget in budgets(step, keep_all_candidate(step, costs).body.arena_bytes, 3):
        bound = lower_bound_us(step, DEVICE, budget)
        assert bound <= solved(space, Realiser(space=space, costs=costs, budget=budget)).time_us
