"""What `max-batch` and `max-depth` share: the search with progress and interrupts, and how its answer is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snplan.cli import output
from snplan.cli.progress import Interruption, Progress
from snplan.errors import ExitCode

if TYPE_CHECKING:
    from snplan.compiler import CompileOptions, Prepared
    from snplan.explore.largest import Largest

MaxSlowdown = Annotated[
    float | None,
    typer.Option(
        "--max-slowdown", metavar="X", help="Plans may take at most X times the keep-all plan's step time (1.2)."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is searched: `name` of the size, its `unit` and the `most` that is tried, and how a size is prepared."""

    name: str
    make: Callable[[int], Prepared]
    unit: int = 1
    most: int | None = None


def search(sizes: Sizes, options: CompileOptions, max_slowdown: float | None, *, quiet: bool) -> Largest:
    """The largest size that fits. Raises what `Search.run` raises."""
    from functools import lru_cache

    from snplan.explore.largest import MOST, Search

    with Progress(quiet=quiet) as progress, Interruption() as stop:
        return Search(
            make=lru_cache(maxsize=1)(sizes.make),
            options=options,
            unit=sizes.unit,
            most=sizes.most or MOST,
            max_slowdown=max_slowdown,
            progress=lambda what, share: progress(f"{sizes.name} {what}", share),
            interrupted=stop.asked,
        ).run()


def show(
    name: str,
    result: Largest,
    facts: Mapping[str, Any],
    notes: list[str],
    *,
    as_json: bool,
    quiet: bool,
    samples: int | None = None,
    rows: Sequence[tuple[str, str]] = (),
) -> int:
    """The exit code, after the answer was written; `facts` go into the JSON object, `rows` into the table."""
    from snplan.report.largest import largest_object, largest_tables

    if as_json:
        status = "done" if result.complete else "interrupted"
        found = largest_object(name, result)
        output.write_object({"status": status, "code": None, "message": None, **facts, **found, "warnings": notes})
    elif not quiet:
        output.show(*largest_tables(f"largest {name}", name, result, samples, rows))
    for note in notes:
        output.note(f"snplan: warning: {note}")
    return int(ExitCode.DONE if result.complete else ExitCode.INTERRUPTED)
