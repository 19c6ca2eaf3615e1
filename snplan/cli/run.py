"""`snplan run`: some training steps by a plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snplan.cli import arguments, files, options, output
from snplan.cli.progress import Progress
from snplan.errors import UsageError

if TYPE_CHECKING:
    from snplan.plan.model import ModelRef, StepPlan
    from snplan.runtime.run import RunReport
    from snplan.runtime.session import TrainingSession

Backend = Annotated[str, typer.Option("--backend", metavar="numpy|cuda", help="What executes the plan.")]
Steps = Annotated[int, typer.Option("--steps", metavar="N", help="Training steps.")]
Seed = Annotated[
    int, typer.Option("--seed", metavar="S", help="The seed of random data and of the model's random numbers.")
]
Data = Annotated[
    str | None, typer.Option("--data", metavar="F.npz", help="Arrays by input name; random data without it.")
]
Check = Annotated[bool, typer.Option("--check", help="Compare every result with an unplanned execution, bit for bit.")]
SaveGradients = Annotated[
    str | None, typer.Option("--save-gradients", metavar="G.npz", help="Write the last step's gradients.")
]
SaveState = Annotated[
    str | None, typer.Option("--save-state", metavar="S.npz", help="Write parameters and state after the last step.")
]
Snapshot = Annotated[
    str | None,
    typer.Option("--snapshot", metavar="DIR", help="Go on from the latest snapshot in a folder, and leave one there."),
]
Export = Annotated[
    str | None, typer.Option("--export", metavar="M.onnx", help="Write the model with the weights as trained.")
]
ModelFile = Annotated[
    str | None, typer.Option("--model", metavar="M.onnx", help="The plan's model, where it is elsewhere.")
]


def run(
    path: options.Plan,
    backend: Backend = "numpy",
    steps: Steps = 1,
    seed: Seed = 0,
    data: Data = None,
    check: Check = False,
    save_gradients: SaveGradients = None,
    save_state: SaveState = None,
    snapshot: Snapshot = None,
    export: Export = None,
    model: ModelFile = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Run training steps by a plan: verify it, replay it, measure it."""
    arguments.at_least("--steps", steps, 1)
    arguments.at_least("--seed", seed, 0)
    arguments.one_of("--backend", backend, ("numpy", "cuda"))
    files.distinct({"--save-gradients": save_gradients, "--save-state": save_state, "--export": export})
    from snplan.plan.file import read_plan
    from snplan.verify import ensure_verified

    plan = read_plan(path)
    ensure_verified(plan)
    from snplan.runtime.session import make_backend

    executor = make_backend(backend)  # what is not there is told before anything is read
    source = find_model(plan.model, Path(path).parent, model)
    keep = [source, Path(path)]
    settings: dict[str, Any] = {
        "backend": executor,
        "steps": steps,
        "seed": seed,
        "check": check,
        "data": files.existing(data, what="data file") if data is not None else None,
        "save_gradients": _output(save_gradients, "gradients file", keep),
        "save_state": _output(save_state, "state file", keep),
        "snapshot": files.folder(snapshot, what="snapshot folder") if snapshot is not None else None,
        "export": _exporter(source, _output(export, "model", keep)),
    }
    report = _run(plan, source, settings, quiet=quiet)
    if not quiet:
        output.written(settings["save_gradients"], settings["save_state"], settings["snapshot"], export)
    if json:
        output.write_object({"status": "done", "code": None, "message": None, **report.as_json()})
    elif not quiet:
        from snplan.report.ran import run_tables

        output.show(*run_tables(report))
    return 0


def find_model(wanted: ModelRef, folder: Path, given: str | None) -> Path:
    """The file of a plan's model: `given`, else by its name in the plan's folder, else in the current one.

    Raises UsageError: SNP-U010 where there is no such file, SNP-U050 where its sha256 is another.
    """
    if given is not None:
        return _matching([files.existing(given, what="model")], wanted)
    if Path(wanted.name).name != wanted.name:
        raise UsageError("SNP-U010", f"the plan names its model {wanted.name!r}, which is no file name; give --model")
    found = [place for place in (folder / wanted.name, Path(wanted.name)) if place.is_file()]
    if not found:
        where = f"neither in {folder} nor in the current folder" if folder != Path() else "not in the current folder"
        raise UsageError("SNP-U010", f"the plan's model {wanted.name} is {where}; give --model")
    return _matching(found, wanted)


def _matching(places: list[Path], wanted: ModelRef) -> Path:
    """The first of `places` with the sha256 that is wanted."""
    sums = {place: files.sha256(place) for place in places}
    for place, found in sums.items():
        if found == wanted.sha256:
            return place
    shown = ", ".join(f"{place} has sha256 {found}" for place, found in sums.items())
    raise UsageError(
        "SNP-U050",
        f"the plan was made from a model with sha256 {wanted.sha256}, but {shown}; compile again or give --model",
        {"wanted_sha256": wanted.sha256, "found_sha256": list(sums.values())},
    )


def _output(path: str | None, what: str, keep: list[Path]) -> Path | None:
    return None if path is None else files.writable(path, what=what, keep=keep)


def _exporter(source: Path, target: Path | None) -> Callable[[TrainingSession], None] | None:
    return None if target is None else lambda session: session.export_onnx(source, target)


def _run(plan: StepPlan, source: Path, settings: dict[str, Any], *, quiet: bool) -> RunReport:
    from snplan.frontend import load_model, read_weights
    from snplan.plan.index import index_plan
    from snplan.runtime.run import run_plan
    from snplan.runtime.values import sources

    with Progress(quiet=quiet) as progress:
        progress("reading weights", None)
        held = sources(index_plan(plan), inputs=False)
        weights = read_weights(load_model(source), [row.name for row in held if row.role != "optimizer"])
        progress("first step", None)
        return run_plan(
            plan,
            weights,
            progress=lambda number, steps, loss: progress(f"step {number} of {steps}, loss {loss:.6g}", number / steps),
            **settings,
        )
