"""`snplan compile`: a model and a budget in, a step plan out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snplan.cli import arguments, files, options, output
from snplan.cli.progress import Interruption, Progress
from snplan.errors import ExitCode, SnplanError

if TYPE_CHECKING:
    from snplan.compiler import CompileResult
    from snplan.plan.model import StepPlan

INTERRUPTED_NOTE = "interrupted: this is the best plan found so far"

_DEFAULTED = frozenset({"loss", "optimizer", "time_limit_s"})
"""Options whose default the compiler decides: they are passed on only where they are given."""


def compile_model(
    model: options.Model,
    gpu_mem: options.GpuMem,
    path: options.PlanOutput = None,
    batch: options.Batch = None,
    dim: options.Dim = None,
    mode: options.Mode = "train",
    loss: options.Loss = None,
    optimizer: options.Optimizer = None,
    precision: options.Precision = "fp32",
    strategy: options.Strategy = "auto",
    device: options.Device = "h200",
    host_mem: options.HostMem = None,
    reserve: options.Reserve = None,
    solver: options.Solver = "off",
    time_limit: options.TimeLimit = None,
    deterministic: options.Deterministic = False,
    freeze: options.Freeze = None,
    train_batchnorm: options.TrainBatchnorm = False,
    fuse: options.Fuse = True,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Plan the training step of a model inside a budget of GPU memory."""
    if mode == "infer":
        training_only = {
            "--loss": loss,
            "--optimizer": optimizer,
            "--freeze": freeze,
            "--train-batchnorm": train_batchnorm,
        }
        arguments.refuse_together("--mode infer", {name: bool(value) for name, value in training_only.items()})
    if solver == "off":
        arguments.refuse_together("--solver off", {"--time-limit": time_limit is not None})
    arguments.at_least("--batch", batch, 1)
    arguments.at_least("--time-limit", time_limit, 0.001)
    notes: list[str] = []
    chosen: dict[str, Any] = {
        "budget_bytes": arguments.size("--gpu-mem", gpu_mem, notes),
        "reserve_bytes": arguments.size("--reserve", reserve, notes, allow_zero=True),
        "host_bytes": arguments.size("--host-mem", host_mem, notes, allow_zero=True),
        "batch": batch,
        "dims": arguments.dimensions(dim or ()),
        "mode": arguments.one_of("--mode", mode, options.MODES),
        "loss": loss,
        "optimizer": optimizer and arguments.one_of("--optimizer", optimizer, options.OPTIMIZERS),
        "precision": arguments.one_of("--precision", precision, options.PRECISIONS),
        "strategy": arguments.strategy("--strategy", strategy, options.STRATEGIES),
        "device": device,
        "solver": arguments.one_of("--solver", solver, options.SOLVERS),
        "time_limit_s": time_limit,
        "deterministic": deterministic,
        "freeze": tuple(freeze or ()),
        "train_batchnorm": train_batchnorm,
        "fuse": fuse,
    }
    return _compiled(model, path, chosen, notes, quiet=quiet, as_json=json)


def _compiled(
    model: str, path: str | None, chosen: dict[str, Any], notes: list[str], *, quiet: bool, as_json: bool
) -> int:
    source = files.existing(model, what="model")
    target = files.writable(path or f"{source.stem}.plan.json", what="plan file", keep=[source])
    try:
        result, interrupted = _plan(source, chosen, quiet=quiet)
    except SnplanError as error:
        error.details = {"budget_bytes": chosen["budget_bytes"], "warnings": notes, **error.details}
        raise
    from snplan.plan.file import write_plan

    write_plan(result.plan, target)
    report = {**result.report, "plan": str(target)}
    report["warnings"] = [*notes, *report["warnings"], *([INTERRUPTED_NOTE] if interrupted else [])]
    _show(result.plan, report, quiet=quiet, as_json=as_json)
    return int(ExitCode.INTERRUPTED if interrupted else ExitCode.DONE)


def _plan(source: Path, chosen: Mapping[str, Any], *, quiet: bool) -> tuple[CompileResult, bool]:
    from snplan.compiler import CompileOptions, compile_model

    given = {name: value for name, value in chosen.items() if value is not None or name not in _DEFAULTED}
    with Progress(quiet=quiet) as progress, Interruption() as stop:
        result = compile_model(source, CompileOptions(**given), progress=progress, interrupted=stop.asked)
        return result, stop.asked()


def _show(plan: StepPlan, report: Mapping[str, Any], *, quiet: bool, as_json: bool) -> None:
    if as_json:
        output.write_object(report)
    elif not quiet:
        from snplan.report.compiled import compile_tables

        output.show(*compile_tables(plan, report))
    for warning in report["warnings"]:
        output.note(f"snplan: warning: {warning}")
