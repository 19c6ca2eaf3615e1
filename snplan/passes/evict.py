"""Choose which gaps go to host memory so that every position fits a target; what still does not fit is isolated.

Belady's rule in time: the gap with the longest time until the next use goes first, activations before optimiser state,
gradients and parameters (the future is known, so this is the offline optimum for equal sizes; Belady, IBM Systems
Journal 5(2), 1966). Afterwards gaps that turned out not to be needed are restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from snplan.analysis.excess import Excess, Over
from snplan.analysis.floor import working_set
from snplan.analysis.index import IndexedStep
from snplan.analysis.residency import Gap, Live, Residency, role_class
from snplan.passes.workspaces import positions_of_ops, shrink_workspaces, trade_engines

SMALL_BYTES = 64 << 10  # copies below this are latency alone: they come last


@dataclass(frozen=True, slots=True, kw_only=True)
class Leanings:
    """What is decided before memory is counted.

    patient  ops that rather wait for copies than take a slower engine
    staying  tensors that are evicted last, persistent ones with their next value
    leaving  tensors whose values are evicted in their longest gap, whatever room there is
    slowed   (op, engine): ops that take no faster engine than that
    coming   persistent tensors that start and end the step on the device even where they leave it in between
    """

    patient: frozenset[int] = frozenset()
    staying: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()
    slowed: frozenset[tuple[int, int]] = frozenset()
    coming: frozenset[int] = frozenset()


NO_LEANINGS = Leanings()


def fit(
    residency: Residency,
    budget: int,
    target: Live | None = None,
    *,
    copy_us: Callable[[int], int] | None = None,
    leanings: Leanings = NO_LEANINGS,
) -> bool:
    """Evict and isolate until every position's live bytes are at most `budget`; False when a working set is larger.

    `target` gives a lower aim for each position, which isolation may miss where an op needs more. With `copy_us`, the
    microseconds of a copy of so many bytes, engines of ops that are not patient do not wait for copies where slower
    ones end earlier.
    """
    limit = np.full(residency.live.size, budget, np.int64) if target is None else target
    _slow_down(residency, leanings)
    for tensor in sorted(leanings.coming):
        residency.let_return(residency.schedule.step.sources.index(tensor))
    if bool((residency.live <= limit).all()):
        return True
    _lower_hopeless(residency, budget)
    _send_away(residency, leanings)
    taken = _evict(residency, limit, leanings)
    shrink_workspaces(residency, limit)
    over = np.flatnonzero(residency.live > limit)
    if over.size:
        residency.isolate(over.tolist())
    _restore(residency, taken, limit)
    if copy_us is not None and not residency.isolated and trade_engines(residency, limit, copy_us, leanings.patient):
        _restore(residency, taken, limit)
    return int(residency.live.max()) <= budget


def _slow_down(residency: Residency, leanings: Leanings) -> None:
    """Give the ops that are slowed no faster engine than theirs."""
    for op, engine in sorted(leanings.slowed):
        residency.ceiling[op] = min(engine, residency.ceiling[op])
        if residency.engine[op] > residency.ceiling[op]:
            residency.set_engine(op, residency.ceiling[op], residency.schedule.choosers.get(op, ()))


def _send_away(residency: Residency, leanings: Leanings) -> None:
    """Evict the values of tensors that leave in the gap in which they are idle longest."""
    if not leanings.leaving:
        return
    time = residency.schedule.starts
    for value, record in enumerate(residency.schedule.values):
        if record.tensor in leanings.leaving and len(residency.events[value]) > 1:
            gaps = [residency.gap(value, index) for index in range(len(residency.events[value]) - 1)]
            longest = max(gaps, key=lambda gap: time[gap.stop] - time[gap.start] if gap.stop > gap.start else 0)
            if longest.stop > longest.start:
                residency.evict(value, longest.index)


def _lower_hopeless(residency: Residency, budget: int) -> None:
    """Give up engines whose workspace does not fit beside what their op reads and writes."""
    step = residency.schedule.step
    for op, positions in positions_of_ops(residency).items():
        room = budget - working_set(step, op) + step.engines[op][0].workspace
        allowed = step.engines[op][: residency.engine[op] + 1]
        fitting = max((i for i, choice in enumerate(allowed) if choice.workspace <= room), default=0)
        if fitting != residency.engine[op]:
            residency.set_engine(op, fitting, positions)


def _evict(residency: Residency, limit: Live, leanings: Leanings) -> list[Gap]:
    """Evict gaps in order while positions they span are over their limit; the gaps taken, in that order."""
    taken: list[Gap] = []
    over = Over(residency.live - limit)
    size, values, evicted = residency.size, residency.schedule.values, residency.evicted
    with residency.at_once():
        for value, index, start, stop in _candidates(residency, residency.live > limit, leanings):
            if index in evicted[value] or not over.any(start, stop):
                continue
            freed = residency.evict(value, index)
            for gap in freed:
                over.fall(gap.start, gap.stop, size[values[gap.value].tensor])
            taken.append(freed[0])
            if not over.any(0, limit.size):
                break
    return taken


def _candidates(residency: Residency, over: npt.NDArray[np.bool_], leanings: Leanings) -> Iterator[tuple[int, ...]]:
    """Gaps that span a position of `over` (value, index, start, stop), best to evict first.

    That is by role class, small ones last, then by idle time.
    """
    schedule, gaps = residency.schedule, residency.all_gaps()
    before = np.concatenate([[0], np.cumsum(over)])
    gaps = gaps[:, before[gaps[3]] > before[gaps[2]]]
    value, index, start, stop = gaps
    persistent = np.zeros(len(schedule.values), np.bool_)
    persistent[list(residency.partner)] = True
    time = np.asarray(schedule.starts, np.int64)
    # A persistent value's gap costs transfers at both ends of the step.
    idle = (time[stop] - time[start]) >> persistent[value]
    group = _groups(schedule.step, leanings)[np.asarray([v.tensor for v in schedule.values], np.int64)]
    order = np.lexsort((index, value, -idle, group[value]))
    return zip(*gaps[:, order].tolist(), strict=True)


def _groups(step: IndexedStep, leanings: Leanings) -> Live:
    """For each tensor the group that it is evicted with."""
    roles = [role_class(role) for role in step.roles]
    groups = np.asarray(roles, np.int64) + 10 * (np.asarray(step.size, np.int64) < SMALL_BYTES)
    staying = leanings.staying
    groups[[*staying, *(step.becomes[t] for t in staying if t in step.becomes)]] += 100
    return groups


def _restore(residency: Residency, taken: list[Gap], limit: Live) -> None:
    """Keep again, last taken first, what fits after all (values that touch isolated positions stay as they are)."""
    if residency.isolated:
        return
    excess = Excess(residency.live - limit)
    with residency.at_once():
        for gap in reversed(taken):
            if gap.index not in residency.evicted[gap.value]:
                continue
            if residency.is_home(gap.value, gap.index):
                _restore_home(residency, gap.value, excess)
                continue
            amount = residency.size[residency.schedule.values[gap.value].tensor]
            if excess.has_room(gap.start, gap.stop, amount):
                residency.restore(gap.value, gap.index)
                excess.add(gap.start, gap.stop, amount)


def _restore_home(residency: Residency, value: int, excess: Excess) -> None:
    """Keep a persistent tensor on the device for the whole step where it fits in all gaps that it is away in."""
    away, amount = residency.away(value), residency.size[residency.schedule.values[value].tensor]
    long = [gap for gap in away if gap.stop > gap.start]
    if away and all(excess.has_room(gap.start, gap.stop, amount) for gap in long):
        residency.bring_home(value)
        for gap in long:
            excess.add(gap.start, gap.stop, amount)
