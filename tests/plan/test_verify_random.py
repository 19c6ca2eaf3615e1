"""The verifier against random sound plans, single edits of them, and oracles that work otherwise."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Judge as OutsideJudge
from hypothesis import given, settings
from hypothesis import strategies as st
from property.edits import Raw, edits, plan_of, raw
from property.plans import plans, random_plan
from property.races import races

from snplan.plan.model import StepPlan
from snplan.plan.verify import verify

Judge = Callable[[Raw], list[tuple[str, Any, str]]]


@pytest.fixture(scope="module")
def judge(judge: OutsideJudge) -> Judge:
    """Findings of the shared folder's checker, which shares no code with this project; a crash is a finding."""

    def findings(data: Raw) -> list[tuple[str, Any, str]]:
        try:
            found: list[tuple[str, Any, str]] = judge(data)[0]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            return [("F", "plan", repr(error))]
        return found

    return findings


@given(plan=plans())
def test_sound_plans_have_no_findings(plan: StepPlan) -> None:
    assert races(plan) == []
    assert verify(plan) == []


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_judge_agrees_on_sound_plans(judge: Judge, start: int) -> None:
    for seed in range(start, start + 100):
        plan = random_plan(random.Random(seed))
        assert verify(plan) == []
        assert judge(raw(plan)) == []


def disagreements(judge: Judge, seed: int, share: int) -> list[str]:
    """Edits that the judge refuses and the verifier does not; one edit in `share` is tried."""
    plan = random_plan(random.Random(seed))
    chosen = (edit for i, edit in enumerate(edits(plan)) if (i + seed) % share == 0)
    return [what for what, data in chosen if judge(data) and not verify(plan_of(data), limit=1)]


@pytest.mark.parametrize("seed", range(40))
def test_what_the_judge_refuses_is_refused(judge: Judge, seed: int) -> None:
    assert disagreements(judge, seed, share=47) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 106))
def test_what_the_judge_refuses_is_refused_for_all_edits(judge: Judge, seed: int) -> None:
    assert disagreements(judge, seed, share=1) == []


def with_edges(plan: StepPlan, keep: Callable[[int, int], bool]) -> StepPlan:
    """The plan with only the `after` edges (of action, to action) that are kept."""
    data = raw(plan)
    for i, action in enumerate(data["actions"]):
        if "after" in action:
            action["after"] = [edge for edge in action["after"] if keep(i, edge)]
    return plan_of(data)


@pytest.mark.parametrize("seed", range(30))
def test_a_dropped_edge_is_found_exactly_where_it_makes_a_race(seed: int) -> None:
    plan = random_plan(random.Random(seed))
    pairs = [(i, edge) for i, action in enumerate(raw(plan)["actions"]) for edge in action.get("after", [])]
    for pair in random.Random(seed).sample(pairs, min(len(pairs), 20)):
        edited = with_edges(plan, lambda i, edge, pair=pair: (i, edge) != pair)  # type: ignore[misc]
        assert {finding.rule for finding in verify(edited)} == ({"R"} if races(edited) else set())


@given(plan=plans(), rng=st.randoms(use_true_random=False), kept=st.sampled_from((0.0, 0.5, 0.9)))
@settings(max_examples=50)
def test_dropped_edges_are_found_exactly_where_they_make_races(plan: StepPlan, rng: random.Random, kept: float) -> None:
    edited = with_edges(plan, lambda i, edge: rng.random() < kept)
    found = {finding.where for finding in verify(edited)}
    first_racing = {f"action {later}" for _, later in races(edited)[:1]}
    assert first_racing <= found
    assert bool(found) == bool(first_racing)


def leaves(value: Any) -> list[tuple[Any, Any]]:
    """Every place in plain data that holds a number, a text or nothing: its container and key."""
    rest, found = [value], []
    while rest:
        item = rest.pop()
        pairs = item.items() if isinstance(item, dict) else enumerate(item)
        for key, inner in pairs:
            if isinstance(inner, dict | list):
                rest.append(inner)
            elif key not in ("kind", "format"):
                found.append((item, key))
    return found


@given(plan=plans(), rng=st.randoms(use_true_random=False), count=st.integers(1, 6))
@settings(max_examples=200)
def test_any_edit_gives_findings_and_no_error(plan: StepPlan, rng: random.Random, count: int) -> None:
    data = copy.deepcopy(raw(plan))
    places = leaves({key: data[key] for key in data if key not in ("model", "options", "device", "snplan_version")})
    for container, key in rng.sample(places, count):
        old = container[key]
        if isinstance(old, str):
            container[key] = rng.choice(("", "x0", "y0", "w0:next", "f0", "u_w0", "forward", "no such name"))
        elif isinstance(old, int):
            container[key] = rng.choice((-1, 0, 1, old + 1, old - 1, 2 * old, -old, 10**30, -(10**30)))
    for finding in verify(plan_of(data)):
        assert finding.message
        assert finding.rule in "FSALVORPE"


@given(
    kinds=st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 30), max_size=3)), max_size=30),
)
def test_edges_that_point_back_never_deadlock(kinds: list[tuple[int, list[int]]]) -> None:
    """Streams that run their actions in order finish: the first unfinished action of all never waits for long."""
    after = [[edge for edge in edges if edge < i] for i, (_, edges) in enumerate(kinds)]
    queues = [[i for i, (stream, _) in enumerate(kinds) if stream == s] for s in range(3)]
    done: set[int] = set()
    while any(queues):
        ready = [queue for queue in queues if queue and done.issuperset(after[queue[0]])]
        assert ready
        done.add(ready[-1].pop(0))
    assert len(done) == len(kinds)
