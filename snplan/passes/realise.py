"""From a schedule and a budget to actions with addresses: evict, lay out, place, emit, simulate.

Placement can fail although live bytes fit (fragmentation). Then the step is planned again for a lower target, and at
last with more and more isolated positions; with all of them isolated every op's tensors are packed afresh and placement
is trivial, so every budget from the floor up is met while the host has room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from snplan.analysis.index import IndexedStep
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import Schedule
from snplan.arena.problem import Problem
from snplan.arena.solve import assign
from snplan.cost.device import Device
from snplan.cost.simulate import Timeline, simulate
from snplan.passes.emit import Body, emit
from snplan.passes.estimate import estimate_us
from snplan.passes.evict import fit
from snplan.passes.layout import Layout, make_layout
from snplan.passes.slots import make_slots

KEEP_ALL_EFFORT = 0.2
PLACE_EFFORT = 0.3
LOWER_TARGETS = (1.0, 0.97, 0.92, 0.85)
ISOLATION_THRESHOLDS = (0.97, 0.85, 0.6, 0.3, 0.0)


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What things cost on the device that is planned for."""

    device: Device
    op_us: Mapping[str, int]
    engine_us: Mapping[tuple[str, int], int]
    tensor_bytes: Mapping[str, int]

    def time(self, op: str, engine: int | None) -> int:
        """Microseconds of one execution of `op` with an engine (None: it has no choice)."""
        return self.op_us[op] if engine is None else self.engine_us[op, engine]

    def copy_us(self, size: int) -> int:
        """Microseconds of a copy of `size` bytes while the other direction runs as well."""
        rate = min(self.device.h2d_both_bytes_per_s, self.device.d2h_both_bytes_per_s)
        return ceil(size * 10**6 / rate) + self.device.copy_latency_us


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A plan in all but name: actions with addresses, and what the simulator says of them."""

    schedule: Schedule
    layout: Layout
    body: Body
    timeline: Timeline

    @property
    def step_us(self) -> int:
        """Predicted microseconds of the step."""
        return self.timeline.step_time_us


def step_costs(step: IndexedStep, device: Device) -> Costs:
    """Costs of `step` on `device`."""
    ops = step.ops
    return Costs(
        device=device,
        op_us={op.name: us for op, us in zip(ops, step.cost, strict=True)},
        engine_us={(ops[i].name, c.id): c.us for i, choices in enumerate(step.engines) for c in choices},
        tensor_bytes={name: tensor.bytes for name, tensor in step.step.graph.tensors.items()},
    )


def place(layout: Layout, capacity: int | None, effort: float = 0.0) -> list[int] | None:
    """Offsets of the layout's buffers within `capacity` (None: as low as found), or None; `effort` in seconds."""
    if not layout.buffers:
        return []
    problem = Problem(
        start=np.array([b.start for b in layout.buffers], np.int64),
        end=np.array([b.stop for b in layout.buffers], np.int64),
        size=np.array([b.size for b in layout.buffers], np.int64),
    )
    solution = assign(problem, capacity=capacity, time_limit=effort)
    if capacity is not None and solution.height > capacity:
        return None
    offsets: list[int] = solution.offsets.tolist()
    return offsets


def finish(layout: Layout, offsets: list[int], costs: Costs) -> Candidate:
    """The candidate of a placed layout."""
    slots, slot_of = make_slots(layout)
    body = emit(layout, offsets, slots, slot_of)
    timeline = simulate(body.actions, costs.time, costs.tensor_bytes, costs.device)
    return Candidate(schedule=layout.residency.schedule, layout=layout, body=body, timeline=timeline)


def keep_all(schedule: Schedule, costs: Costs) -> Candidate:
    """The keep-all candidate: liveness only, nothing moves, as low as placement gets it."""
    layout = make_layout(Residency(schedule), 0, costs.copy_us)
    offsets = place(layout, None, KEEP_ALL_EFFORT)
    assert offsets is not None
    return finish(layout, offsets, costs)


def realise(schedule: Schedule, budget: int, costs: Costs, lowest: int) -> Candidate | None:
    """The first placed candidate of `schedule` within `budget` bytes; `lowest` is the floor."""
    for residency in _attempts(schedule, budget, lowest):
        layout = make_layout(residency, budget, costs.copy_us)
        offsets = place(layout, budget, PLACE_EFFORT)
        if offsets is not None:
            return finish(layout, offsets, costs)
    return None


def sketch(schedule: Schedule, budget: int, costs: Costs) -> int | None:
    """Microseconds, about, of `schedule` within `budget` bytes if placement goes well; None below the floor."""
    residency = Residency(schedule)
    if not fit(residency, budget):
        return None
    return estimate_us(make_layout(residency, budget, costs.copy_us), costs.device)


def _attempts(schedule: Schedule, budget: int, lowest: int) -> Iterator[Residency]:
    """Residencies that fit `budget`, easier and easier to place."""
    tried = set()
    for part in LOWER_TARGETS:
        target = max(lowest, int(budget * part))
        if target in tried:
            continue
        tried.add(target)
        residency = Residency(schedule)
        if fit(residency, target):
            yield residency
    for part in ISOLATION_THRESHOLDS:
        residency = Residency(schedule)
        if fit(residency, budget):
            residency.isolate(np.flatnonzero(residency.live > int(budget * part)).tolist())
            yield residency
