"""The independent checker of step plans: it knows the plan's rules (docs/plan-file.md) and nothing of the planner.

Rules, by the letter that findings carry
  F  names and ids are unique and known, `after` edges point back to stream actions, streams and fields make sense, the
     model has a sha256 and a file name, the device a name and a capacity
  S  a tensor's bytes are those of its element type and shape, roles are known, views keep the number of elements
  A  extents are aligned and inside their arena, arena and reserve are inside the budget, tensors fit their places
  L  no access outside a buffer's live interval, live buffers share no bytes, what is allocated is freed
  V  every read finds the tensor that it names; ops read and write what the op table says; in place is harmless
  O  every op runs once before it is recomputed, only forward ops are, an op's algorithm never changes
  R  two accesses to overlapping bytes, one of them a write, are ordered by streams and `after` edges
  P  the plan's own peak and times are possible
  E  sources are resident at the start; results are in place at the end, and the next step finds what it needs

Rule K, that ops are what the op table says, is asked beside these in `snplan.verify`.

A plan without findings computes what its op table says, in its budget, however its streams are timed. Time grows
nearly linearly with the number of actions.
"""

from __future__ import annotations

from snplan.plan.model import StepPlan
from snplan.plan.verifier.ends import check_end, check_start
from snplan.plan.verifier.findings import Finding, Findings
from snplan.plan.verifier.geometry import check_geometry
from snplan.plan.verifier.replay import Replay
from snplan.plan.verifier.tables import build_tables, check_tables

__all__ = ["Finding", "verify"]


def verify(plan: StepPlan, *, budget: int | None = None, limit: int = 1000) -> list[Finding]:
    """What is wrong with `plan`, at most `limit` findings in the order in which they are met; empty for a sound plan.

    `budget` in bytes replaces the plan's own, to ask whether the plan fits another limit.
    """
    found = Findings(limit=limit)
    tables = build_tables(plan, found)
    check_tables(plan, tables, found)
    check_geometry(plan, budget, found)
    check_start(plan, tables, found)
    replay = Replay(plan, tables, found)
    replay.place_residents()
    replay.replay()
    replay.check_totals()
    check_end(replay)
    return found.kept
