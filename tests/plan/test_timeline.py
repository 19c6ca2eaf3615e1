"""Timelines of the sample, worked out by hand, and of random plans, against plain recounts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from plan_sample import SAMPLE
from property.edits import plan_of, raw
from property.plans import plans

from snplan.plan.index import index_plan
from snplan.plan.model import Alloc, Free, Offload, Prefetch, Recompute, Run, StepPlan
from snplan.plan.stays import Stay, actions_with_writes, stays
from snplan.plan.text import from_text
from snplan.plan.timeline import (
    BREAKDOWN,
    Held,
    binding_op,
    breakdown,
    copied_bytes,
    count_actions,
    kind_of,
    live_at_start,
    live_bytes,
    live_set,
    peak_moment,
)

PLAN = from_text(SAMPLE)


def test_index_finds_rows() -> None:
    index = index_plan(PLAN)
    assert index.plan is PLAN
    assert index.tensors["loss"].bytes == 4
    assert index.ops["drop"].rng == 7
    assert index.buffers[5].offset == 4096
    assert index.slots[1].offset == 1024


def test_kinds() -> None:
    assert [kind_of(action) for action in PLAN.actions[:6]] == ["alloc", "alloc", "algorithm", "run", "free", "offload"]
    assert count_actions(PLAN) == {
        "alloc": 7,
        "free": 6,
        "run": 6,
        "recompute": 1,
        "algorithm": 1,
        "offload": 2,
        "prefetch": 2,
    }


def test_copied_bytes_are_exact() -> None:
    assert copied_bytes(PLAN) == (2048, 2048)
    data = raw(PLAN)
    data["tensors"][3].update(shape=[255], bytes=1020)  # y: no rounding to the granule
    assert copied_bytes(plan_of(data)) == (2044, 2044)


def test_live_bytes_of_the_sample() -> None:
    assert live_at_start(PLAN) == 2048  # x and w; m is on the host
    assert live_bytes(PLAN) == [
        *(3072, 3584, 3584, 3584, 3072, 3072),  # y, workspace; 4: workspace freed
        *(4096, 4096, 3072, 3584, 3584, 2560),  # z; 8: y freed; 9: loss; 11: z freed
        *(3584, 3584, 4608, 4608, 4608, 4608),  # 12: y again; 14: z again
        *(3584, 4608, 4608, 4608, 4608, 3584, 2560),  # 18: y freed; 19: m; the end
    ]
    assert peak_moment(PLAN) == 14


def test_peak_before_the_first_action() -> None:
    plan = plan_of({**raw(PLAN), "actions": []})
    assert (peak_moment(plan), live_bytes(plan)) == (-1, [])
    assert [row.tensor for row in live_set(plan, -1)] == ["x", "w"]


@pytest.mark.parametrize(
    ("moment", "op"),
    [(-1, "mul"), (3, "mul"), (4, "drop"), (8, "sum"), (14, "drop"), (16, "z_grad"), (21, "update"), (24, "update")],
)
def test_op_that_a_moment_is_for(moment: int, op: str) -> None:
    assert binding_op(PLAN, moment) == op


def test_no_op_without_executions() -> None:
    assert binding_op(plan_of({**raw(PLAN), "actions": []}), -1) is None


def named(moment: int) -> dict[int, tuple[str | None, str]]:
    """Tensor and group of each live buffer."""
    return {row.buffer: (row.tensor, row.group) for row in live_set(PLAN, moment)}


def test_live_set_at_the_peak() -> None:
    assert live_set(PLAN, 14) == [
        Held(buffer=0, tensor="x", bytes=1024, group="inputs"),
        Held(buffer=1, tensor="w", bytes=1024, group="parameters"),
        Held(buffer=6, tensor="y", bytes=1024, group="activations"),
        Held(buffer=7, tensor="z", bytes=1024, group="activations"),
        Held(buffer=5, tensor="loss", bytes=512, group="other"),
    ]


def test_live_sets_over_time() -> None:
    start = {0: ("x", "inputs"), 1: ("w", "parameters")}
    assert named(-1) == start
    # Allocated buffers count for what they are for: b2 for y, b3 as workspace.
    assert named(0) == {**start, 2: ("y", "activations")}
    assert named(1) == {**start, 2: ("y", "activations"), 3: (None, "workspace")}
    assert named(4) == {**start, 2: ("y", "activations")}
    assert named(16)[7] == ("z:grad", "gradients")
    assert named(17)[7] == ("w:grad", "gradients")
    assert named(19)[8] == ("m", "optimizer")
    assert named(21)[1] == ("w:next", "parameters")
    assert named(24) == {0: ("x", "inputs"), 1: ("w:next", "parameters"), 5: ("loss", "other")}


def test_buffers_that_nothing_uses() -> None:
    data = raw(PLAN)
    data["buffers"].append({"id": 9, "offset": 8192, "bytes": 512})
    data["actions"] += [{"kind": "alloc", "buffer": 9}, {"kind": "free", "buffer": 9}]
    plan = plan_of(data)
    assert Held(buffer=9, tensor=None, bytes=512, group="other") in live_set(plan, 25)
    assert all(row.buffer != 9 for row in live_set(plan, 26))


def test_breakdown_of_the_peak() -> None:
    assert breakdown(live_set(PLAN, 14)) == {
        "parameters": 1024,
        "gradients": 0,
        "optimizer": 0,
        "activations": 2048,
        "inputs": 1024,
        "workspace": 0,
        "other": 512,
    }
    assert breakdown(live_set(PLAN, 2))["workspace"] == 512
    assert tuple(breakdown([])) == BREAKDOWN


def test_stays_of_the_sample() -> None:
    found = stays(PLAN)
    assert found["x"] == [Stay(start=-1, end=25, buffer=0)]
    assert found["w"] == [Stay(start=-1, end=21, buffer=1)]
    assert found["w:next"] == [Stay(start=21, end=25, buffer=1)]
    assert found["y"] == [
        Stay(start=3, end=8, buffer=2),
        Stay(start=5, end=14, slot=1),  # last copied from by action 13
        Stay(start=13, end=18, buffer=6),
    ]
    assert found["z"] == [Stay(start=7, end=11, buffer=4), Stay(start=15, end=16, buffer=7)]
    assert found["z:grad"] == [Stay(start=16, end=17, buffer=7)]
    assert found["m"] == [Stay(start=-1, end=21, slot=0), Stay(start=20, end=21, buffer=8)]
    assert found["m:next"] == [Stay(start=21, end=24, buffer=8), Stay(start=22, end=25, slot=0)]
    assert found["loss"] == [Stay(start=10, end=25, buffer=5)]
    assert list(found) == [row.name for row in PLAN.tensors]


def test_writes_of_actions() -> None:
    writes = [found for _, found in actions_with_writes(PLAN)]
    assert writes[3] == [(3, None), (2, "y")]  # the workspace first
    assert writes[5] == []
    assert writes[13] == [(6, "y")]
    assert writes[21] == [(1, "w:next"), (8, "m:next")]


@given(plan=plans())
@settings(max_examples=20)
def test_peaks_and_breakdowns_add_up(plan: StepPlan) -> None:
    profile = [live_at_start(plan), *live_bytes(plan)]
    assert max(profile) == plan.peak_live_bytes
    moment = peak_moment(plan)
    assert profile[moment + 1] == plan.peak_live_bytes
    assert max(profile[: moment + 1], default=0) < plan.peak_live_bytes
    for at in range(-1, len(plan.actions)):
        assert sum(breakdown(live_set(plan, at)).values()) == profile[at + 1]


@given(plan=plans())
@settings(max_examples=20)
def test_live_sets_are_what_was_allocated(plan: StepPlan) -> None:
    live = {place.buffer for place in plan.resident if place.buffer is not None}
    for at, action in enumerate(plan.actions):
        if isinstance(action, Alloc):
            live.add(action.buffer)
        elif isinstance(action, Free):
            live.remove(action.buffer)
        held = live_set(plan, at)
        assert {row.buffer for row in held} == live
        assert [row.bytes for row in held] == sorted((row.bytes for row in held), reverse=True)


@given(plan=plans())
def test_every_read_falls_into_a_stay(plan: StepPlan) -> None:
    found = stays(plan)
    for at, action in enumerate(plan.actions):
        reads: list[tuple[str, int | None, int | None]] = []
        if isinstance(action, Run | Recompute):
            reads = [(tensor, buffer, None) for tensor, buffer in action.reads]
        elif isinstance(action, Offload):
            reads = [(action.tensor, action.buffer, None)]
        elif isinstance(action, Prefetch):
            reads = [(action.tensor, None, action.slot)]
        for tensor, buffer, slot in reads:
            places = [stay for stay in found[tensor] if (stay.buffer, stay.slot) == (buffer, slot)]
            assert sum(stay.start < at <= stay.end for stay in places) == 1
    for place in plan.outputs:
        last = [stay for stay in found[place.tensor] if (stay.buffer, stay.slot) == (place.buffer, place.slot)][-1]
        assert last.end == len(plan.actions)


@given(plan=plans())
def test_stays_in_one_place_follow_one_another(plan: StepPlan) -> None:
    places: dict[tuple[int | None, int | None], list[Stay]] = {}
    for rows in stays(plan).values():
        assert rows == sorted(rows, key=lambda stay: stay.start)
        for stay in rows:
            assert stay.start < stay.end
            assert (stay.buffer is None) != (stay.slot is None)
            places.setdefault((stay.buffer, stay.slot), []).append(stay)
    for rows in places.values():
        rows.sort(key=lambda stay: stay.start)
        assert all(one.end <= other.start for one, other in pairwise(rows))
