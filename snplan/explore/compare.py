"""Strategies side by side on one model and budget; one that fails does not stop the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from snplan.compiler import CompileOptions, Prepared, Progress, plan_prepared
from snplan.errors import SnplanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one strategy's plan needs, predicts and does.

    `message` says why there is none, `needed_bytes` is then the budget that it would take, with the reserve, where that
    is known. `largest_batch` is None where nobody asked or none fits.
    """

    strategy: str
    fits: bool
    code: str | None = None
    message: str | None = None
    needed_bytes: int | None = None
    arena_bytes: int | None = None
    peak_live_bytes: int | None = None
    host_bytes: int | None = None
    step_time_us: int | None = None
    offload_bytes: int | None = None
    prefetch_bytes: int | None = None
    recompute_ops: int | None = None
    recompute_us: int | None = None
    stall_us: int | None = None
    largest_batch: int | None = None
    seconds: float = 0.0


_REPORTED = (
    *("arena_bytes", "peak_live_bytes", "host_bytes", "step_time_us", "offload_bytes", "prefetch_bytes"),
    *("recompute_ops", "recompute_us", "stall_us"),
)


def compare(
    prepared: Prepared,
    options: CompileOptions,
    strategies: Sequence[str],
    *,
    largest_batch: Callable[[CompileOptions, Progress], int | None] | None = None,
    progress: Progress = lambda what, share: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Outcome]:
    """The outcome of each strategy as soon as it is known; ends where `interrupted`.

    `largest_batch` finds a strategy's largest batch (None: it is not asked for).
    """
    for number, name in enumerate(strategies):
        told = _told(progress, name, number / len(strategies))
        told("planning", None)
        start = time.perf_counter()
        chosen = replace(options, strategy=name)
        outcome = outcome_of(prepared, chosen, interrupted)
        if largest_batch is not None and not interrupted():
            outcome = replace(outcome, largest_batch=largest_batch(chosen, told))
        if interrupted():
            return
        yield replace(outcome, seconds=round(time.perf_counter() - start, 2))


def _told(progress: Progress, name: str, share: float) -> Progress:
    """Progress inside one strategy, of which `share` of all are done."""
    return lambda what, _: progress(f"strategy {name}: {what}", share)


def outcome_of(prepared: Prepared, options: CompileOptions, interrupted: Callable[[], bool]) -> Outcome:
    """The outcome of the strategy that `options` name."""
    try:
        report = plan_prepared(prepared, options, interrupted=interrupted).report
    except SnplanError as error:
        wanted = error.details.get("wanted_bytes", error.details.get("floor_bytes"))
        return Outcome(
            strategy=options.strategy,
            fits=False,
            code=error.code,
            message=error.message,
            needed_bytes=wanted + prepared.reserve(options) if isinstance(wanted, int) else None,
        )
    needed = report["arena_bytes"] + prepared.reserve(options)
    figures = {name: report[name] for name in _REPORTED}
    return Outcome(strategy=options.strategy, fits=True, needed_bytes=needed, **figures)
