"""Why a budget was refused, for people: what was wanted, what there is, what holds the memory, what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from snplan.units import format_bytes

_FIGURES = (
    ("wanted_bytes", "wanted"),
    ("budget_bytes", "budget"),
    ("reserve_bytes", "reserve in it"),
    ("floor_bytes", "floor"),
    ("keep_all_bytes", "keep-all plan"),
    ("peak_live_bytes", "peak live"),
    ("largest_hole_bytes", "largest hole"),
    ("baseline_bytes", "no reuse (baseline)"),
    ("host_needed_bytes", "host memory wanted"),
)
_SHOWN_TENSORS = 5


def refusal_lines(details: Mapping[str, Any]) -> list[str]:
    """Lines with the figures of a refused budget, the op where it binds and the largest tensors there.

    `details` are those of an InfeasibleError; a figure that it lacks is left out.
    """
    lines = [
        f"  {label:<20}{format_bytes(details[key])}" for key, label in _FIGURES if isinstance(details.get(key), int)
    ]
    if details.get("binding"):
        lines.append(f"  {'binding op':<20}{details['binding']}")
    return [*lines, *_live_lines(details.get("live_at_binding") or ()), *_advice(details)]


def _live_lines(live: Sequence[Mapping[str, Any]]) -> list[str]:
    shown = live[:_SHOWN_TENSORS]
    return [
        f"  {'live there' if i == 0 else '':<20}{t['tensor']}: {format_bytes(t['bytes'])}" for i, t in enumerate(shown)
    ]


def _advice(details: Mapping[str, Any]) -> list[str]:
    floor = details.get("floor_bytes")
    if not isinstance(floor, int):
        return []
    least = floor + int(details.get("reserve_bytes") or 0)
    return [
        f"  {'what to change':<20}--gpu-mem of {format_bytes(least)} or more, a smaller --batch, or a lower --precision"
    ]
