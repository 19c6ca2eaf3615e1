"""Large steps: drafts of checkpoints, placed below the budget; the same chains as of small steps, planned as large."""

from __future__ import annotations

import pytest
from tests_support import MIB, tall

from snplan.analysis.floor import floor
from snplan.analysis.index import IndexedStep
from snplan.cost.device import load_device
from snplan.passes import large as module
from snplan.passes import search as searching
from snplan.passes.large import LargeStep
from snplan.passes.realise import Candidate, step_costs
from snplan.passes.search import Search, keep_all_candidate

LAYERS = 24


def planned(step: IndexedStep, budget: int, host_limit: int | None = None) -> Candidate | None:
    costs = step_costs(step, load_device("h200"))
    everything = keep_all_candidate(step, costs)
    peak = int(everything.layout.residency.live.max())
    least = floor(step).bytes
    large = LargeStep(step=step, costs=costs, budget=budget, least=least, peak=peak, host_limit=host_limit)
    return large.plan()


@pytest.mark.parametrize("us", [5, 100])
def test_every_budget_from_the_floor_up_is_met(us: int) -> None:
    step = tall(LAYERS, us)
    for budget in range(floor(step).bytes, (LAYERS + 3) * MIB, MIB):
        found = planned(step, budget)
        assert found is not None
        assert found.arena_bytes == found.body.arena_bytes <= budget
        assert found.step_us >= sum(step.cost)


def test_what_a_fast_link_moves_is_not_recomputed() -> None:
    found = planned(tall(LAYERS, 1000), 12 * MIB)
    assert found is not None
    assert found.schedule.recompute_us() == 0
    assert found.layout.offloads


def test_what_a_slow_link_cannot_move_is_recomputed() -> None:
    found = planned(tall(LAYERS, 5), 12 * MIB)
    assert found is not None
    assert found.schedule.recompute_us() > 0


def test_without_host_memory_everything_is_recomputed() -> None:
    found = planned(tall(LAYERS, 1000), 16 * MIB, host_limit=0)
    assert found is not None
    assert found.body.host_arena_bytes == 0
    assert found.schedule.recompute_us() > 0


def test_the_search_plans_steps_above_the_size_so(monkeypatch: pytest.MonkeyPatch) -> None:
    step = tall(LAYERS, 100)
    costs = step_costs(step, load_device("h200"))
    monkeypatch.setattr(searching, "LARGE_STEP", 10)
    found = Search(step=step, costs=costs, budget=8 * MIB, floor=floor(step)).run(keep_all_candidate(step, costs))
    assert found is not None
    assert found.arena_bytes <= 8 * MIB


def test_what_fits_is_kept_without_actions_being_made() -> None:
    step = tall(LAYERS, 100)
    costs = step_costs(step, load_device("h200"))
    everything = keep_all_candidate(step, costs)
    assert everything.step_us == sum(step.cost)
    assert "body" not in vars(everything)
    assert everything.timeline.step_time_us == everything.step_us
    assert everything.body.arena_bytes == everything.arena_bytes


def test_twins_are_changed_together_where_that_saves_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for us, budget in ((5, 12), (30, 8), (100, 16)):
        step = tall(LAYERS, us)
        with_twins = planned(step, budget * MIB)
        monkeypatch.setattr(module, "TWIN_ACTIONS", 0)
        without = planned(step, budget * MIB)
        monkeypatch.undo()
        assert with_twins is not None
        assert without is not None
        assert with_twins.step_us <= without.step_us


def test_two_plans_are_the_same() -> None:
    first, second = (planned(tall(LAYERS, 30), 8 * MIB) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.body == second.body
