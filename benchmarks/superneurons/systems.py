"""Tables 4 and 5 and Figure 13: how deep and how wide each system's rule gets in 12 GB, float32, by live bytes alone.

A strategy that is given no room says how many bytes it needs at least: the live bytes of its schedule once all has left
that its rule lets leave. Those are compared with the budget less the device's reserve; addresses are not assigned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from snplan.compiler import plan_prepared
from snplan.errors import InfeasibleError
from snplan.report.chart import Bar, bar_chart
from snplan.strategies.base import Task
from snplan.strategies.registry import STRATEGIES
from superneurons.memory import baseline
from superneurons.networks import SIX, TITLES, network
from superneurons.result import Cell, Check, Result
from superneurons.steps import DEVICE, options, prepared
from superneurons.trace import trace

if TYPE_CHECKING:
    from snplan.compiler import Prepared

GIB = 1 << 30
BUDGET = 12 * GIB
SYSTEMS = {
    "caffe": "Caffe",
    "mxnet": "MXNet",
    "torch": "Torch",
    "tensorflow": "TensorFlow",
    "superneurons": "SuperNeurons",
}
"""Strategy -> the paper's name, in the order of its tables."""

DEPTH_BATCH = 16
STAGES = (6, 32, 6)
"""Residual blocks of the first, second and last stage of Table 4's networks; those of the third are varied."""
PROBES = (32, 64, 128)
EVALUATED = 596
"""Blocks of the third stage; 596 make a depth of 1922, the first that is at least the published 1920."""
UNITS = 2500
"""Residual units that SuperNeurons trains at batch 1 (section 4.2)."""

PUBLISHED_DEPTH = {"caffe": 148, "mxnet": 480, "torch": 152, "tensorflow": 592, "superneurons": 1920}

PUBLISHED_BATCH: Mapping[str, Mapping[str, int | None]] = {
    "alexnet": {"caffe": 768, "mxnet": 768, "torch": 1024, "tensorflow": 1408, "superneurons": 1792},
    "vgg16": {"caffe": 48, "mxnet": 64, "torch": 48, "tensorflow": 80, "superneurons": 224},
    "inception_v4": {"caffe": 16, "mxnet": None, "torch": None, "tensorflow": 64, "superneurons": 240},
    "resnet50": {"caffe": 24, "mxnet": 80, "torch": 32, "tensorflow": 128, "superneurons": 384},
    "resnet101": {"caffe": 16, "mxnet": 48, "torch": 16, "tensorflow": 80, "superneurons": 256},
    "resnet152": {"caffe": 16, "mxnet": 32, "torch": 16, "tensorflow": 48, "superneurons": 176},
}


def needed_bytes(strategy: str, step: Prepared) -> int:
    """The fewest bytes of live tensors that a strategy's plan of this step can have."""
    task = Task(step=step.indexed, costs=step.costs, budget=1, floor=step.lowest)
    try:
        STRATEGIES[strategy]().plan(task)
    except InfeasibleError as refusal:
        return int(refusal.details["wanted_bytes"])
    return 1


def _needed(strategy: str, make: Callable[[], Prepared], room: int) -> int:
    """What a step needs; twice the room for a step with a convolution beyond what cuDNN addresses."""
    try:
        step = make()
    except InfeasibleError:
        return 2 * room
    return needed_bytes(strategy, step)


def largest(needed: Callable[[int], int], room: int, guess: int) -> int:
    """The largest count from 1 whose need fits the room, 0 when there is none; the need grows with the count.

    Interpolates between a count that fits and one that does not, and halves what is left every third time.
    """
    low, high = (0, 0), (0, 0)
    count = max(1, guess)
    for turn in range(200):
        need = needed(count)
        if need <= room:
            low = (count, need)
        else:
            high = (count, need)
        if not high[0]:
            count *= 2
        elif high[0] - low[0] <= 1:
            break
        elif turn % 3 == 2:
            count = (low[0] + high[0]) // 2
        else:
            count = low[0] + (high[0] - low[0]) * (room - low[1]) // (high[1] - low[1])
            count = min(max(count, low[0] + 1), high[0] - 1)
    return low[0]


def verified_gib(strategy: str, step: Prepared) -> float | None:
    """GiB of the arena of a strategy's placed and verified plan in 12 GB; None when it is refused."""
    try:
        report = plan_prepared(step, options(BUDGET, strategy)).report
    except InfeasibleError:
        return None
    return int(report["arena_bytes"]) / GIB


def _room(step: Prepared) -> int:
    return BUDGET - step.device.reserve_bytes


@cache
def largest_batch(strategy: str, name: str) -> int:
    """The largest batch of a network whose live bytes fit 12 GB."""
    _tell(f"largest batch of {TITLES[name]}, {strategy}")
    room = _room(prepared(name, 1))
    guess = PUBLISHED_BATCH[name][strategy] or 64
    return largest(lambda batch: _needed(strategy, lambda: prepared(name, batch), room), room, guess)


def depth_of(third: int) -> int:
    """The depth of Table 4's network with so many blocks in the third stage."""
    return 3 * (sum(STAGES) + third) + 2


def _deep(third: int, batch: int) -> Prepared:
    first, second, last = STAGES
    return prepared(f"resnet:{first},{second},{third},{last}", batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deepest:
    """The deepest network of Table 4 that fits a strategy, and whether that depth itself was evaluated."""

    depth: int
    evaluated: bool


@cache
def deepest(strategy: str) -> Deepest:
    """The deepest network of Table 4 that fits 12 GB at batch 16.

    Every further block is alike, so needs are tried at three depths and taken to go on along their line. Both sides of
    the limit are evaluated where it is at most `EVALUATED` blocks; else the line is checked there.
    """
    _tell(f"deepest ResNet, {strategy}")
    room = _room(_deep(1, DEPTH_BATCH))

    @cache
    def needed(third: int) -> int:
        return _needed(strategy, lambda: _deep(third, DEPTH_BATCH), room)

    first, second, third = PROBES
    slope = (needed(third) - needed(second)) // (third - second)
    limit = third + (room - needed(third)) // slope
    last = min(limit, EVALUATED)
    if any(needed(third) - needed(count) != slope * (third - count) for count in (first, last)):
        return Deepest(depth=depth_of(largest(needed, room, limit)), evaluated=True)
    if limit > EVALUATED:
        return Deepest(depth=depth_of(limit), evaluated=False)
    return Deepest(depth=depth_of(largest(needed, room, limit)), evaluated=True)


def table4() -> Result:
    """Table 4: the deepest ResNet of each system."""
    found = {system: deepest(system) for system in SYSTEMS}
    ours = {system: each.depth for system, each in found.items()}
    rows: list[list[Cell]] = [
        [SYSTEMS[system], each.depth, "evaluated" if each.evaluated else "along the line", PUBLISHED_DEPTH[system]]
        for system, each in found.items()
    ]
    _tell(f"plan at depth {depth_of(EVALUATED)}, superneurons")
    arena = verified_gib("superneurons", _deep(EVALUATED, DEPTH_BATCH))
    _tell(f"{UNITS} residual units at batch 1")
    huge = _deep(UNITS - sum(STAGES), 1)
    need = needed_bytes("superneurons", huge)
    return Result(
        name="table4",
        title=f"deepest ResNet at batch {DEPTH_BATCH} in 12 GB",
        columns=("system", "depth", "how", "published"),
        rows=rows,
        checks=[
            Check(what="SuperNeurons reaches 1920", passed=ours["superneurons"] >= PUBLISHED_DEPTH["superneurons"]),
            Check(
                what=f"SuperNeurons at depth {depth_of(EVALUATED)}: placed and verified ({arena or 0:.2f} GiB)",
                passed=arena is not None,
            ),
            Check(what=f"{UNITS} residual units at batch 1 fit ({need / GIB:.2f} GiB)", passed=need <= _room(huge)),
        ],
        notes=(
            _setting(),
            "Each further block of the third stage needs the same bytes more. 'evaluated': the limit and the depth "
            f"above it were; 'along the line': computed from {PROBES} blocks, and checked at {EVALUATED} "
            f"(depth {depth_of(EVALUATED)}).",
            *_order_notes("depth", ours, PUBLISHED_DEPTH),
        ),
        charts={"table4": _bars("Table 4: deepest ResNet", "layers", ours)},
    )


def table5() -> Result:
    """Table 5: the largest batch of each system on each network."""
    rows: list[list[Cell]] = []
    checks, notes = [], [_setting()]
    for name in SIX:
        ours = {system: largest_batch(system, name) for system in SYSTEMS}
        published = PUBLISHED_BATCH[name]
        rows.append([TITLES[name], *(f"{ours[system]} / {published[system] or '-'}" for system in SYSTEMS)])
        bar = published["superneurons"] or 0
        checks.append(Check(what=f"{TITLES[name]}: SuperNeurons reaches {bar}", passed=ours["superneurons"] >= bar))
        arena = verified_gib("superneurons", prepared(name, bar))
        checks.append(
            Check(
                what=f"{TITLES[name]}: SuperNeurons at {bar} placed and verified ({arena or 0:.2f} GiB)",
                passed=arena is not None,
            )
        )
        notes += _order_notes(TITLES[name], ours, published)
    return Result(
        name="table5",
        title="largest batch in 12 GB (ours / published)",
        columns=("network", *SYSTEMS.values()),
        rows=rows,
        checks=checks,
        notes=notes,
    )


def fig13() -> Result:
    """Figure 13: the memory that the batches of Table 5 would need without any reuse."""
    rows: list[list[Cell]] = []
    ratios = []
    least = sys.maxsize
    for name in SIX:
        need = {system: baseline_gib(name, PUBLISHED_BATCH[name][system]) for system in SYSTEMS}
        ours = baseline_gib(name, largest_batch("superneurons", name)) or 0.0
        rows.append([TITLES[name], *need.values(), ours])
        ratios.append((need["superneurons"] or 0.0) / (need["caffe"] or 1.0))
        least = min(least, int((need["superneurons"] or 0.0) * GIB))
    return Result(
        name="fig13",
        title="GiB without reuse (sum of all layers' tensors) at the batches of Table 5",
        columns=("network", *SYSTEMS.values(), "SuperNeurons here"),
        digits=1,
        rows=rows,
        checks=[Check(what="SuperNeurons' batches need more than 12 GB on every network", passed=least > BUDGET)],
        notes=(
            "Layer model, no device: every tensor its own buffer, without weights and workspaces, at the published "
            "batches; the last column at the largest batches of table5 here.",
            f"Up to {max(ratios):.1f}x Caffe's memory; published: 19.8x, with convolution workspaces.",
        ),
        charts={
            "fig13": bar_chart(
                "Figure 13: memory of SuperNeurons' batches",
                "GiB",
                [Bar(name=str(row[0]), value=float(row[5] or 0)) for row in rows],
            )
        },
    )


def baseline_gib(name: str, batch: int | None) -> float | None:
    """GiB of a network's training step when nothing is reused; None without a batch."""
    return round(baseline(trace(network(name, batch))).bytes / GIB, 1) if batch else None


def _setting() -> str:
    return (
        f"Rule-based strategies with {DEVICE} data, float32, plain SGD: the live bytes of each schedule, once all has "
        "left that the rule lets leave, against 12 GiB less the reserve. Only where a check says so is a plan placed."
    )


def _order_notes(what: str, ours: Mapping[str, int], published: Mapping[str, int | None]) -> list[str]:
    """Pairs of systems that are the other way round than published; ties are in no order."""
    pairs = [
        f"{SYSTEMS[low]} {ours[low]} over {SYSTEMS[high]} {ours[high]}"
        for low, high in _pairs(list(SYSTEMS))
        if (published[low] or 0) < (published[high] or 0) and published[low] and ours[low] > ours[high]
    ]
    return [f"{what}, order other than published: {'; '.join(pairs)} (docs/paper.md)"] if pairs else []


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(a, b) for a in names for b in names if a != b]


def _bars(title: str, label: str, values: Mapping[str, int]) -> str:
    return bar_chart(title, label, [Bar(name=SYSTEMS[system], value=value) for system, value in values.items()])


def _tell(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)
