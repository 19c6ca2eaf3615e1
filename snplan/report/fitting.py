"""Whether a plan fits so many bytes, and how what-if questions are answered for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from snplan.plan.model import StepPlan
from snplan.report.tables import facts
from snplan.units import format_bytes, format_us

if TYPE_CHECKING:
    from rich.table import Table


def fits(plan: StepPlan, size: int) -> dict[str, Any]:
    """Whether `size` bytes of device memory are enough, the reserve among them.

    `this_plan`: the plan as it is; `some_plan`: whether there is a plan of the step, since the floor is always met and
    never undercut (as far as the host has room); `needed_bytes` and `least_bytes` are what the two take.
    """
    needed, least = plan.arena_bytes + plan.reserve_bytes, plan.floor_bytes + plan.reserve_bytes
    return {
        "bytes": size,
        "this_plan": needed <= size,
        "some_plan": least <= size,
        "needed_bytes": needed,
        "least_bytes": least,
    }


def fits_table(data: Mapping[str, Any]) -> Table:
    """The answer of `fits` for people."""
    return facts(f"in {format_bytes(data['bytes'])}", _fits_rows(data))


def _fits_rows(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    needed, least = format_bytes(data["needed_bytes"]), format_bytes(data["least_bytes"])
    yield "this plan", f"{'fits' if data['this_plan'] else 'does not fit'}: it takes {needed} with the reserve"
    if data["some_plan"]:
        yield "the step", f"fits: the least is {least}, the floor with the reserve"
    else:
        yield "the step", f"cannot fit by any plan: the floor with the reserve is {least}"


def more_table(data: Mapping[str, Any]) -> Table:
    """What more memory buys, for people."""
    return facts(f"with {format_bytes(data['more_bytes'])} more", _more_rows(data))


def _more_rows(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "budget", format_bytes(data["budget_bytes"])
    yield "predicted step", format_us(data["step_time_us"])
    if data["better"]:
        yield "saved", f"{format_us(data['saved_us'])} a step, {data['saved_share']:.1%}"
        yield "moved out, in", f"{format_bytes(data['offload_bytes'])}, {format_bytes(data['prefetch_bytes'])}"
        yield "recomputed", f"{data['recompute_ops']:,} ops"
    else:
        yield "saved", "nothing: no faster plan was found"
    yield "lower bound", format_us(data["lower_bound_us"])
    yield "keep-all plan", f"{format_bytes(data['keep_all_bytes'])}, {format_us(data['keep_all_step_time_us'])}"
