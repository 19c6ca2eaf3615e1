"""Drafts, their changes and the search: small steps whose best plans are known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests_support import MIB, tall, training_chain

from snplan import models
from snplan.analysis.floor import floor
from snplan.analysis.index import IndexedStep
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import build_schedule
from snplan.compiler import CompileOptions, Prepared, plan_prepared, prepare
from snplan.cost.device import load_device
from snplan.frontend import load_model
from snplan.passes import trials as trials_module
from snplan.passes.evict import fit
from snplan.passes.improve import Draft, dearest, filled, lightened, losses, relieved, taken_back
from snplan.passes.realise import Costs, sketch, step_costs
from snplan.passes.search import WIN_BACK, Search, keep_all_candidate
from snplan.passes.slots import slot_bytes
from snplan.passes.trials import MOST_LOSS, Trials


def costs_of(step: IndexedStep) -> Costs:
    return step_costs(step, load_device("h200"))


def search(step: IndexedStep, budget: int, host_limit: int | None = None) -> Search:
    """A finished search."""
    costs = costs_of(step)
    found = Search(step=step, costs=costs, budget=budget, floor=floor(step), host_limit=host_limit)
    found.run(keep_all_candidate(step, costs))
    return found


def test_copies_that_hide_cost_nothing() -> None:
    best = search(tall(10), 6 * MIB).best
    assert best is not None
    assert best.step_us == 20 * 100
    assert best.schedule.recompute_us() == 0
    assert best.layout.offloads


def test_without_host_memory_the_step_is_recomputed() -> None:
    found = search(tall(10), 7 * MIB, host_limit=0)
    assert found.best is not None
    assert not found.best.layout.offloads
    assert 0 < found.best.schedule.recompute_us() <= 10 * 100


def test_a_host_limit_is_met_by_dropping_more() -> None:
    step = tall(12, us=10)
    free = search(step, 6 * MIB).best
    assert free is not None
    limit = free.body.host_arena_bytes // 2
    bound = search(step, 6 * MIB, host_limit=limit).best
    assert bound is not None
    assert bound.body.host_arena_bytes <= limit


def test_what_fits_no_host_is_said() -> None:
    step = tall(10)
    found = search(step, floor(step).bytes, host_limit=0)
    assert found.best is None
    assert found.host_needed is not None
    assert found.host_needed > 0


def test_candidates_from_elsewhere_compete() -> None:
    step = tall(10)
    costs = costs_of(step)
    everything = keep_all_candidate(step, costs)
    other = search(step, 6 * MIB).best
    assert other is not None
    slow = replace(other, costs=replace(costs, op_us=dict.fromkeys(costs.op_us, 10**6)))
    for extra, expected in ((other, other.step_us), (slow, other.step_us)):
        found = Search(step=step, costs=costs, budget=6 * MIB, floor=floor(step), extra=[extra])
        chosen = found.run(everything)
        assert chosen is not None
        assert chosen.step_us <= expected


def test_every_budget_from_the_floor_up_is_met_within_it() -> None:
    step = tall(8, us=20)
    lowest = floor(step).bytes
    for budget in range(lowest, 10 * MIB, MIB // 2):
        best = search(step, budget).best
        assert best is not None
        assert best.body.arena_bytes <= budget


def test_stalls_name_the_position_that_had_no_room() -> None:
    step = tall(8, us=1)
    costs = costs_of(step)
    found = sketch(build_schedule(step), 4 * MIB, costs)
    assert found is not None
    waiting = losses(found, costs, 4 * MIB)
    assert waiting
    assert waiting == sorted(waiting, key=lambda loss: (-loss.us, loss.position))
    assert all(0 <= loss.pinch <= loss.position for loss in waiting)
    assert all(loss.shortage == costs.sent_bytes(loss.us) for loss in waiting)


def test_changes_drop_across_a_stall_and_take_back() -> None:
    step, draft = tall(8, us=1), Draft()
    costs = costs_of(step)
    found = sketch(build_schedule(step), 4 * MIB, costs)
    assert found is not None
    near = [change for group in relieved(draft, found, costs, 4 * MIB) for change in group]
    assert near
    assert draft not in near
    assert all(change.dropped for change in near)
    dropping = max(near, key=lambda change: len(change.dropped))
    assert all(back.dropped < dropping.dropped for back in taken_back(dropping, step))
    assert dearest(dropping, step) == sorted(dropping.dropped)
    assert all(change.dropped or change.transient for change in lightened(draft, found, MIB))


def test_a_draft_changes_one_thing_at_a_time() -> None:
    draft = Draft(dropped=frozenset({1, 2}), transient=frozenset({2}))
    assert draft.keeping((2,)) == Draft(dropped=frozenset({1}))
    assert draft.dropping((3,)).dropped == {1, 2, 3}
    assert draft.refreshing((1,)).transient == {1, 2}
    assert draft.turned(7).leanings.patient == {7}
    assert draft.turned(7).turned(7) == draft


def test_a_gap_between_steps_is_not_restored() -> None:
    step = training_chain()
    residency = Residency(build_schedule(replace(step, becomes={step.names.index("x"): step.names.index("dx")})))
    source, last = residency.partner[0]
    assert residency.is_home(source, 0)
    assert residency.is_home(last, len(residency.events[last]) - 2)
    assert not residency.is_home(step.names.index("a"), 0)


def test_what_is_forbidden_to_drop_is_kept() -> None:
    step = tall(12, us=5)
    trials = Trials(step=step, costs=costs_of(step), target=6 * MIB, allowance=10**6)
    start = Draft(dropped=frozenset(step.names.index(f"t{i}") for i in range(2, 12)))
    kept = frozenset({step.names.index("t1")})
    assert kept.isdisjoint(trials.improve(start, kept).dropped)


def test_drops_that_the_budget_has_room_for_are_taken_back() -> None:
    step = tall(8)
    costs = costs_of(step)
    keep_all = int(Residency(build_schedule(step)).live.max())
    dropping = Draft(dropped=frozenset(step.names.index(f"t{i}") for i in range(1, 8, 2)))
    trials = Trials(step=step, costs=costs, target=keep_all, allowance=10**6)
    found = trials.sketch(dropping)
    assert found is not None
    assert filled(dropping, found, 2 * keep_all) == [Draft()]
    [fuller] = filled(dropping, found, keep_all)
    assert fuller.dropped < dropping.dropped
    assert trials.improve(dropping) == Draft()


def test_improving_never_ends_slower() -> None:
    step = tall(12, us=5)
    trials = Trials(step=step, costs=costs_of(step), target=6 * MIB, allowance=10**6)
    start = Draft(dropped=frozenset(step.names.index(f"t{i}") for i in range(1, 12)))
    before = trials.time(start)
    found = trials.improve(start)
    assert trials.times[found] <= before
    trials.shake()
    assert trials.times[trials.ranked()[0]] <= trials.times[found]


def stuck(step: IndexedStep, target: int) -> tuple[Search, Trials]:
    """A search and its trials for `target`, of which one draft is known: all drops but the first."""
    costs = costs_of(step)
    trials = Trials(step=step, costs=costs, target=target, allowance=10**6)
    trials.time(Draft(dropped=frozenset(step.names.index(f"t{i}") for i in range(2, 12))))
    return Search(step=step, costs=costs, budget=target, floor=floor(step)), trials


def test_drafts_of_more_and_of_less_memory_are_tried_where_much_is_lost() -> None:
    found, trials = stuck(tall(12, us=5), 6 * MIB)
    (start,) = trials.times
    before, spent = trials.times[start], trials.work
    found._swing(trials)
    assert trials.times[trials.ranked()[0]] < before
    assert trials.work > spent


def test_nothing_swings_where_little_is_lost_or_the_work_is_done() -> None:
    for allowance, us in ((0, 5), (10**6, 10**6)):
        found, trials = stuck(tall(12, us=us), 6 * MIB)
        trials.allowance = allowance
        if us > 5:
            trials.time(Draft())  # copies of 30 us hide behind ops of a second
        known = dict(trials.times)
        found._swing(trials)
        assert trials.times == known


def test_a_lower_target_at_some_positions_is_met_there() -> None:
    step = tall(8)
    residency = Residency(build_schedule(step))
    target = residency.live.copy()
    target[8:12] = 4 * MIB
    assert fit(residency, int(residency.live.max()), target)
    assert (residency.live <= target).all()


def test_trials_rank_drafts_over_the_host_limit_last() -> None:
    step = tall(10)
    trials = Trials(step=step, costs=costs_of(step), target=8 * MIB, allowance=10**6, host_limit=0)
    dropping = Draft(dropped=frozenset(step.names.index(f"t{i}") for i in range(1, 10, 2)))
    assert trials.time(dropping) < trials.time(Draft())
    assert trials.ranked() == [dropping, Draft()]
    moved = trials.sketch(Draft())
    assert moved is not None
    assert slot_bytes(moved.layout) > 0


def models_step() -> IndexedStep:
    """The step of a small convolutional network."""
    return small("resnet18").indexed


def small(name: str, width: float = 1.0) -> Prepared:
    """A small network of the zoo, prepared."""
    built = models.build(name, batch=4, light=True, image=32, width=width)
    model = load_model(built.SerializeToString(deterministic=True))
    return prepare(model, CompileOptions(budget_bytes=0, reserve_bytes=0))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_the_same_search_gives_the_same_plan(share: float) -> None:
    step = small("resnet18", width=0.25)
    high = step.everything.body.arena_bytes
    budget = step.lowest.bytes + int(share * (high - step.lowest.bytes))
    first, second = (plan_prepared(step, replace(step.options, budget_bytes=budget)).plan for _ in range(2))
    assert first == second
    assert first.arena_bytes <= budget


def test_the_benchmark_knows_its_sections(checkout: Path) -> None:
    text = (checkout / "benchmarks" / "planner.py").read_text()
    for section in ("overhead", "floor", "batch", "monotone"):
        assert f'"{section}"' in text
        assert (checkout / "benchmarks" / f"planner_{section}.py").exists()


def test_a_draft_that_others_beat_is_bounded_not_ranked() -> None:
    step = tall(8)
    trials = Trials(step=step, costs=costs_of(step), target=64 * MIB, allowance=10**6, least_us=sum(step.cost))
    assert trials.time(Draft()) == 16 * 100
    dropping = Draft(dropped=frozenset({step.names.index("t3")}))
    assert trials.time(dropping) == 17 * 100
    assert list(trials.bounds) == [dropping]
    assert trials.ranked() == [Draft()]


def test_of_drafts_that_take_the_same_time_one_is_ranked() -> None:
    step = tall(8)
    trials = Trials(step=step, costs=costs_of(step), target=64 * MIB, allowance=10**6)
    assert trials.time(Draft().turned(0)) == trials.time(Draft())
    assert len(trials.times) == 2
    assert len(trials.ranked()) == 1


def test_leanings_change_only_near_the_best_time(monkeypatch: pytest.MonkeyPatch) -> None:
    step = tall(12, us=5)
    trials = Trials(step=step, costs=costs_of(step), target=6 * MIB, allowance=10**6)
    looked: list[Draft] = []

    def none_found(draft: Draft, *_: object) -> Iterator[list[Draft]]:
        looked.append(draft)
        yield []

    monkeypatch.setattr(trials_module, "leaned", none_found)
    trials.improve(Draft(dropped=frozenset(step.names.index(f"t{i}") for i in range(1, 12))))
    trials.shake()
    best = min(trials.times.values())
    assert looked
    assert trials.time(looked[-1]) <= best * trials_module.LEAN_NEAR
    slow = Draft()
    assert trials.time(slow) > best * trials_module.LEAN_NEAR
    looked.clear()
    trials.improve(slow)
    assert slow not in looked


def test_what_fragmentation_costs_buys_sketches_for_lower_targets() -> None:
    step = tall(10)
    found = search(step, 6 * MIB)
    assert found.best is not None
    us = found.best.step_us
    assert found._trials(5 * MIB, 10).most_loss == MOST_LOSS
    assert found._trials(5 * MIB, 10, us).most_loss == 0
    assert found._trials(5 * MIB, 10, us * 99 // 100).most_loss == pytest.approx(WIN_BACK / 99)
