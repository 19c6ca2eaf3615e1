"""Gap: every network of the zoo at half of what keep-all takes; no plan can be faster than this one by the bar.

`bound` is the least slow-down against keep-all that the plan's certificate leaves to any plan within the budget, `gap`
how much longer the plan takes than the certificate says any plan must. Where half of keep-all is below the floor, the
budget is the floor, and the line says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner_common import ZOO, Outcome, gib, planned, prepared, row

SHARE = 0.5
BAR = 0.10
HEADER = ("network", "keep-all", "budget", "slower", "bound", "gap", "moved", "again ms", "stall ms", "s")
WIDTHS = (14, 9, 8, 9, 9, 8, 7, 10, 10, 7, 0)


def section(words: Sequence[str]) -> Outcome:
    """One line for each network of the zoo (those named in `words` where there are any)."""
    print(row(HEADER, WIDTHS))
    reached = True
    for network, build in ZOO.items():
        if words and network not in words:
            continue
        step = prepared(network, **build)
        base = step.everything
        half = int(base.body.arena_bytes * SHARE)
        budget = max(half, step.lowest.bytes)
        result, seconds = planned(step, budget)
        time, bound, report = result.plan.step_time_us, result.plan.lower_bound_us, result.report
        good = time < bound * (1 + BAR)
        reached = reached and good
        facts: list[object] = [network, gib(base.body.arena_bytes), gib(budget)]
        facts += [f"{time / base.step_us - 1:.2%}", f"{bound / base.step_us - 1:.2%}", f"{time / bound - 1:.2%}"]
        facts += [gib(report["offload_bytes"]), f"{report['recompute_us'] / 1000:.1f}"]
        facts += [f"{report['stall_us'] / 1000:.1f}", f"{seconds:.1f}"]
        verdict = "ok" if good else "MISSED"
        print(row([*facts, f"  {verdict}{' (at the floor)' if budget > half else ''}"], WIDTHS), flush=True)
    return Outcome(reached=reached)
