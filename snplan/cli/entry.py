"""`run`: one command from its arguments to its exit code, whatever happens on the way."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import Any

from snplan.cli import failure, output
from snplan.cli.arguments import refuse_repeated
from snplan.errors import ExitCode

_COMPLETE = "_SNPLAN_COMPLETE"
_HELP = frozenset({"--help", "--version"})
COLLECTIONS = (100_000, 50, 50)
"""Graphs are many small objects that live on: Python's own thresholds spend half of a large plan's time on them."""


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code of `snplan ARGUMENTS` (docs/cli.md, "Exit codes"); `sys.argv` without arguments.

    Every exception ends here as one message: a JSON object on standard output with `--json`, else text on standard
    error, and a traceback only with SNPLAN_DEBUG=1.
    """
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    output.replace_closed_streams()
    output.tolerate_odd_characters()
    gc.set_threshold(*COLLECTIONS)
    try:
        refuse_repeated(given)
        return _command(given)
    except (Exception, KeyboardInterrupt) as error:
        return failure.report(error, as_json="--json" in given)


def _command(arguments: list[str]) -> int:
    """Runs a command without typer's own handling of exceptions, which ends the process in its own ways."""
    import typer  # loads after the arguments were looked over

    from snplan.cli.app import app

    if _COMPLETE in os.environ:  # the shell asks how a line may go on, and reads the answer on standard output
        return _completed(typer.main.get_command(app))
    command, helps = typer.main.get_command(app), not _HELP.isdisjoint(arguments)
    try:
        with command.make_context("snplan", arguments) as context:
            code = command.invoke(context)
    except typer.Exit as done:  # --help, --version and --show-completion, which does not know every shell
        output.write_text("")  # what is still buffered may not find room
        return int(ExitCode.USAGE if done.exit_code else ExitCode.DONE)
    except (OSError, SystemExit) as error:  # typer writes help without asking whether the stream takes it
        if not helps:
            raise
        if isinstance(error, OSError):
            output.give_up(sys.stdout, error)
        return int(ExitCode.DONE)
    return int(code or 0)


def _completed(command: Any) -> int:
    try:
        command.main(args=[], prog_name="snplan")
    except SystemExit as done:
        return int(ExitCode.USAGE if done.code else ExitCode.DONE)  # a shell that typer does not know
    return int(ExitCode.DONE)
