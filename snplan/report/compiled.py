"""What `snplan compile` shows about the plan that it made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from snplan.ir import Role
from snplan.plan.model import StepPlan
from snplan.plan.timeline import live_set, peak_moment
from snplan.report.fates import fates
from snplan.report.tables import facts, live_tensors, shares
from snplan.units import format_bytes, format_us

if TYPE_CHECKING:
    from rich.table import Table

TOP = 5


def compile_tables(plan: StepPlan, report: Mapping[str, Any]) -> list[Table]:
    """Tables of memory, time, fates, the peak and the passes; `report` has the keys of `compile --json`."""
    held = live_set(plan, peak_moment(plan))
    return [
        facts("plan", _plan_rows(plan, report)),
        facts("memory", _memory_rows(report)),
        facts("time", _time_rows(report)),
        facts("tensors that backward needs", _fate_rows(plan)),
        shares(f"at the peak ({report['binding']})", report["breakdown_bytes"]),
        live_tensors("largest at the peak", held, TOP),
        facts("seconds", ((name, f"{seconds:.2f}") for name, seconds in report["seconds"].items())),
    ]


def _plan_rows(plan: StepPlan, report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "file", str(report["plan"])
    yield "model", f"{plan.model.name}: {report['ops']:,} ops, {report['tensors']:,} tensors"
    yield "device", str(plan.device.get("name", "unknown"))
    yield "strategy", str(report["strategy"])
    yield "math mode", str(plan.options.get("precision", "fp32"))
    yield "actions", ", ".join(f"{count:,} {kind}" for kind, count in report["actions"].items() if count)
    yield from _frozen_rows(plan)


def _frozen_rows(plan: StepPlan) -> Iterator[tuple[str, str]]:
    """What `--freeze` saves: gradients, and optimiser state as the trained parameters have it."""
    becomes = {entry.tensor: entry.becomes for entry in plan.persistent}
    kept = [row for row in plan.tensors if row.name in becomes]
    gradients = {f"{name}:grad" for name in becomes} & {row.name for row in plan.tensors}
    frozen = [row.bytes for row in kept if row.role == Role.PARAMETER and f"{row.name}:grad" not in gradients]
    if not (plan.options.get("freeze") and frozen):
        return
    states = sum(row.role == Role.OPTIMIZER for row in kept) // max(1, len(gradients))
    saved = format_bytes(sum(frozen) * (1 + states))
    yield "frozen", f"{len(frozen):,} parameters; {saved} of gradients and optimizer state less"


def _memory_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "no reuse (baseline)", format_bytes(report["baseline_bytes"])
    yield "keep-all", format_bytes(report["keep_all_bytes"])
    yield "budget", f"{format_bytes(report['budget_bytes'])}, {format_bytes(report['reserve_bytes'])} of it reserved"
    yield "arena", format_bytes(report["arena_bytes"])
    lost = report["arena_bytes"] - report["peak_live_bytes"]
    yield "peak live", f"{format_bytes(report['peak_live_bytes'])}; fragmentation {format_bytes(lost)}"
    yield "floor", format_bytes(report["floor_bytes"])
    yield "pinned host", format_bytes(report["host_bytes"])


def _time_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    step, bound, keep_all = report["step_time_us"], report["lower_bound_us"], report["keep_all_step_time_us"]
    gap = f"{step / bound - 1:.1%} above it" if bound else "no gap known"
    yield "predicted step", format_us(step)
    yield "lower bound", f"{format_us(bound)}; the plan is {gap}"
    slower = f"; the plan is {step / keep_all - 1:+.1%}" if keep_all else ""
    yield "keep-all step", f"{format_us(keep_all)}{slower}"
    yield "recomputed", f"{report['recompute_ops']:,} ops, {format_us(report['recompute_us'])}"
    yield "moved out, in", f"{format_bytes(report['offload_bytes'])}, {format_bytes(report['prefetch_bytes'])}"
    yield "waiting", format_us(report["stall_us"])


def _fate_rows(plan: StepPlan) -> Iterator[tuple[str, str]]:
    for name, fate in fates(plan).items():
        yield name.replace("_", ", "), f"{fate.tensors:,} tensors, {format_bytes(fate.bytes)}"
