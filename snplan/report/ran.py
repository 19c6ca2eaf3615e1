"""What `snplan run` shows about a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from snplan.report.tables import facts
from snplan.units import format_bytes, format_us

if TYPE_CHECKING:
    from rich.table import Table

    from snplan.runtime.run import RunReport

_SHOWN_LOSSES = 5


def run_tables(report: RunReport) -> list[Table]:
    """One table: losses, measured memory and time, and whether every bit was compared."""
    return [facts(f"run on {report.device} ({report.backend})", _rows(report))]


def _rows(report: RunReport) -> Iterator[tuple[str, str]]:
    losses = [f"{loss:.6g}" for loss in report.losses]
    hidden = len(losses) - 2 * _SHOWN_LOSSES
    if hidden > 0:
        losses = [*losses[:_SHOWN_LOSSES], f"({hidden:,} more)", *losses[-_SHOWN_LOSSES:]]
    yield "losses", ", ".join(losses)
    yield "peak, measured", f"{format_bytes(report.peak_bytes)} of an arena of {format_bytes(report.arena_bytes)}"
    yield "step, measured", f"{format_us(report.step_us)}, {report.samples_per_second:g} samples a second"
    yield "step, predicted", f"{format_us(report.predicted_step_us)} on the plan's device"
    if report.checked:
        yield "checked", "every loss, gradient and updated value is equal to the unplanned execution's, bit for bit"
