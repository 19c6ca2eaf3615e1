"""`snplan inspect`: what a plan says, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snplan.cli import arguments, files, options, output

if TYPE_CHECKING:
    from rich.table import Table

    from snplan.plan.model import StepPlan

Text = Annotated[bool, typer.Option("--text", help="The whole plan as text, one line for each action.")]
Tensor = Annotated[
    str | None, typer.Option("--tensor", metavar="NAME", help="One tensor: where it is when, who touches it.")
]
Time = Annotated[
    int | None, typer.Option("--time", metavar="T", help="What is live when action T has been issued; -1 is the start.")
]
Html = Annotated[str | None, typer.Option("--html", metavar="F.html", help="Write a page that opens offline.")]
Trace = Annotated[
    str | None, typer.Option("--trace", metavar="F.json", help="Write the simulated streams as a Chrome trace.")
]
Svg = Annotated[str | None, typer.Option("--svg", metavar="F.svg", help="Draw memory over time.")]
Fits = Annotated[
    str | None, typer.Option("--fits", metavar="SIZE", help="Does the step fit into so much device memory?")
]
WhatIf = Annotated[
    bool, typer.Option("--what-if", help="What would more memory buy? The model is planned again, with --more.")
]
More = Annotated[str | None, typer.Option("--more", metavar="SIZE", help="How much more memory (default 1G).")]
ModelFile = Annotated[
    str | None, typer.Option("--model", metavar="M.onnx", help="The plan's model, where it is elsewhere.")
]

ONE_GIB = "1G"


def inspect(
    path: options.Plan,
    text: Text = False,
    tensor: Tensor = None,
    time: Time = None,
    html: Html = None,
    trace: Trace = None,
    svg: Svg = None,
    fits: Fits = None,
    what_if: WhatIf = False,
    more: More = None,
    model: ModelFile = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Show a plan: its figures, one tensor, one moment, every action, drawings, or what another budget would do."""
    questions: dict[str, Any] = {"--tensor": tensor, "--time": time, "--fits": fits, "--what-if": what_if or None}
    drawings = {"--html": html, "--trace": trace, "--svg": svg}
    if text:
        others = {**questions, **drawings, "--json": json or None}
        arguments.refuse_together("--text", {name: value is not None for name, value in others.items()})
    if not what_if:
        arguments.refuse_without("--what-if", {"--more": more is not None, "--model": model is not None})
    files.distinct(drawings)
    notes: list[str] = []
    asked = {
        "fits": arguments.size("--fits", fits, notes),
        "more": arguments.size("--more", ONE_GIB if more is None else more, notes) if what_if else None,
    }
    targets = {
        name: files.writable(value, what=f"{name} file", keep=[Path(path)])
        for name, value in drawings.items()
        if value is not None
    }
    from snplan.plan.file import read_plan

    plan = read_plan(path)
    if text:
        from snplan.plan.text import to_text

        output.write_text(to_text(plan))
        return 0
    from snplan.verify import ensure_verified

    ensure_verified(plan)  # every question below takes a sound plan for granted
    _draw(plan, targets)
    data = _answers(plan, tensor, time, asked["fits"])
    if asked["more"] is not None:
        data["what_if"] = _what_if(plan, Path(path), model, asked["more"], quiet=quiet)
    silent = quiet or (bool(targets) and all(value is None for value in questions.values()))
    _show(plan, data, targets, as_json=json, silent=silent)
    if not quiet and not json:
        output.written(*targets.values())
    for note in notes:
        output.note(f"snplan: warning: {note}")
    return 0


def _answers(plan: StepPlan, tensor: str | None, time: int | None, size: int | None) -> dict[str, Any]:
    """The answers to the questions that were asked of the plan alone."""
    from snplan.report import inspected
    from snplan.report.fitting import fits

    found: dict[str, Any] = {}
    if tensor is not None:
        found["tensor"] = inspected.tensor_of(plan, tensor)
    if time is not None:
        found["moment"] = inspected.moment_of(plan, time)
    if size is not None:
        found["fits"] = fits(plan, size)
    return found


def _what_if(plan: StepPlan, path: Path, model: str | None, more: int, *, quiet: bool) -> dict[str, Any]:
    from snplan.cli.progress import Interruption, Progress
    from snplan.cli.run import find_model
    from snplan.explore.what_if import more_memory, recorded_options

    source = find_model(plan.model, path.parent, model)
    chosen = recorded_options(plan, plan.budget_bytes + more, [path.parent, Path()])
    with Progress(quiet=quiet) as progress, Interruption() as stop:
        return more_memory(plan, source, chosen, progress, stop.asked)


def _draw(plan: StepPlan, targets: Mapping[str, Path]) -> None:
    """Writes the drawings that were asked for."""
    if not targets:
        return
    from snplan.cost.timed import plan_timeline
    from snplan.report.areas import memory_chart
    from snplan.report.files import write_report
    from snplan.report.page import page
    from snplan.report.trace import trace

    timeline = plan_timeline(plan)
    made = {
        "--html": lambda: page(plan, timeline),
        "--trace": lambda: trace(plan, timeline),
        "--svg": lambda: memory_chart(plan, timeline.start),
    }
    for name, target in targets.items():
        write_report(target, made[name](), what=f"{name} file")


def _show(plan: StepPlan, data: Mapping[str, Any], targets: Mapping[str, Path], *, as_json: bool, silent: bool) -> None:
    """The answers; the summary where nothing was asked, but for people not beside drawings (`silent`)."""
    from snplan.report import inspected

    if as_json:
        written = {"files": {name.removeprefix("--"): target for name, target in targets.items()}} if targets else {}
        output.write_object({"status": "verified", **(data or inspected.summary(plan)), **written})
        return
    if not silent:
        output.show(*_tables(data or inspected.summary(plan)), to=sys.stdout)


def _tables(data: Mapping[str, Any]) -> list[Table]:
    from snplan.report import fitting, inspect_tables

    if "peak" in data:
        return inspect_tables.summary_tables(data)
    tables = inspect_tables.tensor_tables(data["tensor"]) if "tensor" in data else []
    tables += inspect_tables.moment_tables(data["moment"]) if "moment" in data else []
    tables += [fitting.fits_table(data["fits"])] if "fits" in data else []
    return tables + ([fitting.more_table(data["what_if"])] if "what_if" in data else [])
