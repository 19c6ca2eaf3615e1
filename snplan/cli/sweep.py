"""`snplan sweep`: budget against predicted time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snplan.cli import arguments, files, options, output
from snplan.cli.planning import Planning, takes_planning
from snplan.cli.progress import Interruption, Progress
from snplan.errors import ExitCode, InfeasibleError, UsageError

if TYPE_CHECKING:
    from snplan.compiler import CompileOptions, Prepared
    from snplan.explore.sweep import Point

POINTS = 24
MOST_POINTS = 10_000

Budgets = Annotated[
    str | None,
    typer.Option("--budgets", metavar="SIZE,SIZE,...", help="The budgets (default: from the floor to keep-all)."),
]
Count = Annotated[int | None, typer.Option("--points", metavar="N", help=f"How many budgets (default {POINTS}).")]
Csv = Annotated[
    str | None,
    typer.Option("--csv", metavar="F.csv", help="Write a line for each budget; an existing file is continued."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is swept and where it goes."""

    source: Path
    budgets: list[int] | None
    count: int
    csv: Path | None
    svg: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Swept:
    """What a sweep found: points with the best plan carried upwards."""

    prepared: Prepared
    options: CompileOptions
    points: list[Point]
    interrupted: bool


@takes_planning()
def sweep(
    model: options.Model,
    planning: Planning,
    budgets: Budgets = None,
    points: Count = None,
    csv: Csv = None,
    svg: options.Svg = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Plan a model at many budgets: predicted step time against memory."""
    if budgets is not None:
        arguments.refuse_together("--budgets", {"--points": points is not None})
    arguments.at_least("--points", points, 1, MOST_POINTS)
    sizes = _sizes(budgets, planning.notes) if budgets is not None else None
    source = files.existing(model, what="model")
    files.distinct({"--csv": csv, "--svg": svg})
    wanted = _Wanted(
        source=source,
        budgets=sizes,
        count=points or POINTS,
        csv=None if csv is None else files.writable(csv, what="CSV", keep=[source]),
        svg=None if svg is None else files.writable(svg, what="SVG file", keep=[source]),
    )
    swept = _swept(wanted, planning, quiet=quiet)
    if not swept.interrupted and all(point.figures is None for point in swept.points):
        raise _nothing_fits(swept)
    _show(wanted, swept, planning.notes, quiet=quiet, as_json=json)
    return int(ExitCode.INTERRUPTED if swept.interrupted else ExitCode.DONE)


def _sizes(text: str, notes: list[str]) -> list[int]:
    words = [word for word in text.split(",") if word.strip()]
    found = [arguments.size("--budgets", word, notes) or 0 for word in words]
    if not found:
        raise UsageError("SNP-U001", "--budgets names no size; write for example --budgets 4G,8G,12G")
    return sorted(set(found))


def _swept(wanted: _Wanted, planning: Planning, *, quiet: bool) -> _Swept:
    from snplan.compiler import prepare
    from snplan.explore.sweep import carried, default_budgets, fingerprint, sweep
    from snplan.explore.table import SweepFile

    chosen = planning.options(max(wanted.budgets or [0]))
    with Progress(quiet=quiet) as progress, Interruption() as stop:
        prepared = prepare(wanted.source, chosen, progress=progress)
        budgets = wanted.budgets or default_budgets(prepared, chosen, wanted.count)
        file = None
        if wanted.csv is not None:
            chosen_print = fingerprint(prepared, chosen)
            file = SweepFile(path=wanted.csv, model_sha256=prepared.model.sha256, options=chosen_print)
        found = file.read() if file is not None else []
        if file is not None:
            file.write(found)  # without what an interrupted sweep left of its last line
        stopped = False
        try:
            for point in sweep(prepared, chosen, budgets, known=list(found), progress=progress, interrupted=stop.asked):
                found.append(point)
                if file is not None:
                    file.append(point)
        except KeyboardInterrupt:
            stopped = True
        points = carried(found)
        if file is not None:
            file.write(points)
        return _Swept(prepared=prepared, options=chosen, points=points, interrupted=stopped or stop.asked())


def _nothing_fits(swept: _Swept) -> Exception:
    from snplan.errors import NoPlanError
    from snplan.explore.sweep import INFEASIBLE
    from snplan.units import format_bytes

    highest, floor = swept.points[-1].budget_bytes, swept.prepared.lowest.bytes
    reserve = swept.prepared.reserve(swept.options)
    least = format_bytes(floor + reserve)
    if swept.points[-1].status != INFEASIBLE:
        return NoPlanError("SNP-P003", "no plan was found at any budget; raise the budgets or --host-mem")
    return InfeasibleError(
        "SNP-P001",
        f"the highest budget, {format_bytes(highest)}, is below the floor with the reserve, {least}",
        {"budget_bytes": highest, "floor_bytes": floor, "reserve_bytes": reserve},
    )


def _show(wanted: _Wanted, swept: _Swept, notes: Sequence[str], *, quiet: bool, as_json: bool) -> None:
    from snplan.report.files import write_report
    from snplan.report.swept import sweep_chart, sweep_table

    keep_all = swept.prepared.everything.step_us
    title = f"{swept.prepared.model.name} on {swept.prepared.device.title}"
    if wanted.svg is not None:
        write_report(wanted.svg, sweep_chart(title, swept.points, keep_all), what="SVG file")
    if as_json:
        output.write_object(_object(wanted, swept, notes))
    elif not quiet:
        output.show(sweep_table(title, swept.points, keep_all))
        output.written(wanted.csv, wanted.svg)
    for note in notes:
        output.note(f"snplan: warning: {note}")


def _object(wanted: _Wanted, swept: _Swept, notes: Sequence[str]) -> dict[str, Any]:
    from snplan.report.swept import sweep_rows

    prepared = swept.prepared
    return {
        "status": "interrupted" if swept.interrupted else "done",
        "code": None,
        "message": None,
        "model_sha256": prepared.model.sha256,
        "device": prepared.device.name,
        "strategy": swept.options.strategy,
        "reserve_bytes": prepared.reserve(swept.options),
        "floor_bytes": prepared.lowest.bytes,
        "keep_all_bytes": prepared.everything.arena_bytes,
        "keep_all_step_time_us": prepared.everything.step_us,
        "points": sweep_rows(swept.points),
        "csv": wanted.csv,
        "svg": wanted.svg,
        "warnings": [*notes],
    }
