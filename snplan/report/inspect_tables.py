"""The tables of `snplan inspect`, from the plain data of `snplan.report.inspected`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from snplan.plan.timeline import Held
from snplan.report.tables import facts, live_tensors, shares
from snplan.units import format_bytes, format_us

if TYPE_CHECKING:
    from rich.table import Table

TOP = 10


def summary_tables(data: Mapping[str, Any]) -> list[Table]:
    """Tables of a plan's totals, its tensors' fates and its peak."""
    peak = data["peak"]
    return [
        facts("plan", _plan_rows(data)),
        facts("memory and time", _totals(data)),
        facts("tensors that backward needs", _fates(data["fates"])),
        shares(f"at the peak (action {peak['time']}, {data['binding']})", data["breakdown_bytes"]),
        live_tensors("largest at the peak", [Held(**row) for row in peak["live"]], TOP),
    ]


def moment_tables(data: Mapping[str, Any]) -> list[Table]:
    """Tables of one moment: its action and everything that is live."""
    held = [Held(**row) for row in data["live"]]
    rows = [("action", data["action"] or "none yet"), ("live", format_bytes(data["live_bytes"]))]
    return [facts(f"time {data['time']}", rows), live_tensors("live buffers", held, len(held))]


def tensor_tables(data: Mapping[str, Any]) -> list[Table]:
    """Tables of one tensor: what it is, where it is when, and what touches it."""
    return [
        facts("tensor", _tensor_rows(data)),
        facts("where it is", map(_stay_row, data["stays"])),
        facts("actions", ((str(number), text) for number, text in data["actions"])),
    ]


def _plan_rows(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "model", f"{data['model']['name']} (sha256 {data['model']['sha256']})"
    yield "device", str(data["device"])
    yield (
        "options",
        ", ".join(f"{name} {value}" for name, value in data["options"].items() if value not in (None, [], {})),
    )
    yield (
        "size",
        f"{data['ops']:,} ops, {data['tensors']:,} tensors, {data['buffers']:,} buffers, {data['slots']:,} slots",
    )
    yield "actions", ", ".join(f"{count:,} {kind}" for kind, count in data["actions"].items() if count)


def _totals(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "budget", f"{format_bytes(data['budget_bytes'])}, {format_bytes(data['reserve_bytes'])} of it reserved"
    yield "arena", format_bytes(data["arena_bytes"])
    yield "peak live", format_bytes(data["peak_live_bytes"])
    yield "floor", format_bytes(data["floor_bytes"])
    yield "pinned host", format_bytes(data["host_arena_bytes"])
    for name, size in data.get("pool_bytes", {}).items():
        yield f"in pool {name}", format_bytes(size)
    yield "predicted step", format_us(data["step_time_us"])
    yield "lower bound", format_us(data["lower_bound_us"])
    yield "moved out, in", f"{format_bytes(data['offload_bytes'])}, {format_bytes(data['prefetch_bytes'])}"


def _fates(data: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, str]]:
    for name, fate in data.items():
        yield name.replace("_", ", "), f"{fate['tensors']:,} tensors, {format_bytes(fate['bytes'])}"


def _tensor_rows(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "name", data["name"]
    yield "type", f"{data['dtype']}{data['shape']}, {format_bytes(data['bytes'])}, {data['role']}"
    yield "written by", ", ".join(data["written_by"]) or "nothing: it is there when the step starts"
    yield "read by", ", ".join(data["read_by"]) or "nothing"


def _stay_row(stay: Mapping[str, Any]) -> tuple[str, str]:
    place = f"buffer {stay['buffer']}" if stay["buffer"] is not None else f"host slot {stay['slot']}"
    return f"{stay['start']} to {stay['end']}", place
