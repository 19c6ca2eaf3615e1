"""Drafts that need little of the host, the plans made of them, and arenas that are lowered at the end."""

from __future__ import annotations

import pytest
from tests_support import MIB, tall

from snplan.analysis.floor import floor
from snplan.analysis.schedule import build_schedule, saved_tensors
from snplan.cost.device import load_device
from snplan.passes.lean import lean_drafts
from snplan.passes.lower import lowered
from snplan.passes.realise import finish, step_costs
from snplan.passes.search import Search, keep_all_candidate
from snplan.passes.trials import Trials

LAYERS = 10


def test_between_checkpoints_layers_run_anew_for_each_reader_or_once() -> None:
    step = tall(8, us=1)
    saved = frozenset(saved_tensors(step))
    again = [build_schedule(step, saved - d.dropped, d.transient).recompute_us() for d in lean_drafts(step)]
    # kept, of t1 to t8: all but the last; t1, t3, t5, t7 (anew, shared); t1, t5 (3+2+1 twice, 3 twice); t1; nothing
    assert again == [1, 4, 4, 12, 6, 28, 7, 36]


@pytest.mark.parametrize("layers", [LAYERS, 14])
def test_without_a_host_more_is_recomputed_as_the_budget_falls(layers: int) -> None:
    step = tall(layers)
    costs = step_costs(step, load_device("h200"))
    found = []
    for budget in range(floor(step).bytes + MIB, layers * MIB, MIB):  # the floor has no room for the input
        search = Search(step=step, costs=costs, budget=budget, floor=floor(step), host_limit=0)
        best = search.run(keep_all_candidate(step, costs))
        assert best is not None
        assert best.body.host_arena_bytes == 0
        assert best.arena_bytes <= budget
        assert search.host_needed is None
        found.append(best.step_us)
    assert found == sorted(found, reverse=True)


def test_the_least_that_was_asked_for_is_said() -> None:
    step = tall(LAYERS)
    costs = step_costs(step, load_device("h200"))
    search = Search(step=step, costs=costs, budget=floor(step).bytes, floor=floor(step), host_limit=0)
    assert search.run(keep_all_candidate(step, costs)) is None
    assert search.host_needed == 512  # the input: all else is made again from it


def test_trials_say_whether_the_host_suffices() -> None:
    step = tall(LAYERS)
    costs = step_costs(step, load_device("h200"))
    trials = Trials(step=step, costs=costs, target=5 * MIB, allowance=10**6, host_limit=MIB)
    drafts = list(lean_drafts(step))
    assert not trials.host_suffices()
    trials.time(drafts[0])
    assert not trials.host_suffices()
    assert trials.host_needed() > MIB
    trials.time(drafts[-1])
    assert trials.host_suffices()


def test_a_wasteful_arena_is_lowered_to_its_live_bytes() -> None:
    step = tall(LAYERS)
    costs = step_costs(step, load_device("h200"))
    everything = keep_all_candidate(step, costs)
    stacked, top = [], 0
    for buffer in everything.layout.buffers:
        stacked.append(top)
        top += buffer.size
    wasteful = finish(everything.layout, stacked, costs)
    found = lowered(wasteful, costs)
    assert wasteful.arena_bytes > everything.arena_bytes
    assert found.arena_bytes == found.body.peak_live_bytes == everything.body.peak_live_bytes
    assert found.step_us == wasteful.step_us
    assert lowered(found, costs) is found
