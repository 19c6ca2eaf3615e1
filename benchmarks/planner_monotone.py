"""Monotone: sweeps of 24 budgets from the floor to keep-all; more budget is never slower, nothing is refused.

Every budget is planned on its own: no plan is carried from one budget to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from planner_common import ZOO, Outcome, gib, planned, prepared, row

from snplan.errors import SnplanError

POINTS = 24
HEADER = ("network", "floor", "keep-all", "at floor", "in the middle", "refused", "over", "rises", "worst", "s", "")
WIDTHS = (16, 9, 10, 10, 15, 9, 6, 7, 9, 8, 9)


def section(words: Sequence[str]) -> Outcome:
    """One line for each network of the zoo (those named in `words` where there are any)."""
    print(row(HEADER, WIDTHS))
    reached = True
    for network, build in ZOO.items():
        if words and network not in words:
            continue
        step = prepared(network, **build)
        low, high = step.lowest.bytes, max(step.lowest.bytes, step.everything.body.arena_bytes)
        times: list[int] = []
        refused = over = 0
        seconds = 0.0
        for point in range(POINTS):
            budget = low + (high - low) * point // (POINTS - 1)
            try:
                result, spent = planned(step, budget)
            except SnplanError:
                refused += 1
                continue
            seconds += spent
            over += result.plan.arena_bytes > budget
            times.append(result.plan.step_time_us)
        rises = [after / before - 1 for before, after in pairwise(times) if after > before]
        base = step.everything.step_us
        good = not refused and not over and not rises
        reached = reached and good
        facts: list[object] = [network, gib(low), gib(high)]
        facts += [f"{times[0] / base - 1:.0%}", f"{times[len(times) // 2] / base - 1:.1%}", refused, over, len(rises)]
        facts += [f"{max(rises, default=0):.2%}", f"{seconds:.0f}", "  ok" if good else "  MISSED"]
        print(row(facts, WIDTHS), flush=True)
    return Outcome(reached=reached)
