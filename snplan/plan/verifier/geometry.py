"""Rule A: extents are aligned and inside their arena, arenas are inside the budget."""

from __future__ import annotations

from collections.abc import Iterable

from snplan.plan.model import Extent, StepPlan
from snplan.plan.verifier.findings import Findings
from snplan.units import GRANULE


def check_geometry(plan: StepPlan, budget: int | None, found: Findings) -> None:
    """Reports extents off the granule or outside their arena, and an arena that the budget does not hold.

    `budget` in bytes replaces the plan's own. Whether live extents overlap is for the replay to say.
    """
    _check_arena("buffer", plan.buffers, plan.arena_bytes, found)
    _check_arena("slot", plan.slots, plan.host_arena_bytes, found)
    limit = plan.budget_bytes if budget is None else budget
    taken = plan.arena_bytes + plan.reserve_bytes
    if taken > limit:
        found.add("A", "plan", f"arena {plan.arena_bytes} + reserve {plan.reserve_bytes} exceed the budget {limit}")
    if plan.floor_bytes > taken:
        found.add("A", "plan", f"floor_bytes {plan.floor_bytes} is above what the plan takes, {taken} bytes")


def _check_arena(what: str, extents: Iterable[Extent], arena: int, found: Findings) -> None:
    for extent in extents:
        where = f"{what} {extent.id}"
        if extent.offset < 0 or extent.bytes <= 0 or extent.offset % GRANULE or extent.bytes % GRANULE:
            found.add("A", where, f"offset {extent.offset}, bytes {extent.bytes}: not positive multiples of {GRANULE}")
        if extent.offset + extent.bytes > arena:
            found.add("A", where, f"reaches byte {extent.offset + extent.bytes} of an arena of {arena} bytes")
