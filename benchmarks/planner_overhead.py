"""Overhead: MONeT's networks at the shares of keep-all memory that it published, against half of its slow-down.

MONeT (Shah et al., ICLR 2021) measured on a P100: recompute, in-place and engine choice by integer programs of up to a
day. Where no plan can reach a bar, the bound shows it: `bound` is what the certificate of the plan proves, `engines`
what ops lose at least because their fastest engine's workspace does not fit beside what they read and write.

Each case is planned twice: as `compile` does by default, and with `--conv-pieces 8`. One of them is to reach the bar.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner_common import Outcome, gib, planned, prepared, row

from snplan.analysis.floor import working_set
from snplan.analysis.index import IndexedStep
from snplan.compiler import CompileResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A network, the share of keep-all memory, and the slow-down in percent that is the bar."""

    network: str
    batch: int
    device: str
    share: float
    bar: float


CASES = (
    Case(network="resnet50", batch=184, device="p100", share=0.53, bar=5.56 / 2),
    Case(network="resnet50", batch=184, device="p100", share=0.33, bar=11.95 / 2),
    Case(network="googlenet", batch=320, device="p100", share=0.54, bar=8.44 / 2),
    Case(network="googlenet", batch=320, device="p100", share=0.33, bar=15.77 / 2),
    Case(network="mobilenet_v2", batch=272, device="p100", share=0.55, bar=4.77 / 2),
    Case(network="mobilenet_v2", batch=272, device="p100", share=0.35, bar=8.72 / 2),
    Case(network="unet", batch=11, device="p100", share=0.70, bar=2.0),
    Case(network="unet", batch=11, device="p100", share=0.35, bar=11.51 / 2),
    Case(network="vgg16", batch=176, device="p100", share=0.69, bar=2.0),
    Case(network="vgg16", batch=176, device="p100", share=0.39, bar=9.11 / 2),
    Case(network="resnet50", batch=184, device="h200", share=0.53, bar=7.0),
    Case(network="resnet50", batch=184, device="h200", share=0.33, bar=13.0),
)

HEADER = (
    *("network", "device", "share", "pieces", "budget", "slower", "bar", "bound", "engines"),
    *("moved", "again ms", "stall ms", "s", ""),
)
WIDTHS = (16, 7, 6, 7, 8, 8, 7, 7, 8, 7, 9, 9, 6, 14)
PIECES = (1, 8)


def section(words: Sequence[str]) -> Outcome:
    """The table of `CASES`, those of the networks and devices named in `words` only where there are any."""
    print(row(HEADER, WIDTHS))
    reached = True
    for case in CASES:
        if words and case.network not in words and case.device not in words:
            continue
        lines = [line(case, pieces) for pieces in PIECES]
        reached = reached and any(lines)
    return Outcome(reached=reached)


def line(case: Case, pieces: int) -> bool:
    """Print one line; whether its plan, with convolutions in at most so many pieces, reaches the bar.

    A bound above the bar is shown, and misses it all the same.
    """
    step = prepared(case.network, device=case.device, batch=case.batch, conv_pieces=pieces)
    base = step.everything
    budget = int(base.body.arena_bytes * case.share)
    result, seconds = planned(step, budget)
    slower = percent(result.plan.step_time_us, base.step_us)
    bound = percent(result.plan.lower_bound_us, base.step_us)
    engines = 100 * engine_loss(step.indexed, budget) / base.step_us
    print(row(cells(case, pieces, result, budget, (slower, bound, engines), seconds), WIDTHS), flush=True)
    return slower <= case.bar


def cells(
    case: Case,
    pieces: int,
    result: CompileResult,
    budget: int,
    figures: tuple[float, float, float],
    seconds: float,
) -> Sequence[object]:
    """The cells of one line."""
    slower, bound, engines = figures
    short = f"MISSED, bound {max(bound, engines):.2f}%" if max(bound, engines) > case.bar else "MISSED"
    return (
        f"{case.network} {case.batch}",
        case.device,
        f"{case.share:.0%}",
        pieces,
        gib(budget),
        f"{slower:.2f}%",
        f"{case.bar:.2f}%",
        f"{bound:.2f}%",
        f"{engines:.2f}%",
        gib(result.report["offload_bytes"]),
        f"{result.report['recompute_us'] / 1000:.1f}",
        f"{result.report['stall_us'] / 1000:.1f}",
        f"{seconds:.1f}",
        "  ok" if slower <= case.bar else f"  {short}",
    )


def percent(time: int, base: int) -> float:
    """How much longer `time` is than `base`, in percent."""
    return 100 * (time / base - 1)


def engine_loss(step: IndexedStep, budget: int) -> int:
    """Microseconds that ops take longer at least, because the workspace of their fastest engine does not fit."""
    loss = 0
    for op, engines in enumerate(step.engines):
        if engines:
            room = budget - working_set(step, op) + engines[0].workspace
            loss += min(engine.us for engine in engines if engine.workspace <= room) - step.cost[op]
    return loss
