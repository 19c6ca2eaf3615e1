"""`snplan model`: a model of the zoo as an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snplan.cli import files, options, output
from snplan.errors import UsageError, unwritten
from snplan.units import format_bytes

if TYPE_CHECKING:
    from snplan.models import Option

Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The model; without it, all models are listed.")]
Light = Annotated[bool, typer.Option("--light", help="No weights: each large one is filled with a constant.")]
Seed = Annotated[int, typer.Option("--seed", metavar="S", min=0, help="The seed of the random weights.")]
WithLoss = Annotated[bool, typer.Option("--loss", help="The loss is part of the graph: mean cross-entropy.")]


def model(
    context: typer.Context,
    name: Name = None,
    path: options.ModelOutput = None,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="The batch size.")] = 1,
    light: Light = False,
    seed: Seed = 0,
    loss: WithLoss = False,
) -> int:
    """Build a model of the zoo, with options of its own such as --blocks 3,4,6,3."""
    if name is None:
        _list_models()
        return 0
    own = own_options([name, *context.args])
    target = files.writable(path or f"{name}.onnx", what="model file")
    from snplan import models

    try:
        built = models.build(name, batch=batch, light=light, seed=seed, loss=loss, **own)
    except ValueError as error:
        raise UsageError("SNP-U020", str(error)) from error
    try:
        models.save(built, target)
    except OSError as error:
        raise unwritten(f"the model file {target}", error, code="SNP-U011") from error
    output.note(_described(target, len(built.graph.node)))
    return 0


def own_options(words: Sequence[str]) -> dict[str, str]:
    """A model's own options by name from the words after the model's name, which is the first word.

    `--image 96`, `--image=96` and a lone `--dropout-free` (true) are understood; dashes inside a name are underscores.
    Raises UsageError (SNP-U021) for a word that is no option or an option given twice.
    """
    if words[0].startswith("-"):
        raise UsageError("SNP-U021", f"the model's name goes before its options; {words[0]} came first")
    found: dict[str, str] = {}
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if not option.startswith("--") or option == "--":
            raise UsageError("SNP-U021", f"{word!r} is not an option of the model; write options as --name value")
        key = option[2:].replace("-", "_")
        if key in found:
            raise UsageError("SNP-U002", f"{option} is given twice; give it once")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        found[key] = value
    return found


def _list_models() -> None:
    from snplan import models

    width = max(map(len, models.names()))
    lines: list[str] = []
    for name in models.names():
        lines.append(f"{name:{width}}  {models.summary(name)}")
        for key, option in models.options(name).items():
            lines.append(f"{'':{width}}    --{key} {_shown(option)}: {option.help}")
    output.write_text("\n".join(lines) + "\n")


def _shown(option: Option) -> str:
    default = option.default
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default).lower()


def _described(path: Path, nodes: int) -> str:
    data = path.with_name(path.name + ".data")
    beside = f", weights in {data.name} ({format_bytes(data.stat().st_size)})" if data.exists() else ""
    return f"{path}: {nodes:,} nodes, {format_bytes(path.stat().st_size)}{beside}"
