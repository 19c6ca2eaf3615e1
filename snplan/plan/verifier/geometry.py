"""Rule A: extents are aligned and inside their arena, arenas are inside the budget."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from snplan.plan.model import Extent, StepPlan
from snplan.plan.verifier.findings import Findings
from snplan.units import GRANULE


def check_geometry(plan: StepPlan, budget: int | None, found: Findings) -> None:
    """Reports extents off the granule or outside their arena, and an arena that the budget does not hold.

    `budget` in bytes replaces the plan's own. Whether live extents overlap is for the replay to say.
    """
    _check_arena("buffer", plan.buffers, plan.arena_bytes, found)
    _check_arena("slot", plan.slots, plan.host_arena_bytes, found)
    _check_pools(plan, found)
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


def _check_pools(plan: StepPlan, found: Findings) -> None:
    """Slots are in pools that the device has, each pool in a part of the host arena of its own and within its room."""
    room = _rooms(plan.device.get("pools", []))
    parts: dict[str, list[Extent]] = {}
    for extent in plan.slots:
        if extent.pool is not None or room:
            parts.setdefault(extent.pool or "", []).append(extent)
    for extent in plan.buffers:
        if extent.pool is not None:
            found.add("A", f"buffer {extent.id}", "is in a pool; only slots are")
    spans = []
    for name, extents in parts.items():
        low, high = min(e.offset for e in extents), max(e.offset + e.bytes for e in extents)
        spans.append((low, high, name))
        if name not in room:
            found.add("A", f"slot {extents[0].id}", f"is in pool {name!r}, which the device does not have")
        elif high - low > room[name]:
            found.add("A", f"pool {name}", f"its slots take {high - low} bytes, it has {room[name]}")
    for (_, high, name), (low, _, other) in pairwise(sorted(spans)):
        if low < high:
            found.add("A", f"pool {other}", f"shares bytes of the host arena with pool {name!r}")


def _rooms(rows: object) -> dict[str, int]:
    """Pool name -> bytes, of those that are described as they should be."""
    if not isinstance(rows, list):
        return {}
    described = [row for row in rows if isinstance(row, dict)]
    return {row["name"]: row["bytes"] for row in described if isinstance(row.get("name"), str) and _is_size(row)}


def _is_size(row: dict[str, object]) -> bool:
    return isinstance(row.get("bytes"), int)
