"""`snplan inspect`: what a plan says, for people and for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snplan.cli import arguments, options, output

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


def inspect(
    path: options.Plan, text: Text = False, tensor: Tensor = None, time: Time = None, json: options.Json = False
) -> int:
    """Show a plan: its figures, one tensor, one moment, or every action."""
    if text:
        others = {"--tensor": tensor is not None, "--time": time is not None, "--json": json}
        arguments.refuse_together("--text", others)
    from snplan.plan.file import read_plan

    plan = read_plan(path)
    if text:
        from snplan.plan.text import to_text

        output.write_text(to_text(plan))
        return 0
    from snplan.plan.verify import ensure_verified

    ensure_verified(plan)  # every question below takes a sound plan for granted
    data = _answers(plan, tensor, time)
    if json:
        output.write_object({"status": "verified", **data})
    else:
        output.show(*_tables(data), to=sys.stdout)
    return 0


def _answers(plan: StepPlan, tensor: str | None, time: int | None) -> dict[str, Any]:
    """The summary without a question, else the answers to the questions that were asked."""
    from snplan.report import inspected

    if tensor is None and time is None:
        return inspected.summary(plan)
    found: dict[str, Any] = {}
    if tensor is not None:
        found["tensor"] = inspected.tensor_of(plan, tensor)
    if time is not None:
        found["moment"] = inspected.moment_of(plan, time)
    return found


def _tables(data: dict[str, Any]) -> list[Table]:
    from snplan.report import inspect_tables

    if "peak" in data:
        return inspect_tables.summary_tables(data)
    tables = inspect_tables.tensor_tables(data["tensor"]) if "tensor" in data else []
    return tables + (inspect_tables.moment_tables(data["moment"]) if "moment" in data else [])
