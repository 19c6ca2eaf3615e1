"""What another budget would do for a plan: whether it fits there, and what more memory would buy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from snplan.compiler import CompileOptions, Progress, compile_model
from snplan.errors import PlanError, UsageError
from snplan.plan.model import StepPlan

PLANNED = ("step_time_us", "arena_bytes", "host_bytes", "offload_bytes", "prefetch_bytes", "recompute_ops")


def recorded_options(plan: StepPlan, budget_bytes: int, folders: Sequence[Path]) -> CompileOptions:
    """The options that a plan was made with, for another budget. A device file is looked for in `folders`.

    Raises UsageError: SNP-U072 for options that this version does not know, SNP-U010 where the device file is missing;
    PlanError (SNP-V003) where an option's value is of another type.
    """
    known = set(CompileOptions.__slots__) - {"budget_bytes", "reserve_bytes"}
    if unknown := sorted(set(plan.options) - known):
        raise UsageError(
            "SNP-U072", f"the plan was made with options that this version does not know: {', '.join(unknown)}"
        )
    given = {**plan.options, "budget_bytes": budget_bytes, "reserve_bytes": plan.reserve_bytes}
    try:
        options = msgspec.convert(given, CompileOptions)
    except msgspec.ValidationError as error:
        raise PlanError("SNP-V003", f"an option of the plan is of another type: {error}; compile it again") from error
    if options.device.endswith((".json", ".toml")):
        return replace(options, device=str(_device_file(options.device, folders)))
    return options


def _device_file(name: str, folders: Sequence[Path]) -> Path:
    found = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if found is None:
        where = " nor ".join(str(folder) for folder in folders)
        raise UsageError("SNP-U010", f"the plan's device file {name} is neither in {where}; copy it there")
    return found


def more_memory(
    plan: StepPlan,
    source: Path,
    options: CompileOptions,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> dict[str, Any]:
    """What the budget of `options` would buy: figures of the plan there, and what it saves over `plan`.

    `plan` fits a higher budget as it is, so nothing is ever lost: `saved_us` is 0 where no faster one is found.
    """
    report = compile_model(source, options, progress=progress, interrupted=interrupted).report
    better = report["step_time_us"] < plan.step_time_us
    saved = max(0, plan.step_time_us - report["step_time_us"])
    own = {"step_time_us": plan.step_time_us, "arena_bytes": plan.arena_bytes, "host_bytes": plan.host_arena_bytes}
    figures = {name: report[name] for name in PLANNED} if better else own
    return {
        "budget_bytes": options.budget_bytes,
        "more_bytes": options.budget_bytes - plan.budget_bytes,
        "better": better,
        "saved_us": saved,
        "saved_share": round(saved / plan.step_time_us, 4) if plan.step_time_us else 0.0,
        "lower_bound_us": report["lower_bound_us"],
        "keep_all_bytes": report["keep_all_bytes"],
        "keep_all_step_time_us": report["keep_all_step_time_us"],
        **figures,
    }
