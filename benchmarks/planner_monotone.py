"""Monotone: sweeps of 24 budgets from the floor to keep-all; more budget is never slower, nothing is refused.

What counts is the answer of `snplan sweep`, in which a plan of a lower budget stands where the planner misses it. How
often and by how much the planner's own answers rise is shown beside it (`own rises`, `worst`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from planner_common import ZOO, Outcome, gib, prepared, row

from snplan.explore.sweep import Point, carried, default_budgets, sweep

POINTS = 24
HEADER = (
    *("network", "floor", "keep-all", "at floor", "in the middle", "refused", "over"),
    *("rises", "own rises", "worst", "s"),
)
WIDTHS = (16, 9, 10, 10, 15, 9, 6, 7, 11, 8, 8, 9)


def section(words: Sequence[str]) -> Outcome:
    """One line for each network of the zoo (those named in `words` where there are any)."""
    print(row(HEADER, WIDTHS))
    reached = True
    for network, build in ZOO.items():
        if words and network not in words:
            continue
        step = prepared(network, **build)
        begin = time.process_time()
        own = list(sweep(step, replace(step.options, budget_bytes=0), default_budgets(step, step.options, POINTS)))
        seconds = time.process_time() - begin
        points = carried(own)
        refused = sum(point.figures is None for point in points)
        over = sum(point.figures.arena_bytes > point.budget_bytes for point in points if point.figures is not None)
        good = not refused and not over and not rises(points)
        reached = reached and good
        base, found = step.everything.step_us, times(points)
        facts: list[object] = [network, gib(step.lowest.bytes), gib(step.everything.body.arena_bytes)]
        facts += [f"{found[0] / base - 1:.0%}", f"{found[len(found) // 2] / base - 1:.1%}", refused, over]
        facts += [len(rises(points)), len(rises(own)), f"{max(rises(own), default=0):.2%}", f"{seconds:.0f}"]
        print(row([*facts, "  ok" if good else "  MISSED"], WIDTHS), flush=True)
    return Outcome(reached=reached)


def times(points: Sequence[Point]) -> list[int]:
    """Predicted step times, by budget."""
    return [point.figures.step_time_us for point in points if point.figures is not None]


def rises(points: Sequence[Point]) -> list[float]:
    """By how much the time rises from one budget to the next, where it does."""
    return [after / before - 1 for before, after in pairwise(times(points)) if after > before]
