"""Which engine runs a convolution: the one that the plan names, or the fastest that fits the planned workspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from snplan.errors import RunError
from snplan.runtime.cuda.convolution import FIRST_ENGINE_ID, Convolution
from snplan.runtime.cuda.cudnn import Cudnn, EngineRef, describe_failure
from snplan.units import format_bytes

# Engines that are tried where the plan names none: the library lists its favourites first.
_TRIED = 10
# Bytes a second that adding a bias afterwards is reckoned with, reading and writing the result once.
_BIAS_BYTES_PER_S = 3e12

# Microseconds of a problem with one engine.
EngineTimer = Callable[[EngineRef], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """An engine that is ready, and the workspace it needs in bytes."""

    engine: EngineRef
    workspace_bytes: int


def choose_engine(
    library: Cudnn, problem: Convolution, planned: int | None, limit: int, timer: EngineTimer | None
) -> Chosen:
    """The engine of `problem`, whose plan gives it `limit` bytes of workspace.

    Ids of the cost model (below 16) name no engine of the library: then the fastest by `timer` is taken, or the first
    that fits where there is no timer. Raises RunError: SNP-R054 where the named engine is not offered or needs more
    than planned, SNP-R055 where none runs.
    """
    offered = library.engines(problem)
    if planned is not None and planned >= FIRST_ENGINE_ID:
        return _named(library, problem, offered, planned, limit)
    fitting = _fitting(offered, limit)
    if not fitting:
        raise describe_failure(problem, limit)
    if timer is None or len(fitting) == 1:
        return fitting[0]
    return min(fitting, key=lambda chosen: timer(chosen.engine) + _bias_us(problem, chosen.engine))


def _named(library: Cudnn, problem: Convolution, offered: tuple[EngineRef, ...], planned: int, limit: int) -> Chosen:
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
    return Chosen(engine=named, workspace_bytes=size)


def _fitting(offered: tuple[EngineRef, ...], limit: int) -> list[Chosen]:
    """The first engines that can be built and fit the workspace; names that occur again are the same engine."""
    fitting: list[Chosen] = []
    for engine in offered:
        size = engine.build()
        if size is not None and size <= limit:
            fitting.append(Chosen(engine=engine, workspace_bytes=size))
        if len(fitting) == _TRIED:
            break
    return fitting


def _bias_us(problem: Convolution, engine: EngineRef) -> float:
    if not engine.separate_bias:
        return 0.0
    return 2 * problem.result.elements * (problem.dtype.bits // 8) * 1e6 / _BIAS_BYTES_PER_S
