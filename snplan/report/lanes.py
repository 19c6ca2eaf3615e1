"""The simulated streams of a plan as SVG: one lane each, actions that share a pixel drawn as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from snplan.cost.simulate import Timeline
from snplan.plan.model import Offload, Prefetch, Recompute, Run, StepPlan
from snplan.report.chart import COLORS, LEFT, RIGHT, WIDTH, Scale, clean, document, legend, text, ticks, x_axis

LANES = ("compute", "d2h", "h2d")
KINDS = ("forward", "backward", "update", "recompute", "offload", "prefetch")
TOP_LANE, LANE, GAP = 44, 84, 14


@dataclass(slots=True)
class _Bar:
    """Actions of one kind next to each other on one lane, in pixels."""

    lane: int
    kind: int
    left: float
    right: float
    name: str
    count: int = 1


def lanes_chart(plan: StepPlan, timeline: Timeline) -> str:
    """An SVG of the compute stream and both copy streams over the simulated step."""
    marks = ticks(0, timeline.step_time_us / 1000)
    x = Scale(low=0, high=marks[-1], start=LEFT, stop=WIDTH - RIGHT)
    body = list(x_axis(x, marks, "time, ms"))
    for number, name in enumerate(LANES):
        body.append(text(LEFT - 8, _top(number) + LANE / 2 + 4, name, anchor="end"))
    for bar in _bars(plan, timeline, x):
        told = escape(clean(bar.name if bar.count == 1 else f"{bar.name} and {bar.count - 1:,} more"))
        wide = max(0.3, bar.right - bar.left)
        shape = f'x="{bar.left:.1f}" y="{_top(bar.lane)}" width="{wide:.1f}" height="{LANE}"'
        body.append(f'<rect {shape} fill="{COLORS[bar.kind]}"><title>{told}</title></rect>')
    return document(f"{plan.model.name}: streams over one training step", [*body, *legend(KINDS)])


def _top(lane: int) -> int:
    return TOP_LANE + 24 + lane * (LANE + GAP)


def _bars(plan: StepPlan, timeline: Timeline, x: Scale) -> Iterator[_Bar]:
    last: dict[int, _Bar] = {}
    for bar in _actions(plan, timeline, x):
        before = last.get(bar.lane)
        if before is not None and _share_a_pixel(before, bar):
            before.right, before.count = bar.right, before.count + 1
            continue
        if before is not None:
            yield before
        last[bar.lane] = bar
    yield from last.values()


def _share_a_pixel(before: _Bar, bar: _Bar) -> bool:
    return before.kind == bar.kind and bar.right - before.left < 1 and bar.left - before.right < 0.3


def _actions(plan: StepPlan, timeline: Timeline, x: Scale) -> Iterator[_Bar]:
    phase = {op.name: KINDS.index(op.phase) for op in plan.ops}
    for i, action in enumerate(plan.actions):
        if isinstance(action, Run):
            lane, kind, name = 0, phase[action.op], action.op
        elif isinstance(action, Recompute):
            lane, kind, name = 0, 3, action.op
        elif isinstance(action, Offload):
            lane, kind, name = 1, 4, action.tensor
        elif isinstance(action, Prefetch):
            lane, kind, name = 2, 5, action.tensor
        else:
            continue
        start, end = x(timeline.start[i] / 1000), x(timeline.end[i] / 1000)
        yield _Bar(lane, kind, start, end, f"{i}: {name}")
