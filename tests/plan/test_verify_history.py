"""Races with accesses that are long past, and bytes that change hands in odd ways."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from property.plans import op, tensor

from snplan.plan.model import (
    FORMAT,
    Action,
    Alloc,
    Extent,
    Free,
    ModelRef,
    Offload,
    Place,
    PlanOp,
    PlanTensor,
    Prefetch,
    Run,
    StepPlan,
)
from snplan.plan.verify import verify


def build(
    actions: Sequence[Action],
    buffers: Sequence[tuple[int, int]],
    *,
    ops: Sequence[PlanOp],
    slots: Sequence[tuple[int, int]] = (),
    peak: int,
    resident: Sequence[Place] = (Place(tensor="x", buffer=0),),
) -> StepPlan:
    """A plan of 512-byte tensors: x is the input, the ops' outputs are activations; extents are (offset, bytes)."""
    names = ["x", *(name for row in ops for name in row.outputs)]
    tensors: list[PlanTensor] = [tensor(name, 128, "input" if name == "x" else "activation") for name in names]
    return StepPlan(
        format=FORMAT,
        snplan_version="0.1.0",
        model=ModelRef(sha256="0" * 64, name="m.onnx"),
        options={},
        device={"name": "test", "capacity_bytes": 1 << 30},
        budget_bytes=1 << 20,
        reserve_bytes=0,
        arena_bytes=max(offset + size for offset, size in buffers),
        peak_live_bytes=peak,
        host_arena_bytes=max((offset + size for offset, size in slots), default=0),
        step_time_us=0,
        lower_bound_us=0,
        floor_bytes=0,
        tensors=tensors,
        ops=list(ops),
        buffers=[Extent(id=i, offset=offset, bytes=size) for i, (offset, size) in enumerate(buffers)],
        slots=[Extent(id=i, offset=offset, bytes=size) for i, (offset, size) in enumerate(slots)],
        resident=list(resident),
        persistent=[],
        outputs=[],
        actions=list(actions),
    )


def run(name: str, read: tuple[str, int], write: tuple[str, int], *after: int) -> Run:
    """An op that reads one tensor and writes one."""
    return Run(op=name, reads=[read], writes=[write], after=list(after))


def rules(plan: StepPlan) -> list[tuple[str, str]]:
    """Rule and place of each finding."""
    return [(finding.rule, finding.where) for finding in verify(plan)]


@pytest.mark.parametrize("waits", [True, False])
def test_a_copy_that_many_reads_followed(waits: bool) -> None:
    """The offload of y is still under way when, 100 reads of y later, other bytes are written where y was."""
    count = 100
    ops = [op("f", "relu", "forward", ["x"], ["y"])]
    ops += [op(f"r{i}", "relu", "forward", ["y"], [f"t{i}"]) for i in range(count)]
    actions: list[Action] = [Alloc(buffer=1), Alloc(buffer=2), run("f", ("x", 0), ("y", 1))]
    actions.append(Offload(tensor="y", buffer=1, slot=0, after=[2]))
    actions += [run(f"r{i}", ("y", 1), (f"t{i}", 2)) for i in range(count - 1)]
    last = run(f"r{count - 1}", ("y", 1), (f"t{count - 1}", 1), *([3] if waits else []))
    actions += [last, Free(buffer=1), Free(buffer=2)]
    plan = build(actions, [(0, 512), (512, 512), (1024, 512)], ops=ops, slots=[(0, 512)], peak=1536)
    assert rules(plan) == ([] if waits else [("R", f"action {len(actions) - 3}")])


@pytest.mark.parametrize("waits", [True, False])
def test_bytes_that_an_unused_buffer_held_in_between(waits: bool) -> None:
    """A buffer that lives and dies without an access hides nothing, and spreads no history to its other bytes."""
    ops = [op("f", "relu", "forward", ["x"], ["y"]), op("g", "relu", "forward", ["x"], ["z"])]
    actions: list[Action] = [
        Alloc(buffer=1),
        run("f", ("x", 0), ("y", 1)),
        Offload(tensor="y", buffer=1, slot=0, after=[1]),
        Free(buffer=1),
        Alloc(buffer=2),
        Free(buffer=2),
        Alloc(buffer=3),
        Alloc(buffer=4),
        Prefetch(tensor="y", slot=0, buffer=4, after=[2]),
        run("g", ("x", 0), ("z", 3), *([2] if waits else [])),
        Free(buffer=3),
        Free(buffer=4),
    ]
    # Buffer 2 covers buffer 1 and the bytes after it, where buffer 4 has no one to wait for but its slot.
    buffers = [(0, 512), (512, 512), (512, 1024), (512, 512), (1024, 512)]
    plan = build(actions, buffers, ops=ops, slots=[(0, 512)], peak=1536)
    assert rules(plan) == ([] if waits else [("R", "action 9")])


@pytest.mark.parametrize("waits", [(7, 3), (7,), (3,), ()])
def test_a_buffer_over_the_bytes_of_two_waits_for_both(waits: tuple[int, ...]) -> None:
    ops = [op("f", "relu", "forward", ["x"], ["y"]), op("g", "relu", "forward", ["x"], ["z"])]
    ops.append(op("h", "relu", "forward", ["x"], ["t"]))
    actions: list[Action] = [
        Alloc(buffer=1),
        Alloc(buffer=2),
        run("f", ("x", 0), ("y", 1)),
        Offload(tensor="y", buffer=1, slot=0, after=[2]),
        run("g", ("x", 0), ("z", 2)),
        Free(buffer=1),
        Alloc(buffer=3),
        Prefetch(tensor="y", slot=0, buffer=3, after=[3]),
        Free(buffer=3),
        Free(buffer=2),
        Alloc(buffer=4),
        run("h", ("x", 0), ("t", 4), *waits),
        Free(buffer=4),
    ]
    # Buffer 4 covers buffer 1 = buffer 3 (read by offload 3, then written by prefetch 7, which waits for 3) and 2.
    buffers = [(0, 512), (512, 512), (1024, 512), (512, 512), (512, 1024)]
    plan = build(actions, buffers, ops=ops, slots=[(0, 512)], peak=1536)
    assert rules(plan) == ([] if 7 in waits else [("R", "action 11")])


@pytest.mark.parametrize("waits", [True, False])
def test_slots_that_share_bytes_one_after_another(waits: bool) -> None:
    """A slot's bytes are given to another one: allowed once the first has been read, and after that read."""
    ops = [op("f", "relu", "forward", ["x"], ["y"])]
    actions: list[Action] = [
        Offload(tensor="x", buffer=0, slot=0, after=[]),
        Alloc(buffer=1),
        Prefetch(tensor="x", slot=0, buffer=1, after=[0]),
        Alloc(buffer=2),
        run("f", ("x", 1), ("y", 2), 2),
        Offload(tensor="x", buffer=0, slot=1, after=[2] if waits else []),
        Free(buffer=1),
        Free(buffer=2),
    ]
    buffers = [(0, 512), (512, 512), (1024, 512)]
    plan = build(actions, buffers, ops=ops, slots=[(0, 1024), (512, 512)], peak=1536)
    assert rules(plan) == ([] if waits else [("R", "action 5")])


def test_a_slot_loses_its_value_to_an_overlapping_one() -> None:
    ops = [op("f", "relu", "forward", ["x"], ["y"])]
    actions: list[Action] = [
        Offload(tensor="x", buffer=0, slot=0, after=[]),
        Alloc(buffer=1),
        run("f", ("x", 0), ("y", 1)),
        Offload(tensor="y", buffer=1, slot=1, after=[2]),
        Prefetch(tensor="x", slot=0, buffer=0, after=[3, 2]),
        Free(buffer=1),
    ]
    plan = build(actions, [(0, 512), (512, 512)], ops=ops, slots=[(0, 1024), (512, 512)], peak=1024)
    assert [str(finding) for finding in verify(plan)] == [
        "V at action 4: prefetch reads x from slot 0, which holds nothing"
    ]


def test_a_reborn_buffer_holds_nothing() -> None:
    """The bytes are still there, but the plan may not count on them."""
    ops = [op("f", "relu", "forward", ["x"], ["y"]), op("g", "relu", "forward", ["y"], ["z"])]
    actions: list[Action] = [
        Alloc(buffer=1),
        run("f", ("x", 0), ("y", 1)),
        Free(buffer=1),
        Alloc(buffer=1),
        Alloc(buffer=2),
        run("g", ("y", 1), ("z", 2)),
        Free(buffer=1),
        Free(buffer=2),
    ]
    plan = build(actions, [(0, 512), (512, 512), (1024, 512)], ops=ops, peak=1536)
    assert rules(plan) == [("V", "action 5")]


def test_a_freed_buffer_lends_its_name_to_no_one() -> None:
    """Buffer 1 is written, freed, its bytes used through buffer 2; buffer 1 is live again with what 2 left there."""
    ops = [op("f", "relu", "forward", ["x"], ["y"]), op("g", "relu", "forward", ["x"], ["z"])]
    ops.append(op("h", "relu", "forward", ["z"], ["t"]))
    actions: list[Action] = [
        Alloc(buffer=1),
        run("f", ("x", 0), ("y", 1)),
        Free(buffer=1),
        Alloc(buffer=2),
        run("g", ("x", 0), ("z", 2)),
        Free(buffer=2),
        Alloc(buffer=1),
        Alloc(buffer=3),
        run("h", ("z", 1), ("t", 3)),
        Free(buffer=1),
        Free(buffer=3),
    ]
    plan = build(actions, [(0, 512), (512, 512), (512, 512), (1024, 512)], ops=ops, peak=1536)
    assert [str(finding) for finding in verify(plan)] == ["V at action 8: h reads z from buffer 1, which holds nothing"]


def test_an_empty_step_is_sound() -> None:
    plan = build([], [(0, 512)], ops=[], peak=512)
    assert rules(plan) == []


def test_tensors_without_elements_take_a_buffer() -> None:
    rows = [op("f", "relu", "forward", ["x"], ["y"])]
    plan = build(
        [Alloc(buffer=1), run("f", ("x", 0), ("y", 1)), Free(buffer=1)], [(0, 512), (512, 512)], ops=rows, peak=1024
    )
    empty = [PlanTensor(name="x", dtype="float32", shape=[0, 7], bytes=0, role="input"), tensor("y", 128, "activation")]
    fields = {name: getattr(plan, name) for name in StepPlan.__struct_fields__}
    assert verify(StepPlan(**{**fields, "tensors": empty})) == []


def test_many_actions_that_touch_many_ranges() -> None:
    """A large buffer over thousands of small ones, over and over: each round stays cheap, none is missed."""
    small = 2000
    buffers = [(0, 512), *((512 * (i + 1), 512) for i in range(small)), (512, 512 * small)]
    rows: list[PlanOp] = []
    actions: list[Action] = []
    for turn in range(10):
        for i in range(1, small + 1):
            actions += [Alloc(buffer=i), Free(buffer=i)]
        rows.append(op(f"f{turn}", "relu", "forward", ["x"], [f"y{turn}"]))
        actions += [Alloc(buffer=small + 1), run(f"f{turn}", ("x", 0), (f"y{turn}", small + 1)), Free(buffer=small + 1)]
    plan = build(actions, buffers, ops=rows, peak=512 * (small + 1))
    assert rules(plan) == []
