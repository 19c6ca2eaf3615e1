"""`snplan compare`: strategies side by side on one model and budget."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snplan.cli import arguments, files, options, output
from snplan.cli.planning import Planning, takes_planning
from snplan.cli.progress import Interruption, Progress
from snplan.errors import ExitCode, SnplanError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from snplan.compiler import CompileOptions, Prepared
    from snplan.compiler import Progress as Told
    from snplan.explore.compare import Outcome
    from snplan.frontend.load import LoadedModel

Strategies = Annotated[
    str | None, typer.Option("--strategies", metavar="A,B,...", help="The strategies (default: all of them).")
]
LargestBatch = Annotated[
    bool, typer.Option("--largest-batch", help="Also find each strategy's largest batch inside the budget.")
]


@takes_planning(without=("strategy",))
def compare(
    model: options.Model,
    gpu_mem: options.GpuMem,
    planning: Planning,
    strategies: Strategies = None,
    largest_batch: LargestBatch = False,
    svg: options.Svg = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Plan a model by each strategy: what fits, how fast it is, what it moves and recomputes."""
    names = options.STRATEGIES if strategies is None else _names(strategies)
    budget = arguments.size("--gpu-mem", gpu_mem, planning.notes) or 0
    source = files.existing(model, what="model")
    target = None if svg is None else files.writable(svg, what="SVG file", keep=[source])
    chosen = planning.options(budget)
    prepared, outcomes, interrupted = _compared(source, chosen, names, largest_batch=largest_batch, quiet=quiet)
    title = f"{prepared.model.name} in {budget / (1 << 30):g} GiB on {prepared.device.title}"
    keep_all = prepared.everything.step_us
    if target is not None:
        from snplan.report.compared import compare_chart
        from snplan.report.files import write_report

        write_report(target, compare_chart(title, outcomes, keep_all), what="SVG file")
    if json:
        output.write_object(_object(prepared, chosen, outcomes, target, planning.notes, interrupted=interrupted))
    elif not quiet:
        _show(title, outcomes, keep_all, batches=largest_batch)
        output.written(target)
    for note in planning.notes:
        output.note(f"snplan: warning: {note}")
    return int(ExitCode.INTERRUPTED if interrupted else ExitCode.DONE)


def _object(
    prepared: Prepared,
    chosen: CompileOptions,
    outcomes: list[Outcome],
    svg: Path | None,
    notes: list[str],
    *,
    interrupted: bool,
) -> dict[str, Any]:
    return {
        "status": "interrupted" if interrupted else "done",
        "code": None,
        "message": None,
        "model_sha256": prepared.model.sha256,
        "device": prepared.device.name,
        "budget_bytes": chosen.budget_bytes,
        "reserve_bytes": prepared.reserve(chosen),
        "floor_bytes": prepared.lowest.bytes,
        "keep_all_bytes": prepared.everything.arena_bytes,
        "keep_all_step_time_us": prepared.everything.step_us,
        "strategies": [asdict(outcome) for outcome in outcomes],
        "svg": svg,
        "warnings": notes,
    }


def _names(text: str) -> tuple[str, ...]:
    """The strategies of a list, each once. Raises UsageError for one that is not known and for an empty list."""
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not names:
        raise UsageError("SNP-U003", f"--strategies names none; choose from {', '.join(options.STRATEGIES)}")
    return tuple(arguments.strategy("--strategies", name, options.STRATEGIES) for name in names)


def _compared(
    source: Path, chosen: CompileOptions, names: tuple[str, ...], *, largest_batch: bool, quiet: bool
) -> tuple[Prepared, list[Outcome], bool]:
    from snplan.compiler import prepare
    from snplan.explore.compare import compare
    from snplan.frontend import load_model

    outcomes: list[Outcome] = []
    with Progress(quiet=quiet) as progress, Interruption() as stop:
        loaded = load_model(source)
        prepared = prepare(loaded, chosen, progress=progress)
        find = _batch_finder(loaded, stop.asked) if largest_batch else None
        try:
            outcomes += compare(prepared, chosen, names, largest_batch=find, progress=progress, interrupted=stop.asked)
        except KeyboardInterrupt:
            return prepared, outcomes, True
        return prepared, outcomes, stop.asked()


def _batch_finder(loaded: LoadedModel, interrupted: Callable[[], bool]) -> Callable[[CompileOptions, Told], int | None]:
    """A function that finds a strategy's largest batch: None where no batch fits or the batch cannot be set."""
    from functools import lru_cache

    from snplan.compiler import prepare
    from snplan.explore.largest import Search, Trial, as_planned

    floors: dict[bool, dict[int, Trial]] = {True: {}, False: {}}

    def find(chosen: CompileOptions, told: Told) -> int | None:
        planned = as_planned(chosen)

        def make(batch: int) -> Prepared:
            return prepare(loaded, replace(planned, batch=batch))

        try:
            search = Search(
                make=lru_cache(maxsize=1)(make),
                options=chosen,
                floors=floors[planned.fuse],
                floor_only=True,
                progress=lambda what, share: told(f"batch {what}", share),
                interrupted=interrupted,
            )
            found = search.run().found
        except SnplanError:
            return None
        return None if found is None else found.size

    return find


def _show(title: str, outcomes: list[Outcome], keep_all_us: int, *, batches: bool) -> None:
    from snplan.report.compared import compare_table

    output.show(compare_table(title, outcomes, keep_all_us, batches=batches))
    refused: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.message is not None:
            refused.setdefault(f"{outcome.code}: {outcome.message}", []).append(outcome.strategy)
    for reason, names in refused.items():
        output.note(f"  {', '.join(names)}: {reason}")
