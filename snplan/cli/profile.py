"""`snplan profile`: what ops, engines and copies cost on this machine's GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snplan.cli import arguments, files, options, output
from snplan.cli.progress import Progress
from snplan.units import format_bytes

if TYPE_CHECKING:
    from snplan.plan.model import StepPlan

Source = Annotated[
    str, typer.Argument(metavar="MODEL.onnx|P.plan.json", help="What to measure: all ops of a model's training step.")
]
Output = Annotated[
    str | None, typer.Option("-o", "--output", metavar="PROFILE.json", help="The profile file to write.")
]
Budget = Annotated[
    str | None,
    typer.Option("--gpu-mem", metavar="SIZE", help="Device memory that may be used (default: what is free)."),
]
Engines = Annotated[
    int | None,
    typer.Option(
        "--engines", metavar="N", help="Engines measured of each convolution, the library's favourites first."
    ),
]
# Every op of the step is in a plan of any budget; this one is never the limit.
_UNBOUNDED = 1 << 50


def profile(
    path: Source,
    target: Output = None,
    gpu_mem: Budget = None,
    engines: Engines = None,
    conv_pieces: options.ConvPieces = 1,
    batch: options.Batch = None,
    dim: options.Dim = None,
    precision: options.Precision = "fp32",
    optimizer: options.Optimizer = None,
    device: options.Device = "h200",
    fuse: options.Fuse = True,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Measure a model's ops with every engine, copies and launches on this machine's GPU."""
    arguments.at_least("--batch", batch, 1)
    arguments.at_least("--engines", engines, 1)
    arguments.at_least("--conv-pieces", conv_pieces, 1)
    notes: list[str] = []
    budget = arguments.size("--gpu-mem", gpu_mem, notes)
    given = {
        "batch": batch,
        "dims": arguments.dimensions(dim or ()),
        "precision": arguments.one_of("--precision", precision, options.PRECISIONS),
        "device": device,
        "fuse": fuse,
        **({"optimizer": arguments.one_of("--optimizer", optimizer, options.OPTIMIZERS)} if optimizer else {}),
    }
    source = files.existing(path, what="model or plan")
    written = files.writable(target or f"{source.name.split('.')[0]}.profile.json", what="profile file", keep=[source])
    with Progress(quiet=quiet) as progress:
        progress("reading the model", None)
        plan = _plan_of(source, given)
        report = _measured(plan, budget, engines, conv_pieces, written, progress)
    if json:
        output.write_object({"status": "done", "code": None, "message": None, "warnings": notes, **report})
    elif not quiet:
        output.write_text(
            f"{written}: {report['ops']} ops of {report['device']}; {report['engines_tried']} engines tried, "
            f"{report['engines_failed']} of them cannot run here; reserve {format_bytes(report['reserve_bytes'])}\n"
        )
    for note in notes:
        output.note(f"snplan: warning: {note}")
    return 0


def _plan_of(source: Path, given: dict[str, Any]) -> StepPlan:
    """A plan with all ops of the step."""
    if source.suffix == ".onnx":
        from snplan.compiler import CompileOptions, compile_model

        return compile_model(source, CompileOptions(budget_bytes=_UNBOUNDED, reserve_bytes=0, **given)).plan
    from snplan.plan.file import read_plan

    return read_plan(str(source))


def _measured(
    plan: StepPlan, budget: int | None, engines: int | None, pieces: int, target: Path, progress: Progress
) -> dict[str, Any]:
    from snplan.cost.profile import save_profile
    from snplan.runtime.cuda.profile import profile_plan

    done = profile_plan(plan, budget_bytes=budget, engines=engines, pieces=pieces, progress=progress)
    save_profile(done.profile, target)
    return {
        "profile": str(target),
        "device": done.profile.device["title"],
        "reserve_bytes": done.profile.device["reserve_bytes"],
        "ops": len(done.profile.ops),
        "engines_tried": done.tried,
        "engines_failed": done.failed,
    }
