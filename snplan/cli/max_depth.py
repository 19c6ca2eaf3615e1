"""`snplan max-depth`: the deepest ResNet whose training step fits a budget, as the paper's Table 4 asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snplan.cli import arguments, largest, options
from snplan.cli.planning import Planning, takes_planning

if TYPE_CHECKING:
    from snplan.compiler import Prepared

FIRST, SECOND, LAST = 6, 32, 6
"""Blocks of the stages that stay as they are (the paper, Table 4); those of the third grow."""

LAYERS_A_BLOCK, LAYERS_AROUND = 3, 2
MOST_LAYERS = 10_000
MOST_SIZE = (1 << 31) - 1

Batch = Annotated[int, typer.Option("--batch", metavar="N", help="The batch size.")]
Image = Annotated[int, typer.Option("--image", metavar="N", help="The images' height and width.")]
Most = Annotated[int, typer.Option("--most", metavar="LAYERS", help="Deeper networks are not tried.")]


@takes_planning(without=("batch", "dim", "freeze", "train_batchnorm", "loss"))
def max_depth(
    gpu_mem: options.GpuMem,
    planning: Planning,
    batch: Batch = 16,
    image: Image = 224,
    most: Most = MOST_LAYERS,
    max_slowdown: largest.MaxSlowdown = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Find the deepest bottleneck ResNet inside a budget: 6, 32, n and 6 blocks, and n as large as it fits."""
    arguments.at_least("--batch", batch, 1, MOST_SIZE)
    arguments.at_least("--image", image, 32, MOST_SIZE)
    arguments.at_least("--most", most, depth(1))
    arguments.at_least("--max-slowdown", max_slowdown, 1)
    budget = arguments.size("--gpu-mem", gpu_mem, planning.notes) or 0
    from snplan import models
    from snplan.compiler import prepare
    from snplan.explore.largest import as_planned
    from snplan.frontend import load_model

    chosen = planning.options(budget)
    planned = as_planned(chosen)

    def make(blocks: int) -> Prepared:
        built = models.build("resnet", batch=batch, light=True, image=image, blocks=(FIRST, SECOND, blocks, LAST))
        return prepare(load_model(built.SerializeToString(deterministic=True)), planned)

    largest_count = (most - depth(0)) // LAYERS_A_BLOCK
    sizes = largest.Sizes(name="blocks", make=make, most=largest_count)
    result = largest.search(sizes, chosen, max_slowdown, quiet=quiet)
    layers = None if result.found is None else depth(result.found.size)
    facts = {
        "layers": layers,
        "batch": batch,
        "image": image,
        "budget_bytes": budget,
        "device": chosen.device,
        "strategy": chosen.strategy,
        "max_slowdown": max_slowdown,
    }
    rows = [] if layers is None else [("layers", f"{layers:,}")]
    return largest.show("blocks", result, facts, planning.notes, as_json=json, quiet=quiet, samples=batch, rows=rows)


def depth(blocks: int) -> int:
    """Layers of the network with so many blocks in its third stage: three a block, the first and the last."""
    return LAYERS_A_BLOCK * (FIRST + SECOND + blocks + LAST) + LAYERS_AROUND
