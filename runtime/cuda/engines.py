"""Which engine runs a convolution: the one that the plan names, or the fastest that fits the planned workspace."""

from __future__ import annotations

from collections.abc import Callable

from snplan.errors import RunError
from snplan.runtime.cuda.convolution import FIRST_ENGINE_ID, Convolution
from snplan.runtime.cuda.cudnn import Cudnn, EngineRef, describe_failure
from snplan.units import format_bytes

# Engines that are tried where the plan names none: the library lists its favourites first.
_TRIED = 4

# Microseconds of a problem with one engine.
EngineTimer = Callable[[EngineRef], float]


def choose_engine(
    library: Cudnn, problem: Convolution, planned: int | None, limit: int, timer: EngineTimer | None
) -> EngineRef:
    """The engine of `problem`, built, whose plan gives it `limit` bytes of workspace.

    Ids of the cost model (below 16) name no engine of the library: then the fastest by `timer` is taken, or the first
    that fits where there is no timer; either way one that gives the same bits in every run. Raises RunError: SNP-R054
    where the named engine is not offered or needs more than planned, SNP-R055 where none runs.
    """
    if planned is not None and planned >= FIRST_ENGINE_ID:
        return _named(library, problem, library.engines(problem), planned, limit)
    fitting = _fitting(library.engines(problem, steady=True), limit)
    if not fitting:
        raise describe_failure(problem, limit)
    if timer is None:
        return fitting[0]
    times = [_time_or_none(engine, timer) for engine in fitting]
    runs = [(time, place) for place, time in enumerate(times) if time is not None]
    if not runs:
        raise describe_failure(problem, limit)
    return fitting[min(runs)[1]]


def engine_like(library: Cudnn, problem: Convolution, first: EngineRef, limit: int) -> EngineRef:
    """The engine, built, of a last piece that is smaller than the first, whose engine is `first`.

    The same where it is offered and fits, else the first in the library's order that fits and gives the same bits in
    every run. Raises RunError (SNP-R055) where none does.
    """
    same = next((engine for engine in library.engines(problem) if engine.id == first.id), None)
    size = None if same is None else same.build()
    if same is not None and size is not None and size <= limit:
        return same
    offered = library.engines(problem, steady=True)
    alike = tuple(engine for engine in offered if engine.separate_bias is first.separate_bias)
    fitting = _fitting(alike, limit)
    if not fitting:
        raise describe_failure(problem, limit)
    return fitting[0]


def _time_or_none(engine: EngineRef, timer: EngineTimer) -> float | None:
    """Microseconds, or None for an engine that is listed and built, and then does not run."""
    try:
        return timer(engine)
    except RunError:
        raise
    except Exception:
        return None


def _named(library: Cudnn, problem: Convolution, offered: tuple[EngineRef, ...], planned: int, limit: int) -> EngineRef:
    named = next((engine for engine in offered if engine.id == planned), None)
    size = None if named is None else named.build()
    if named is None or size is None:
        message = (
            f"the plan's engine {planned} for {problem.describe()} is not offered by cuDNN {library.version} on this "
            "device and in this math mode; make a profile here (snplan profile) and compile with it"
        )
        raise RunError("SNP-R054", message, {"engine": planned})
    if size > limit:
        message = (
            f"engine {named.name} for {problem.describe()} needs {format_bytes(size)} of workspace, the plan gives it "
            f"{format_bytes(limit)}; make a profile here (snplan profile) and compile with it"
        )
        raise RunError("SNP-R054", message, {"engine": planned, "bytes": size, "planned_bytes": limit})
    return named


def _fitting(offered: tuple[EngineRef, ...], limit: int) -> list[EngineRef]:
    """The first engines that can be built and fit the workspace."""
    fitting: list[EngineRef] = []
    for engine in offered:
        size = engine.build()
        if size is not None and size <= limit:
            fitting.append(engine)
        if len(fitting) == _TRIED:
            break
    return fitting
