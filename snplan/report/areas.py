"""The memory timeline of a plan as SVG: live bytes by group over the step, the budget, and the op at the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from snplan.plan.model import StepPlan
from snplan.plan.timeline import BREAKDOWN
from snplan.report.chart import (
    BOTTOM,
    COLORS,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Scale,
    document,
    legend,
    text,
    ticks,
    x_axis,
    y_axis,
)
from snplan.report.memory import Moment, memory_moments, thinned
from snplan.units import GIB

MOST = 1200
"""Steps that are drawn: more than a screen has columns for the chart."""


def memory_chart(plan: StepPlan, start_us: Sequence[int]) -> str:
    """An SVG of live bytes over time: `start_us` has when each action starts (`Timeline.start`), the y axis is in GiB.

    Lines show the budget without its reserve, the arena, and the floor; a mark the op at the peak.
    """
    moments = thinned(memory_moments(plan), MOST)
    times = [start_us[moment.action] / 1000 for moment in moments]
    end = max([plan.step_time_us / 1000, *times])
    levels = {
        "budget less reserve": plan.budget_bytes - plan.reserve_bytes,
        "arena": plan.arena_bytes,
        "floor": plan.floor_bytes,
    }
    highest = max([*levels.values(), *(moment.live for moment in moments)])
    x_ticks, y_ticks = ticks(0, end), ticks(0, highest / GIB)
    x = Scale(low=0, high=max(end, x_ticks[-1]), start=LEFT, stop=WIDTH - RIGHT)
    y = Scale(low=0, high=y_ticks[-1], start=HEIGHT - BOTTOM, stop=TOP)
    body = [*y_axis(y, y_ticks, "live memory, GiB"), *x_axis(x, x_ticks, "time, ms")]
    body += _areas(moments, times, end, x, y)
    body += _levels(levels, y)
    body += _peak(moments, times, x, y)
    return document(f"{plan.model.name}: memory over one training step", [*body, *legend(BREAKDOWN)])


def _areas(moments: Sequence[Moment], times: Sequence[float], end: float, x: Scale, y: Scale) -> Iterator[str]:
    """One area a group, stacked; drawn from the top of the stack down, each to the ground."""
    tops = [list(accumulate(moment.groups)) for moment in moments]
    for number in reversed(range(len(BREAKDOWN))):
        if not any(moment.groups[number] for moment in moments):
            continue
        ground = f"{y(0):.1f}"
        path = f"M{x(times[0]):.1f} {ground}"
        path += "".join(f"H{x(at):.1f}V{y(row[number] / GIB):.1f}" for at, row in zip(times, tops, strict=True))
        path += f"H{x(end):.1f}V{ground}Z"
        yield f'<path d="{path}" fill="{COLORS[number % len(COLORS)]}"><title>{BREAKDOWN[number]}</title></path>'


def _levels(levels: dict[str, int], y: Scale) -> Iterator[str]:
    places = ((WIDTH - RIGHT, "end"), (LEFT + 4, "start"))  # in turn, since budget and arena are often one line
    for number, (name, size) in enumerate(levels.items()):
        level, (at, anchor) = y(size / GIB), places[number % 2]
        yield f'<path d="M{LEFT} {level:.1f}H{WIDTH - RIGHT}" stroke="#000" stroke-dasharray="6 4"/>'
        yield text(at, level - 4, f"{name} {size / GIB:.3f} GiB", anchor=anchor)


def _peak(moments: Sequence[Moment], times: Sequence[float], x: Scale, y: Scale) -> Iterator[str]:
    if not moments:
        return
    peak = max(range(len(moments)), key=lambda i: (moments[i].live, -i))
    at, level = x(times[peak]), y(moments[peak].live / GIB)
    yield f'<circle cx="{at:.1f}" cy="{level:.1f}" r="4" fill="none" stroke="#000" stroke-width="1.5"/>'
    anchor = "start" if at < (LEFT + WIDTH - RIGHT) / 2 else "end"
    yield text(at, level + 18, f"peak at {moments[peak].op}", anchor=anchor)
