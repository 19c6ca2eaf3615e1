"""Budget against predicted time: plans at many budgets, each at least as fast as those of the budgets below it.

A plan for one budget is a plan for every higher one. The planner is a heuristic and may miss that, so a sweep carries
the fastest plan so far to the budgets above it and says at which budget each plan was found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from snplan.compiler import CompileOptions, Prepared, Progress, plan_options, plan_prepared
from snplan.errors import InfeasibleError, NoPlanError
from snplan.strategies.registry import AUTO
from snplan.units import GRANULE

FEASIBLE, INFEASIBLE, UNKNOWN = "feasible", "infeasible", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a plan needs, predicts and does; `found_at_bytes` is the budget that it was planned for."""

    found_at_bytes: int
    arena_bytes: int
    host_bytes: int
    step_time_us: int
    offload_bytes: int
    prefetch_bytes: int
    recompute_ops: int
    recompute_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One budget of a sweep: `figures` are of its plan, None where there is none.

    `status` is "feasible", "infeasible" (the budget is under the floor: proven) or "unknown" (no plan was found).
    `lower_bound_us` bounds the step time of every plan within the budget.
    """

    budget_bytes: int
    status: str
    lower_bound_us: int | None = None
    figures: Figures | None = None


def default_budgets(prepared: Prepared, options: CompileOptions, count: int) -> list[int]:
    """`count` budgets, evenly spread from the floor with the reserve to what the keep-all plan takes with it."""
    reserve = prepared.reserve(options)
    low, high = prepared.lowest.bytes, max(prepared.lowest.bytes, prepared.everything.arena_bytes)
    if count == 1 or low == high:
        return [high + reserve]
    steps = (low + (high - low) * i // (count - 1) for i in range(count))
    spread = {min(high, -(-step // GRANULE) * GRANULE) + reserve for step in steps}
    return sorted(spread)


def fingerprint(prepared: Prepared, options: CompileOptions) -> str:
    """Sixteen hexadecimal digits that tell apart all that decides a plan besides model and budget."""
    from snplan import __version__

    decides = [__version__, plan_options(options), prepared.device.summary(), prepared.reserve(options)]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


def sweep(
    prepared: Prepared,
    options: CompileOptions,
    budgets: Iterable[int],
    *,
    known: Sequence[Point] = (),
    progress: Progress = lambda what, share: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Point]:
    """Each point that is not `known`, in order of its budget, as soon as it is planned; ends where `interrupted`.

    What is yielded is the planner's own answer: `carried` gives each point the best plan of the budgets up to it. Where
    a lower budget's plan takes no longer than the ops alone, no plan is faster, and it is the answer.
    """
    missing = sorted(set(budgets) - {point.budget_bytes for point in known})
    least = sum(prepared.indexed.cost) if options.strategy == AUTO else 0
    fastest = next((p.figures for p in carried(known) if p.figures and p.figures.step_time_us == least), None)
    for number, budget in enumerate(missing):
        share = number / len(missing)

        def told(what: str, _: float | None, *, number: int = number, share: float = share) -> None:
            progress(f"budget {number + 1} of {len(missing)}: {what}", share)

        if fastest is not None and fastest.found_at_bytes <= budget:
            yield Point(budget_bytes=budget, status=FEASIBLE, lower_bound_us=least, figures=fastest)
            continue
        point = plan_point(prepared, replace(options, budget_bytes=budget), told, interrupted)
        if interrupted():  # the planner was stopped short: a later sweep finds better
            return
        yield point
        if point.figures is not None and point.figures.step_time_us == least:
            fastest = point.figures


def plan_point(
    prepared: Prepared, options: CompileOptions, progress: Progress, interrupted: Callable[[], bool]
) -> Point:
    """The point of one budget."""
    try:
        result = plan_prepared(prepared, options, progress=progress, interrupted=interrupted)
    except InfeasibleError:
        return Point(budget_bytes=options.budget_bytes, status=INFEASIBLE)
    except NoPlanError:
        return Point(budget_bytes=options.budget_bytes, status=UNKNOWN)
    report = result.report
    figures = Figures(
        found_at_bytes=options.budget_bytes,
        **{name: report[name] for name in Figures.__slots__ if name != "found_at_bytes"},
    )
    return Point(
        budget_bytes=options.budget_bytes,
        status=FEASIBLE,
        lower_bound_us=report["lower_bound_us"],
        figures=figures,
    )


def carried(points: Iterable[Point]) -> list[Point]:
    """The points by budget, each with the fastest plan of those up to it; predicted time never rises."""
    best: Figures | None = None
    found = []
    for point in sorted(points, key=lambda point: point.budget_bytes):
        own = point.figures
        if own is not None and (best is None or own.step_time_us < best.step_time_us):
            best = own
        found.append(point if best is None else replace(point, status=FEASIBLE, figures=best))
    return found
