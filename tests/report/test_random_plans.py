"""Reports and drawings of random sound plans, against counts that are worked out here from the actions alone."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from property.plans import plans

from snplan.cost.device import load_device
from snplan.cost.simulate import Timeline, simulate
from snplan.cost.timed import plan_timeline
from snplan.plan.model import Alloc, Free, Offload, Prefetch, Recompute, Run, StepPlan
from snplan.plan.timeline import BREAKDOWN, breakdown, live_set
from snplan.report.addresses import address_chart, blocks
from snplan.report.areas import memory_chart
from snplan.report.fates import fates
from snplan.report.fitting import fits
from snplan.report.inspected import summary
from snplan.report.lanes import lanes_chart
from snplan.report.memory import Moment, memory_moments, thinned
from snplan.report.page import page
from snplan.report.trace import trace

H200 = load_device("h200")
FEW = settings(max_examples=30, deadline=None)


def live_after_each(plan: StepPlan) -> list[int]:
    """Live bytes before the first action and after each one."""
    size = {row.id: row.bytes for row in plan.buffers}
    live = [sum(size[place.buffer] for place in plan.resident if place.buffer is not None)]
    for action in plan.actions:
        change = {Alloc: 1, Free: -1}.get(type(action), 0)
        live.append(live[-1] + (change * size[action.buffer] if isinstance(action, Alloc | Free) else 0))
    return live


def timeline(plan: StepPlan) -> Timeline:
    """When the actions run on a device that is known; the kinds of random plans do not say what they cost."""
    return simulate(plan.actions, lambda op, engine: 3, {row.name: row.bytes for row in plan.tensors}, H200)


@given(plans())
def test_moments_are_the_live_bytes_of_every_execution(plan: StepPlan) -> None:
    live = live_after_each(plan)
    moments = memory_moments(plan)
    executions = [i for i, action in enumerate(plan.actions) if isinstance(action, Run | Recompute)]
    assert [moment.action for moment in moments] == executions
    for moment in moments:
        assert moment.live == live[moment.action + 1]
        assert dict(zip(BREAKDOWN, moment.groups, strict=True)) == breakdown(live_set(plan, moment.action))
    assert max(live) == plan.peak_live_bytes


@given(plans())
def test_blocks_cover_live_bytes_exactly(plan: StepPlan) -> None:
    """Bytes times actions of all blocks are live bytes summed over the step, and no two lie on one another."""
    found = blocks(plan)
    assert sum((block.end - block.start) * block.bytes for block in found) == sum(live_after_each(plan))
    for a, b in combinations(found, 2):
        apart_in_time = a.end <= b.start or b.end <= a.start
        apart_in_memory = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
        assert apart_in_time or apart_in_memory
    assert max((block.offset + block.bytes for block in found), default=0) <= plan.arena_bytes


@given(plans())
def test_every_tensor_that_backward_needs_has_one_fate(plan: StepPlan) -> None:
    size = {row.name: row.bytes for row in plan.tensors}
    role = {row.name: row.role for row in plan.tensors}
    written = {name for op in plan.ops if op.phase == "forward" for name in op.outputs}
    needed = {name for op in plan.ops if op.phase != "forward" for name in op.inputs}
    saved = {name for name in written & needed if role[name] == "activation"}
    moved = {action.tensor for action in plan.actions if isinstance(action, Offload)}
    found = fates(plan)
    parts = [found[name] for name in ("kept", "moved", "recomputed")]
    assert sum(part.tensors for part in parts) == len(saved)
    assert sum(part.bytes for part in parts) == sum(size[name] for name in saved)
    assert found["moved"].tensors == len(saved & moved)
    assert found["moved_other"].bytes == sum(size[name] for name in moved - saved)
    again = [action for action in plan.actions if isinstance(action, Recompute)]
    assert bool(found["recomputed"].tensors) <= bool(again)


@given(plans(), st.integers(0, 1 << 20))
def test_fits_is_a_threshold(plan: StepPlan, size: int) -> None:
    needed = plan.arena_bytes + plan.reserve_bytes
    assert fits(plan, needed)["this_plan"]
    assert not fits(plan, needed - 1)["this_plan"]
    found = fits(plan, size)
    assert found["this_plan"] <= found["some_plan"]
    assert found["this_plan"] == (size >= needed)


@given(plans())
def test_the_summary_adds_up(plan: StepPlan) -> None:
    found = summary(plan)
    size = {row.name: row.bytes for row in plan.tensors}
    assert sum(found["breakdown_bytes"].values()) == plan.peak_live_bytes
    assert sum(found["actions"].values()) == len(plan.actions)
    assert found["offload_bytes"] == sum(size[a.tensor] for a in plan.actions if isinstance(a, Offload))
    assert found["prefetch_bytes"] == sum(size[a.tensor] for a in plan.actions if isinstance(a, Prefetch))
    json.dumps(found)


@FEW
@given(plans())
def test_drawings_are_well_formed_and_the_same_each_time(plan: StepPlan) -> None:
    ran = timeline(plan)
    drawn, again = [(memory_chart(plan, ran.start), lanes_chart(plan, ran), address_chart(plan)) for _ in range(2)]
    assert drawn == again
    for text in drawn:
        assert ET.fromstring(text).tag.endswith("svg")
        assert "nan" not in text
        assert "inf" not in text.replace("info", "")
    assert page(plan, ran) == page(plan, ran)


@FEW
@given(plans())
def test_the_trace_has_every_action_of_a_stream(plan: StepPlan) -> None:
    ran = timeline(plan)
    events = json.loads(trace(plan, ran))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    streams = [i for i, start in enumerate(ran.start) if start >= 0]
    assert len(spans) == len(streams)
    assert sorted((event["ts"], event["dur"]) for event in spans) == sorted(
        (ran.start[i], ran.end[i] - ran.start[i]) for i in streams
    )


@given(st.lists(st.integers(0, 100), min_size=1, max_size=60), st.integers(1, 20))
def test_thinning(sizes: list[int], most: int) -> None:
    moments = [Moment(action=i, op="", groups=(size,)) for i, size in enumerate(sizes)]
    found = thinned(moments, most)
    assert len(found) == min(most, len(moments))
    assert [moment.action for moment in found] == sorted({moment.action for moment in found})
    assert max(moment.live for moment in found) == max(sizes)


def test_times_come_from_the_plans_device() -> None:
    """A plan that describes no device whole is simulated on the one that it names."""
    from cli.plans import small_plan

    assert plan_timeline(small_plan()).step_time_us == plan_timeline(small_plan(), H200).step_time_us
