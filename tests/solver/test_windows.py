"""Windows over a step that is too large for the whole space: better plans, and an interrupt that keeps the best."""

from __future__ import annotations

from solver.steps import budgets, random_graph, slow_link, step_of

from snplan.passes.realise import step_costs
from snplan.passes.refine import Realiser
from snplan.passes.search import keep_all_candidate
from snplan.solver.refine import EXACT_UP_TO, Outcome, refine
from snplan.solver.space import Decisions, make_space

DEVICE = slow_link()
STEP = step_of(random_graph(44, 3), seed=5)
COSTS, SPACE = step_costs(STEP, DEVICE), make_space(STEP, DEVICE)
BUDGET = budgets(STEP, keep_all_candidate(STEP, COSTS).body.arena_bytes, 2)[1]


def searched(realiser: Realiser, plans: int) -> tuple[Outcome, int]:
    """The outcome of a search from the plan that keeps nothing, interrupted after `plans` plans; the start's time."""
    start = Decisions(evicted=SPACE.closed(range(len(SPACE.gaps)), frozenset()))
    first = realiser.evaluate(start)
    assert first is not None
    tried = 0

    def evaluate(decisions: Decisions) -> int | None:
        nonlocal tried
        tried += 1
        return realiser.evaluate(decisions)

    found = refine(
        SPACE,
        BUDGET,
        (start, first),
        evaluate,
        realiser.live,
        seconds=120.0,
        solve_seconds=60.0,
        interrupted=lambda: tried >= plans,
    )
    return found, first


def test_windows_improve_a_plan_and_an_interrupt_keeps_it() -> None:
    assert len(STEP.ops) > EXACT_UP_TO
    realiser = Realiser(space=SPACE, costs=COSTS, budget=BUDGET)
    found, first = searched(realiser, plans=1)
    assert found.status == "interrupted"
    assert found.evaluated == 1
    assert found.time_us < first
    assert realiser.best is not None
    assert realiser.best.step_us == found.time_us
    assert realiser.best.body.arena_bytes <= BUDGET


def test_the_best_decisions_are_those_that_were_realised() -> None:
    """Evaluating the decisions of the outcome again gives its time."""
    found, _ = searched(Realiser(space=SPACE, costs=COSTS, budget=BUDGET), plans=1)
    assert Realiser(space=SPACE, costs=COSTS, budget=BUDGET).evaluate(found.decisions) == found.time_us
