"""Engines that would wait for copies: small steps whose times are counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests_support import Line, indexed_of

from snplan.analysis.index import Choice, IndexedStep
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import build_schedule
from snplan.ir import Phase, Role
from snplan.passes.evict import fit
from snplan.passes.workspaces import positions_of_ops, trade_engines

GRANULE = 512
COPY_US = 40  # of one granule


def copy_us(size: int) -> int:
    return COPY_US * size // GRANULE


def conv_step(slow_us: int, workspace: int = 4) -> IndexedStep:
    """a is saved while op 2, a convolution, runs; its fast engine (10 us) has a workspace of so many granules.

    Tensors have 4 granules, positions are ops.
    """
    backward = Phase.BACKWARD
    lines = [
        Line(name="fa", reads=("x",), writes=("a",), us=10),
        Line(name="fb", reads=("a",), writes=("b",), us=10),
        Line(name="conv", reads=("b",), writes=("c",), us=10),
        Line(name="top", reads=("c",), writes=("dc",), phase=backward, us=500),
        Line(name="gc", reads=("c", "dc"), writes=("db",), phase=backward, us=500),
        Line(name="ga", reads=("a", "db"), writes=("dx",), phase=backward, us=10),
    ]
    sizes = dict.fromkeys(("x", "a", "b", "c", "dc", "db", "dx"), 4)
    step = indexed_of(lines, granules=sizes, sources={"x": Role.INPUT}, outputs=("dx",))
    engines = list(step.engines)
    engines[2] = (Choice(0, 0, slow_us), Choice(1, workspace * GRANULE, 10))
    return replace(step, engines=engines)


def evicted(step: IndexedStep, budget: int) -> Residency:
    """The residency of `step` within `budget`, engines as if copies took no time."""
    residency = Residency(build_schedule(step))
    assert fit(residency, budget)
    return residency


# a is gone from position 2 on, where its copy (160 us) would end at 170 us and conv could start at 20 us.
@pytest.mark.parametrize(("slow_us", "engine"), [(159, 0), (160, 0), (161, 1), (400, 1)])
def test_the_engine_that_ends_first_is_chosen(slow_us: int, engine: int) -> None:
    step, budget = conv_step(slow_us), 12 * GRANULE
    residency = evicted(step, budget)
    away = [step.names[residency.schedule.values[v].tensor] for v, gaps in enumerate(residency.evicted) if gaps]
    assert away == ["a"]
    assert residency.engine[2] == 1
    limit = residency.live.copy()
    limit[:] = budget
    assert trade_engines(residency, limit, copy_us) is (engine == 0)
    assert residency.engine[2] == engine
    assert residency.ceiling[2] == engine
    assert int(residency.live.max()) <= budget


def test_patient_ops_wait_with_their_engine() -> None:
    step, budget = conv_step(20), 12 * GRANULE
    residency = evicted(step, budget)
    limit = residency.live.copy()
    limit[:] = budget
    assert not trade_engines(residency, limit, copy_us, frozenset({2}))
    assert residency.engine[2] == 1


def test_nothing_changes_where_nothing_moves() -> None:
    step = conv_step(11)
    residency = Residency(build_schedule(step))
    limit = residency.live.copy()
    assert not trade_engines(residency, limit, copy_us)
    assert residency.engine[2] == 1


def test_fit_keeps_what_a_smaller_workspace_leaves_room_for() -> None:
    step, budget = conv_step(20, workspace=8), 16 * GRANULE
    assert any(evicted(step, budget).evicted)
    residency = Residency(build_schedule(step))
    assert fit(residency, budget, copy_us=copy_us)
    assert residency.engine[2] == 0
    assert not any(residency.evicted)
    assert int(residency.live.max()) <= budget


def test_a_prefetch_takes_room_before_its_use() -> None:
    """Seen from the end, a comes back over 160 us before ga: an engine at gc that needs the room would delay it."""
    step = conv_step(10)
    engines = list(step.engines)
    engines[2] = ()
    engines[4] = (Choice(0, 0, 100), Choice(1, 4 * GRANULE, 10))
    step = replace(step, engines=engines, cost=[10, 10, 500, 500, 10, 10])
    budget = 12 * GRANULE
    residency = Residency(build_schedule(step))
    assert fit(residency, budget)
    [moved] = [v for v, gaps in enumerate(residency.evicted) if gaps]
    assert step.names[residency.schedule.values[moved].tensor] == "a"
    limit = residency.live.copy()
    limit[:] = budget
    assert residency.engine[4] == 0 or trade_engines(residency, limit, copy_us)
    assert residency.engine[4] == 0


def test_positions_are_those_of_all_executions() -> None:
    step = conv_step(20)
    kept = frozenset({step.names.index("a")})
    again = build_schedule(step, kept)
    assert positions_of_ops(Residency(build_schedule(step))) == {2: [2]}
    found = positions_of_ops(Residency(again))
    assert found == {2: [p for p, op in enumerate(again.runs) if op == 2]}
    assert len(found[2]) == 2
