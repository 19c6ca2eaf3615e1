"""`snplan max-batch`: the largest batch whose training step fits a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snplan.cli import arguments, files, largest, options
from snplan.cli.planning import Planning, takes_planning

if TYPE_CHECKING:
    from snplan.compiler import Prepared

Step = Annotated[int, typer.Option("--step", metavar="N", help="The batch is a multiple of N.")]


@takes_planning(without=("batch",))
def max_batch(
    model: options.Model,
    gpu_mem: options.GpuMem,
    planning: Planning,
    max_slowdown: largest.MaxSlowdown = None,
    step: Step = 1,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Find the largest batch of a model inside a budget of GPU memory."""
    arguments.at_least("--step", step, 1)
    arguments.at_least("--max-slowdown", max_slowdown, 1)
    budget = arguments.size("--gpu-mem", gpu_mem, planning.notes) or 0
    source = files.existing(model, what="model")
    from dataclasses import replace

    from snplan.compiler import prepare
    from snplan.explore.largest import as_planned
    from snplan.frontend import load_model

    chosen, loaded = planning.options(budget), load_model(source)
    planned = as_planned(chosen)

    def make(batch: int) -> Prepared:
        return prepare(loaded, replace(planned, batch=batch))

    sizes = largest.Sizes(name="batch", make=make, unit=step)
    result = largest.search(sizes, chosen, max_slowdown, quiet=quiet)
    facts = {
        "model_sha256": loaded.sha256,
        "budget_bytes": budget,
        "device": chosen.device,
        "strategy": chosen.strategy,
        "max_slowdown": max_slowdown,
        "step": step,
    }
    return largest.show("batch", result, facts, planning.notes, as_json=json, quiet=quiet)
