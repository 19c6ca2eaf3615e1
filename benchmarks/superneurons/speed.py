"""Figure 11: speed with and without the tensor cache, as simulated."""

from __future__ import annotations

from typing import Any

from snplan.compiler import plan_prepared
from snplan.report.chart import Bar, bar_chart
from superneurons.networks import SIX, TITLES
from superneurons.result import Cell, Check, Result
from superneurons.steps import DEVICE, PAPER_BATCH, options, prepared

BUDGET = 12 << 30
BATCH = 32
LINEAR = ("alexnet", "vgg16")
RESIDUAL = ("resnet50", "resnet101", "resnet152")


def planned(name: str, strategy: str) -> dict[str, Any]:
    """The report of a strategy's verified plan in 12 GB, at Figure 11's batch."""
    return plan_prepared(prepared(name, PAPER_BATCH.get(name, BATCH)), options(BUDGET, strategy)).report


def fig11() -> Result:
    """Figure 11: step times of the paper's passes with and without the cache, and what is moved."""
    rows: list[list[Cell]] = []
    loss: dict[str, float] = {}
    moved_with = 0
    for name in SIX:
        cached, plain = planned(name, "superneurons"), planned(name, "superneurons:-cache")
        moved_with += cached["offload_bytes"] + cached["prefetch_bytes"]
        loss[name] = 100 * (1 - cached["step_time_us"] / plain["step_time_us"])
        moved = (plain["offload_bytes"] + plain["prefetch_bytes"]) / 1e9
        times = (cached["step_time_us"] / 1000, plain["step_time_us"] / 1000)
        rows.append([TITLES[name], PAPER_BATCH.get(name, BATCH), *times, moved, 1 - loss[name] / 100, loss[name]])
    worst_linear = max(loss[name] for name in LINEAR)
    return Result(
        name="fig11",
        title="speed without the tensor cache, normalised to the speed with it",
        columns=("network", "batch", "ms with", "ms without", "GB moved without", "speed", "lost %"),
        digits=2,
        rows=rows,
        checks=[
            Check(what="with the cache nothing moves", passed=moved_with == 0),
            Check(
                what="ResNets lose more than AlexNet and VGG16", passed=min(loss[n] for n in RESIDUAL) > worst_linear
            ),
        ],
        notes=(
            f"Strategy superneurons with and without its cache, 12 GiB, verified plans, simulated with {DEVICE} data.",
            f"Up to {max(loss.values()):.1f} % is lost here; published: up to 33.33 %. The figure has no other numbers "
            "in the text.",
        ),
        charts={
            "fig11": bar_chart(
                "Figure 11: speed without the tensor cache",
                "of the speed with it",
                [Bar(name=TITLES[name], value=1 - each / 100) for name, each in loss.items()],
            )
        },
    )
