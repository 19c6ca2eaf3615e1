"""`snplan codegen`: a plan as a stand-alone script that replays it on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from snplan.cli import arguments, files, options, output
from snplan.cli.run import ModelFile, find_model
from snplan.units import printable

if TYPE_CHECKING:
    from snplan.plan.model import StepPlan

Output = Annotated[str | None, typer.Option("-o", "--output", metavar="replay.py", help="The script to write.")]
Weights = Annotated[
    str | None, typer.Option("--weights", metavar="W.npz", help="Also write the model's weights, for the script.")
]


def codegen(
    path: options.Plan,
    target: Output = None,
    weights: Weights = None,
    model: ModelFile = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Write a readable Python script that replays a plan on a GPU without snplan."""
    if weights is None:
        arguments.refuse_without("--weights", {"--model": model is not None})
    from snplan.plan.file import read_plan
    from snplan.verify import ensure_verified

    plan = read_plan(path)
    ensure_verified(plan)
    script = files.writable(target or f"{Path(path).name.split('.')[0]}.replay.py", what="script", keep=[Path(path)])
    files.distinct({"--output": script, "--weights": weights})
    arrays = None
    if weights is not None:
        source = find_model(plan.model, Path(path).parent, model)
        arrays = files.writable(weights, what="weights file", keep=[Path(path), source, script])
        _write_weights(plan, source, arrays)
    from snplan.codegen.script import replay_script
    from snplan.runtime.files import write_whole

    text = replay_script(plan)
    write_whole(script, lambda file: _write(file, text))
    if json:
        found = {"script": str(script), "weights": None if arrays is None else str(arrays)}
        output.write_object({"status": "done", "code": None, "message": None, **found, "lines": text.count("\n")})
    elif not quiet:
        output.write_text(f"{printable(str(script))}: {text.count(chr(10)):,} lines\n")
        output.written(arrays)
    return 0


def _write(file: IO[bytes], text: str) -> None:
    file.write(text.encode())


def _write_weights(plan: StepPlan, source: Path, target: Path) -> None:
    from snplan.frontend import load_model, read_weights
    from snplan.plan.index import index_plan
    from snplan.runtime.files import save_arrays
    from snplan.runtime.values import sources

    held = sources(index_plan(plan), inputs=False)
    save_arrays(target, read_weights(load_model(source), [row.name for row in held if row.role != "optimizer"]))
