"""What `snplan max-batch` and `snplan max-depth` show: the largest size, why no larger one, and what was tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from snplan.report.tables import columns, facts
from snplan.units import GIB, format_bytes, format_us

if TYPE_CHECKING:
    from rich.table import Table

    from snplan.explore.largest import Largest, Trial

_FIGURES = ("floor_bytes", "arena_bytes", "step_time_us", "keep_all_step_time_us")


def largest_object(name: str, result: Largest) -> dict[str, Any]:
    """Plain data: the largest size under `name` with the figures of its plan, the refused one, all trials."""
    found = result.found
    figures = {key: None if found is None else getattr(found, key) for key in _FIGURES}
    return {
        name: None if found is None else found.size,
        "exact": result.complete and result.refused is not None,
        **figures,
        "slowdown": None if found is None else slowdown(found),
        "refused": None if result.refused is None else _row(name, result.refused),
        "trials": [_row(name, trial) for trial in result.trials],
    }


def slowdown(trial: Trial) -> float | None:
    """The plan's step time over the keep-all plan's, to four places; None without a plan."""
    if trial.step_time_us is None or not trial.keep_all_step_time_us:
        return None
    return round(trial.step_time_us / trial.keep_all_step_time_us, 4)


def _row(name: str, trial: Trial) -> dict[str, Any]:
    fields = asdict(trial)
    return {name: fields.pop("size"), **fields}


def largest_tables(
    title: str, name: str, result: Largest, samples: int | None = None, rows: Sequence[tuple[str, str]] = ()
) -> list[Table]:
    """A table of the answer, closed by `rows`, and one of the trials; `samples` are those a step (None: the size)."""
    answer = [*_answer(name, result, samples), *rows]
    return [facts(title, answer), columns("tried", _HEADERS, map(_cells, result.trials))]


_HEADERS = ("size", "fits", "floor GiB", "arena GiB", "step", "of keep-all")


def _cells(trial: Trial) -> tuple[str, ...]:
    times = slowdown(trial)
    return (
        f"{trial.size:,}",
        {True: "yes", False: "no", None: "floor only"}[trial.fits],
        "" if trial.floor_bytes is None else f"{trial.floor_bytes / GIB:.3f}",
        "" if trial.arena_bytes is None else f"{trial.arena_bytes / GIB:.3f}",
        "" if trial.step_time_us is None else format_us(trial.step_time_us),
        "" if times is None else f"{times:.3f}",
    )


def _answer(name: str, result: Largest, samples: int | None) -> Iterator[tuple[str, str]]:
    found, refused = result.found, result.refused
    if found is None:
        yield f"largest {name}", "none found before the interrupt"
        return
    more = "" if result.complete and refused is not None else " or more"
    yield f"largest {name}", f"{found.size:,}{more}"
    if found.arena_bytes is not None:
        yield "arena", format_bytes(found.arena_bytes)
    if found.floor_bytes is not None:
        yield "floor", format_bytes(found.floor_bytes)
    if found.step_time_us:
        rate = (samples or found.size) * 10**6 / found.step_time_us
        yield "predicted step", f"{format_us(found.step_time_us)}, {rate:,.1f} samples a second"
        yield "of keep-all", f"{slowdown(found):.3f} times its step time"
    if refused is not None:
        yield f"{name} {refused.size:,}", refused.reason
