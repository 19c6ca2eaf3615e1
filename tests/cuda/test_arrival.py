"""Where the next step's inputs arrive: bytes that the step is done with, found as by trying all."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from cuda_fake import FakeGpu, MixedOnDevice
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.plans import plans, random_plan
from runtime_support import normal

from snplan.plan.index import index_plan
from snplan.plan.model import (
    Action,
    Algorithm,
    Alloc,
    Extent,
    Free,
    Offload,
    Persistent,
    Place,
    Prefetch,
    Recompute,
    Run,
    StepPlan,
)
from snplan.runtime.cuda.arrival import hidden_us, last_touches, late_room
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.session import TrainingSession
from snplan.runtime.values import sources

G = 512


def touched(plan: StepPlan, first: int, low: int, high: int) -> bool:
    """Whether an action from `first` on, or what lies there between two steps, touches bytes of [low, high)."""
    places: tuple[Place | Persistent, ...] = (*plan.resident, *plan.persistent, *plan.outputs)
    held = {place.buffer for place in places}
    used = {buffer for buffer, last in last_touches(plan.actions).items() if max(last.values()) >= first}
    spans = [extent for extent in plan.buffers if extent.id in held | used]
    return any(extent.offset < high and low < extent.offset + extent.bytes for extent in spans)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans(), size=st.integers(1, 8))
def test_the_first_bytes_that_are_done_with(plan: StepPlan, size: int) -> None:
    """No place of that size is free earlier, and the actions named are the last that touch the one found."""
    room = late_room(index_plan(plan), size * G)
    runs = [number for number, action in enumerate(plan.actions) if isinstance(action, (Run, Recompute))]
    starts = range(0, plan.arena_bytes - size * G + 1, G)
    after = max(room.actions, default=-1) if room else runs[-1] - 1
    if room:
        assert not touched(plan, after + 1, room.offset, room.offset + size * G)
        assert after < runs[-1]
        assert len({plan.actions[action].stream for action in room.actions}) == len(room.actions)  # type: ignore[union-attr]
    earlier = after if room else after + 1
    assert all(touched(plan, earlier, start, start + size * G) for start in starts)


def test_workspace_is_touched_by_the_op_that_it_is_for() -> None:
    """Buffers of a plan by stream; a workspace belongs to the next execution of its op alone."""
    actions: list[Action] = [
        Alloc(buffer=1),
        Algorithm(op="a", engine=16, workspace=1),
        Run(op="a", reads=[("x", 0)], writes=[("y", 2)], after=[]),
        Free(buffer=1),
        Offload(tensor="y", buffer=2, slot=0, after=[2]),
        Algorithm(op="a", engine=16, workspace=None),
        Recompute(op="a", reads=[("x", 0)], writes=[("y", 3)], after=[]),
        Prefetch(tensor="y", slot=0, buffer=2, after=[4]),
    ]
    assert last_touches(actions) == {
        0: {"compute": 6},
        1: {"compute": 2},
        2: {"compute": 2, "d2h": 4, "h2d": 7},
        3: {"compute": 6},
    }


def feeds(plan: StepPlan, number: int) -> dict[str, Any]:
    """Inputs of a step."""
    rows = sources(index_plan(plan), inputs=True)
    return {row.name: normal(*row.shape, seed=place) + number for place, row in enumerate(rows)}


def with_late_room(count: int = 1) -> list[StepPlan]:
    """Plans whose inputs arrive in bytes of the arena that ops use before."""
    found = []
    for seed in range(1000):
        plan = random_plan(random.Random(seed))
        inputs = [row.bytes for row in plan.tensors if row.role == "input"]
        there = any(place.tensor == "x0" and place.buffer is not None for place in plan.resident)
        room = late_room(index_plan(plan), sum(-(-size // G) * G for size in inputs)) if there else None
        if room and room.actions:
            found.append(plan)
        if len(found) == count:
            return found
    raise AssertionError("no such plan")


class ComputeFirst(random.Random):
    """Copies run when nothing else can."""

    def choice(self, seq: Any) -> Any:
        """The first stream that is ready."""
        return seq[0]


@pytest.mark.parametrize("replay", ["graph", "eager"])
def test_staged_inputs_that_are_not_sent_do_no_harm(replay: Any) -> None:
    """Other inputs than those announced are taken as they are; flags go up and down with the backend."""

    def run(plan: StepPlan, *, announced: bool) -> list[bytes]:
        gpu, seen = FakeGpu(), []
        gpu._dice = ComputeFirst()
        executor = CudaBackend(gpu=gpu, kernels=MixedOnDevice, replay=replay)
        weights = {row.name: normal(*row.shape, seed=9) for row in sources(index_plan(plan), inputs=False)}
        with TrainingSession(plan, weights, backend=executor) as session:
            assert executor._bound.ahead.gates
            assert gpu.flags == len(executor._bound.ahead.gates)
            for number in range(5):
                session.step(feeds(plan, number), feeds(plan, 100 + number) if announced else None)
                seen += [value.tobytes() for value in (*session.outputs().values(), *session.state().values())]
        assert gpu.flags == 0
        return seen

    for plan in with_late_room(20):
        assert run(plan, announced=True) == run(plan, announced=False)


def test_what_a_device_hides_needs_its_speeds() -> None:
    """Nothing, where the plan does not describe its device."""
    plan = msgspec.structs.replace(with_late_room()[0], device={"name": "unheard of"}, step_time_us=100)
    assert hidden_us(plan, [0]) == 0


def test_a_plan_that_never_rests_has_no_room() -> None:
    """One buffer that lives from end to end fills the arena."""
    plan = with_late_room()[0]
    full = msgspec.structs.replace(
        plan, buffers=[Extent(id=row.id, offset=0, bytes=plan.arena_bytes) for row in plan.buffers]
    )
    assert late_room(index_plan(full), G) is None
