"""What `snplan sweep` shows: a table, a chart, rows for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from snplan.report.chart import Series, line_chart
from snplan.report.tables import columns
from snplan.units import GIB, format_us

if TYPE_CHECKING:
    from rich.table import Table

    from snplan.explore.sweep import Point

_HEADERS = ("budget GiB", "arena GiB", "step", "of keep-all", "gap", "moved GiB", "recomputed", "plan found at")


def sweep_rows(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Plain rows: the budget, the status, the bound and the figures of the plan (all null without one)."""
    from snplan.explore.sweep import Figures

    nothing = dict.fromkeys(Figures.__slots__)
    return [
        {
            "budget_bytes": point.budget_bytes,
            "status": point.status,
            "lower_bound_us": point.lower_bound_us,
            **(nothing if point.figures is None else asdict(point.figures)),
        }
        for point in points
    ]


def sweep_table(title: str, points: Sequence[Point], keep_all_us: int) -> Table:
    """One row a budget; the gap is to the lower bound on the step time."""
    return columns(title, _HEADERS, [_row(point, keep_all_us) for point in points])


def _row(point: Point, keep_all_us: int) -> tuple[str, ...]:
    budget, plan = f"{point.budget_bytes / GIB:.3f}", point.figures
    if plan is None:
        return budget, "", point.status, "", "", "", "", ""
    bound = point.lower_bound_us
    return (
        budget,
        f"{plan.arena_bytes / GIB:.3f}",
        format_us(plan.step_time_us),
        f"{plan.step_time_us / keep_all_us:.3f}" if keep_all_us else "",
        f"{plan.step_time_us / bound - 1:.1%}" if bound else "",
        f"{(plan.offload_bytes + plan.prefetch_bytes) / GIB:.3f}",
        f"{plan.recompute_ops:,} ops, {format_us(plan.recompute_us)}",
        "" if plan.found_at_bytes == point.budget_bytes else f"{plan.found_at_bytes / GIB:.3f}",
    )


def sweep_chart(title: str, points: Sequence[Point], keep_all_us: int) -> str:
    """An SVG: predicted step time over the budget, its lower bound, and the keep-all plan's time."""
    found = [(point.budget_bytes / GIB, point.figures.step_time_us / 1000) for point in points if point.figures]
    bounds = [(p.budget_bytes / GIB, p.lower_bound_us / 1000) for p in points if p.lower_bound_us is not None]
    ends = [(x, keep_all_us / 1000) for x, _ in (found[:1] + found[-1:])]
    series = [
        Series(name="predicted step", points=found, marks=True, stairs=True),
        Series(name="lower bound", points=bounds, dashed=True),
        Series(name="keep-all step", points=ends, dashed=True),
    ]
    return line_chart(title, "budget, GiB", "step time, ms", series)
