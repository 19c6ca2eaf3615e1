"""The commands of `snplan`, put together; each is a function in a module of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from snplan.cli.codegen import codegen
from snplan.cli.compare import compare
from snplan.cli.compile import compile_model
from snplan.cli.doctor import doctor
from snplan.cli.inspect import inspect
from snplan.cli.max_batch import max_batch
from snplan.cli.max_depth import max_depth
from snplan.cli.model import model
from snplan.cli.profile import profile
from snplan.cli.run import run
from snplan.cli.sweep import sweep
from snplan.cli.verify import verify

app = typer.Typer(
    name="snplan",
    help="Plan a training step so that it fits the given GPU memory and loses as little time as possible.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"snplan {version('snplan')}")
        raise typer.Exit


@app.callback()
def _global(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Plan a training step so that it fits the given GPU memory and loses as little time as possible."""


app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(model)
app.command("compile")(compile_model)
app.command()(codegen)
app.command()(doctor)
app.command()(inspect)
app.command()(verify)
app.command()(profile)
app.command()(run)
app.command()(sweep)
app.command()(compare)
app.command("max-batch")(max_batch)
app.command("max-depth")(max_depth)
