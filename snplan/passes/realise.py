"""From a schedule and a budget to actions with addresses: evict, lay out, place, emit, simulate.

Placement can fail although live bytes fit (fragmentation). Then the step is planned again with a lower target where
buffers did not fit, and at last with more and more isolated positions; with all of them isolated every op's tensors are
packed afresh and placement is trivial, so every budget from the floor up is met while the host has room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

import numpy as np

from snplan.analysis.index import IndexedStep
from snplan.analysis.residency import Live, Residency
from snplan.analysis.schedule import Schedule
from snplan.arena.problem import FREE, Problem, make_problem
from snplan.arena.solve import assign
from snplan.arena.wishes import Fit, fit_within, shortfall
from snplan.cost.device import Device
from snplan.cost.simulate import Timeline, simulate
from snplan.passes.emit import Body, emit
from snplan.passes.estimate import Estimate, estimate
from snplan.passes.evict import NO_LEANINGS, Leanings, fit
from snplan.passes.layout import Layout, make_layout, op_times
from snplan.passes.slots import make_slots

KEEP_ALL_EFFORT = 3.0
PLACE_EFFORT = 0.1
LONG = 50_000  # positions; keep-all candidates of longer steps, which rarely fit, are placed with less effort
ATTEMPTS = 4
ISOLATION_THRESHOLDS = (0.97, 0.85, 0.6, 0.3, 0.0)

Intervals = list[tuple[int, int]]  # [start, stop) in positions, or in another time


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

    def sent_bytes(self, us: int) -> int:
        """Bytes that the link moves to the host in `us` microseconds, while nothing comes back."""
        return self.device.d2h_bytes_per_s * us // 10**6

    def sent_forward(self, step: IndexedStep, host_limit: int | None) -> int:
        """Bytes that the link moves to the host during the forward pass, as far as there is room for them."""
        moved = self.sent_bytes(sum(step.cost[: step.backward]))
        return moved if host_limit is None else min(moved, host_limit)

    def copy_us(self, size: int) -> int:
        """Microseconds of a copy of `size` bytes while the other direction runs as well."""
        rate = min(self.device.h2d_both_bytes_per_s, self.device.d2h_both_bytes_per_s)
        return ceil(size * 10**6 / rate) + self.device.copy_latency_us

    def lone_copy_us(self, size: int) -> int:
        """Microseconds of a copy of `size` bytes while nothing comes the other way."""
        rate = min(self.device.h2d_bytes_per_s, self.device.d2h_bytes_per_s)
        return ceil(size * 10**6 / rate) + self.device.copy_latency_us


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A plan in all but name: a layout with the offsets of its buffers, from which actions are made when asked for."""

    layout: Layout
    offsets: Sequence[int]
    costs: Costs

    @property
    def schedule(self) -> Schedule:
        """The executions of the step."""
        return self.layout.residency.schedule

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena, as `body` has them."""
        return max((o + b.size for o, b in zip(self.offsets, self.layout.buffers, strict=True)), default=0)

    @cached_property
    def body(self) -> Body:
        """Actions with addresses."""
        slots, slot_of = make_slots(self.layout, self.costs.device.pools)
        return emit(self.layout, self.offsets, slots, slot_of)

    @cached_property
    def timeline(self) -> Timeline:
        """What the simulator says of the actions."""
        costs = self.costs
        pools = {slot.id: slot.pool for slot in self.body.slots if slot.pool is not None}
        return simulate(self.body.actions, costs.time, costs.tensor_bytes, costs.device, slot_pools=pools)

    @cached_property
    def step_us(self) -> int:
        """Predicted microseconds of the step; without copies that is the sum of its ops."""
        if not (self.layout.offloads or self.layout.prefetches):
            return sum(op_times(self.layout))
        return self.timeline.step_time_us


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """A layout without addresses, and when everything would run."""

    layout: Layout
    estimate: Estimate

    @property
    def step_us(self) -> int:
        """Microseconds of the step, about."""
        return self.estimate.step_us


def step_costs(step: IndexedStep, device: Device) -> Costs:
    """Costs of `step` on `device`."""
    ops = step.ops
    return Costs(
        device=device,
        op_us={op.name: us for op, us in zip(ops, step.cost, strict=True)},
        engine_us={(ops[i].name, c.id): c.us for i, choices in enumerate(step.engines) for c in choices},
        tensor_bytes={name: tensor.bytes for name, tensor in step.step.graph.tensors.items()},
    )


def place(
    layout: Layout, capacity: int | None, effort: float = 0.0, intervals: Intervals | None = None
) -> list[int] | None:
    """Offsets of the layout's buffers within `capacity` (None: as low as found), or None; `effort` in seconds.

    `intervals` say when buffers are live, where that is not as in the layout: none are found then for a layout with
    tensors that return, whose buffers are apart in positions and may overlap in other intervals.
    """
    if intervals is not None and layout.tied():
        return None
    offsets = placed(layout, capacity, effort, intervals)
    top = max((offset + b.size for offset, b in zip(offsets, layout.buffers, strict=True)), default=0)
    return None if capacity is not None and top > capacity else offsets


def placed(layout: Layout, capacity: int | None, effort: float, intervals: Intervals | None = None) -> list[int]:
    """Offsets of the layout's buffers, those that do not fit `capacity` above it; arguments as for `place`."""
    if not layout.buffers:
        return []
    problem = _problem(layout, intervals or [(b.start, b.stop) for b in layout.buffers])
    offsets: list[int] = assign(problem, capacity=capacity, time_limit=effort).offsets.tolist()
    return offsets


def _problem(layout: Layout, intervals: Intervals) -> Problem:
    """What is to be placed: tensors that return have the lowest bytes, the largest first."""
    sizes = [b.size for b in layout.buffers]
    tied = sorted(layout.tied(), key=lambda pair: (-sizes[pair[0]], pair))
    if not tied:
        return make_problem(intervals, sizes)
    fixed, top = [FREE] * len(sizes), 0
    for first, last in tied:
        fixed[first] = fixed[last] = top
        top += sizes[first]
    return make_problem(intervals, sizes, fixed)


def finish(layout: Layout, offsets: list[int], costs: Costs) -> Candidate:
    """The candidate of a placed layout, which must not change any more."""
    return Candidate(layout=layout, offsets=offsets, costs=costs)


def keep_all(schedule: Schedule, costs: Costs) -> Candidate:
    """The keep-all candidate: liveness only, nothing moves, as low as placement gets it."""
    layout = make_layout(Residency(schedule), 0, costs.copy_us)
    offsets = place(layout, None, KEEP_ALL_EFFORT if schedule.end <= LONG else PLACE_EFFORT)
    assert offsets is not None
    return finish(layout, offsets, costs)


def realise(
    schedule: Schedule,
    target: int,
    budget: int,
    costs: Costs,
    leanings: Leanings = NO_LEANINGS,
    *,
    effort: float = PLACE_EFFORT,
    attempts: int = ATTEMPTS,
) -> Candidate | None:
    """The candidate of `schedule` planned for `target` bytes and placed within `budget`; None where it does not fit.

    Placement takes `effort` in each of `attempts`.
    """
    limit = np.full(schedule.end, target, np.int64)
    for _ in range(attempts):
        residency = Residency(schedule)
        if not fit(residency, target, limit, copy_us=costs.lone_copy_us, leanings=leanings):
            return None
        layout = make_layout(residency, target, costs.copy_us)
        offsets = place(layout, budget, effort)
        if offsets is not None:
            return finish(layout, offsets, costs)
        needs = _problem(layout, [b.need for b in layout.buffers])
        wishes = _problem(layout, [(b.start, b.stop) for b in layout.buffers])
        found = fit_within(needs, budget, early=wishes.start, late=wishes.end, time_limit=effort)
        if found.complete:
            _grant(layout, found)
            return finish(layout, found.offsets.tolist(), costs)
        aside = _in_the_way(layout, found)
        if aside <= leanings.leaving:
            _lower(limit, residency, *shortfall(needs, found))
        leanings = replace(leanings, leaving=leanings.leaving | aside)
    return None


def _grant(layout: Layout, found: Fit) -> None:
    """Give the layout's buffers the live intervals that were granted, and prefetches the moments that follow."""
    for buffer, start, stop in zip(layout.buffers, found.start.tolist(), found.end.tolist(), strict=True):
        buffer.start, buffer.stop = start, stop
    moved = [replace(copy, position=layout.buffers[copy.buffer].start) for copy in layout.prefetches]
    layout.prefetches = sorted(moved, key=lambda copy: copy.position)


def _in_the_way(layout: Layout, found: Fit) -> frozenset[int]:
    """Tensors that found no room, and are beside a tensor that returns at some time.

    What returns has the same bytes at both ends of the step, so others may have to change places in between.
    """
    values, buffers = layout.residency.schedule.values, layout.buffers
    tied = [buffers[b].need for pair in layout.tied() for b in pair]
    crossing = {b for b in found.misfits.tolist() if _meets(buffers[b].need, tied)}
    held = zip(values, layout.stay_buffer, strict=True)
    return frozenset(record.tensor for record, own in held if not crossing.isdisjoint(own))


def _meets(span: tuple[int, int], others: Sequence[tuple[int, int]]) -> bool:
    return any(start < span[1] and span[0] < stop for start, stop in others)


def _lower(limit: Live, residency: Residency, times: Live, lacking: Live) -> None:
    """Lower the limit of live bytes where buffers did not fit, by what they lack, for the next attempt."""
    for start, stop, size in zip(times[:-1].tolist(), times[1:].tolist(), lacking[:-1].tolist(), strict=True):
        where = slice(start, stop)
        limit[where] = np.minimum(limit[where], residency.live[where]) - size


def isolated(schedule: Schedule, budget: int, costs: Costs) -> Candidate | None:
    """A candidate of `schedule` with positions isolated, more and more until it can be placed; None below the floor."""
    for part in ISOLATION_THRESHOLDS:
        residency = Residency(schedule)
        if not fit(residency, budget):
            return None
        residency.isolate(np.flatnonzero(residency.live > int(budget * part)).tolist())
        layout = make_layout(residency, budget, costs.copy_us)
        offsets = place(layout, budget)
        if offsets is not None:
            return finish(layout, offsets, costs)
    return None


def sketch(schedule: Schedule, budget: int, costs: Costs, leanings: Leanings = NO_LEANINGS) -> Sketch | None:
    """`schedule` within `budget` bytes as it runs if placement goes well; None below the floor."""
    residency = Residency(schedule)
    if not fit(residency, budget, copy_us=costs.lone_copy_us, leanings=leanings):
        return None
    layout = make_layout(residency, budget, costs.copy_us)
    return Sketch(layout=layout, estimate=estimate(layout, costs.device))
