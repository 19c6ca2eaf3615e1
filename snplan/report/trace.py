"""The simulated streams of a plan in Chrome's trace format: chrome://tracing and Perfetto open it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from snplan.cost.simulate import Timeline
from snplan.plan.model import Offload, Prefetch, Recompute, Run, StepPlan
from snplan.plan.timeline import BREAKDOWN, kind_of
from snplan.report.memory import memory_moments

STREAMS = ("compute", "d2h", "h2d")


def trace(plan: StepPlan, timeline: Timeline) -> str:
    """JSON text: a row for each stream, a counter of live bytes by group. Times are microseconds."""
    events = [*_names(plan), *_actions(plan, timeline), *_memory(plan, timeline)]
    head = {"model": plan.model.name, "model_sha256": plan.model.sha256, "step_time_us": timeline.step_time_us}
    rows = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    return f'{{"displayTimeUnit":"ms","otherData":{json.dumps(head)},"traceEvents":[\n{rows}\n]}}\n'


def _names(plan: StepPlan) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": plan.model.name}}
    for number, name in enumerate(STREAMS):
        yield {"ph": "M", "pid": 1, "tid": number, "name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", "pid": 1, "tid": number, "name": "thread_sort_index", "args": {"sort_index": number}}


def _actions(plan: StepPlan, timeline: Timeline) -> Iterator[dict[str, Any]]:
    phase = {op.name: op.phase for op in plan.ops}
    kinds = {op.name: op.kind for op in plan.ops}
    size = {row.name: row.bytes for row in plan.tensors}
    for i, action in enumerate(plan.actions):
        if isinstance(action, Run | Recompute):
            again = isinstance(action, Recompute)
            name, category = action.op, "recompute" if again else phase[action.op]
            told: dict[str, Any] = {"action": i, "kind": kinds[action.op]}
        elif isinstance(action, Offload | Prefetch):
            name, category = action.tensor, kind_of(action)
            told = {"action": i, "bytes": size[action.tensor]}
        else:
            continue
        start = timeline.start[i]
        event = {"ph": "X", "pid": 1, "tid": STREAMS.index(action.stream), "name": name, "cat": category}
        yield {**event, "ts": start, "dur": timeline.end[i] - start, "args": told}


def _memory(plan: StepPlan, timeline: Timeline) -> Iterator[dict[str, Any]]:
    before: tuple[int, ...] = ()
    for moment in memory_moments(plan):
        if moment.groups != before:
            before = moment.groups
            groups = dict(zip(BREAKDOWN, moment.groups, strict=True))
            yield {"ph": "C", "pid": 1, "name": "live bytes", "ts": timeline.start[moment.action], "args": groups}
