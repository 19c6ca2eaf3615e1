"""`snplan compile`: a model and a budget in, a step plan out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snplan.cli import arguments, files, options, output
from snplan.cli.planning import Planning, takes_planning
from snplan.cli.progress import Interruption, Progress
from snplan.errors import ExitCode, SnplanError

if TYPE_CHECKING:
    from snplan.compiler import CompileResult
    from snplan.plan.model import StepPlan

INTERRUPTED_NOTE = "interrupted: this is the best plan found so far"


@takes_planning()
def compile_model(
    model: options.Model,
    gpu_mem: options.GpuMem,
    planning: Planning,
    path: options.PlanOutput = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Plan the training step of a model inside a budget of GPU memory."""
    budget = arguments.size("--gpu-mem", gpu_mem, planning.notes) or 0
    return _compiled(model, path, budget, planning, quiet=quiet, as_json=json)


def _compiled(model: str, path: str | None, budget: int, planning: Planning, *, quiet: bool, as_json: bool) -> int:
    notes = planning.notes
    source = files.existing(model, what="model")
    target = files.writable(path or f"{source.stem}.plan.json", what="plan file", keep=[source], device=True)
    try:
        result, interrupted = _plan(source, budget, planning, quiet=quiet)
    except SnplanError as error:
        error.details = {"budget_bytes": budget, "warnings": notes, **error.details}
        raise
    from snplan.plan.file import write_plan

    write_plan(result.plan, target)
    report = {**result.report, "plan": str(target)}
    report["warnings"] = [*notes, *report["warnings"], *([INTERRUPTED_NOTE] if interrupted else [])]
    _show(result.plan, report, quiet=quiet, as_json=as_json)
    return int(ExitCode.INTERRUPTED if interrupted else ExitCode.DONE)


def _plan(source: Path, budget: int, planning: Planning, *, quiet: bool) -> tuple[CompileResult, bool]:
    from snplan.compiler import compile_model

    with Progress(quiet=quiet) as progress, Interruption() as stop:
        result = compile_model(source, planning.options(budget), progress=progress, interrupted=stop.asked)
        return result, stop.asked()


def _show(plan: StepPlan, report: Mapping[str, Any], *, quiet: bool, as_json: bool) -> None:
    if as_json:
        output.write_object(report)
    elif not quiet:
        from snplan.report.compiled import compile_tables

        output.show(*compile_tables(plan, report))
    for warning in report["warnings"]:
        output.note(f"snplan: warning: {warning}")
