"""Floor: plans at exactly the floor are sound and use it to the byte; fragmentation at keep-all and in the middle.

An outside checker of plans judges them where the setting SNPLAN_SHARED, or the folder `shared` beside the checkout, has
one (`accept/judge.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from planner_common import ZOO, Outcome, gib, judged, planned, prepared, row

HEADER = ("network", "ops", "floor", "keep-all", "arena/floor", "frag keep-all", "frag middle", "s", "")
WIDTHS = (16, 7, 9, 10, 13, 15, 13, 8, 30)
MIDDLE = 0.005  # of the budget


def section(words: Sequence[str]) -> Outcome:
    """One line for each network of the zoo (those named in `words` where there are any)."""
    judge = _judge()
    print(row(HEADER, WIDTHS))
    reached = True
    for network, build in ZOO.items():
        if words and network not in words:
            continue
        step = prepared(network, **build)
        lowest, everything = step.lowest.bytes, step.everything.body
        plan, seconds = planned(step, lowest)
        middle, more = planned(step, (lowest + everything.arena_bytes) // 2)
        kept = everything.arena_bytes - everything.peak_live_bytes
        lost = (middle.plan.arena_bytes - middle.plan.peak_live_bytes) / middle.plan.budget_bytes
        finding = judged(plan, judge) or judged(middle, judge)
        good = plan.plan.arena_bytes == lowest and kept == 0 and lost <= MIDDLE and finding is None
        reached = reached and good
        facts = [network, len(step.indexed.ops), gib(lowest), gib(everything.arena_bytes)]
        facts += [f"{plan.plan.arena_bytes / lowest:.4f}", kept, f"{lost:.2%}", f"{seconds + more:.1f}"]
        print(row([*facts, "  ok" if good else f"  MISSED {finding or ''}"], WIDTHS), flush=True)
    return Outcome(reached=reached, lines=() if judge else ("no outside checker was found",))


def _judge() -> Path | None:
    folder = Path(os.environ.get("SNPLAN_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    file = folder / "accept" / "judge.py"
    return file if file.exists() else None
