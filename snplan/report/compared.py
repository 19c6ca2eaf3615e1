"""What `snplan compare` shows: a table, a chart of step times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from snplan.report.chart import Bar, bar_chart
from snplan.report.tables import columns
from snplan.units import GIB, format_us

if TYPE_CHECKING:
    from rich.table import Table

    from snplan.explore.compare import Outcome

_HEADERS = ("strategy", "fits", "needs GiB", "arena GiB", "step", "of keep-all", "moved GiB", "recomputed", "waiting")


def compare_table(title: str, outcomes: Sequence[Outcome], keep_all_us: int, *, batches: bool) -> Table:
    """One row a strategy; `batches` adds the largest batch."""
    headers = (*_HEADERS, "largest batch") if batches else _HEADERS
    rows = [_row(row, keep_all_us) for row in outcomes]
    if batches:
        rows = [(*row, _count(outcome.largest_batch)) for row, outcome in zip(rows, outcomes, strict=True)]
    return columns(title, headers, rows)


def _row(row: Outcome, keep_all_us: int) -> tuple[str, ...]:
    needs = "" if row.needed_bytes is None else f"{row.needed_bytes / GIB:.3f}"
    if row.step_time_us is None or row.arena_bytes is None:
        return row.strategy, "no", needs, "", "", "", "", "", ""
    moved = (row.offload_bytes or 0) + (row.prefetch_bytes or 0)
    return (
        row.strategy,
        "yes",
        needs,
        f"{row.arena_bytes / GIB:.3f}",
        format_us(row.step_time_us),
        f"{row.step_time_us / keep_all_us:.3f}" if keep_all_us else "",
        f"{moved / GIB:.3f}",
        f"{row.recompute_ops or 0:,} ops, {format_us(row.recompute_us or 0)}",
        format_us(row.stall_us or 0),
    )


def _count(number: int | None) -> str:
    return "none" if number is None else f"{number:,}"


def compare_chart(title: str, outcomes: Sequence[Outcome], keep_all_us: int) -> str:
    """An SVG: predicted step time of each strategy beside the keep-all plan's; the reason where one does not fit."""
    bars = [
        Bar(
            name=row.strategy,
            value=None if row.step_time_us is None else row.step_time_us / 1000,
            note="" if row.needed_bytes is None else f"needs {row.needed_bytes / GIB:.2f} GiB",
        )
        for row in outcomes
    ]
    return bar_chart(title, "predicted step time, ms", bars, ("keep-all", keep_all_us / 1000))
