"""Exact search: whether a problem fits a capacity, by restarts of the canonical search over changing orders.

Stages: drop what cannot matter (empty buffers), cut the time line where no buffer spans, keep only the sections that
no other section contains, then search. A restart runs one order for a bounded number of nodes; sections that ended
many branches weigh more in later orders (as in weighted-degree heuristics of constraint programming). A run that ends
within its limit is a proof, so small problems are decided either way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from snplan.arena import kernels
from snplan.arena.heuristics import conflicts
from snplan.arena.problem import FREE, Int64, Problem, lower_bound, subproblem
from snplan.arena.split import components

Floats = NDArray[np.float64]

ENDLESS = 1 << 60
WIDE = 1e6  # a power that leaves the base only the ties
POWERS = (WIDE, 4.0, 2.0, 2.0, 1.0, 1.0)  # of the weight against the base, to draw from
NOISES = (0.03, 0.06, 0.1, 0.2)  # standard deviations of the drawn factors, as logarithms
BASES = (0, 0, 1, 1, 2)  # area twice, duration twice, size
LEARNED = 0.7  # how often the learned weights are taken
LONG, LONGER = 8, 100  # one restart in `LONG` is that much longer; all of them grow with so many


class Verdict(Enum):
    """What a search found out about a capacity."""

    FITS = "fits"
    NEVER = "never"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactOptions:
    """The switches of the search, each of which only makes it faster, and its restarts."""

    dominance: bool = True  # nothing may start above where another would have ended
    support: bool = True  # a buffer passed over rests on one still to come
    sections: bool = True  # what is left of a section must fit above the bounds
    twins: bool = True  # equal buffers in the order of rank
    dynamic: bool = True  # lowest floor first, not rank first
    decompose: bool = True  # cut where no buffer spans
    maximal: bool = True  # only the sections that no other contains
    learn: bool = True  # failures weigh in the next order
    plain: bool = True  # six orders without noise first
    restart: int = 400  # nodes of the shortest restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The verdict, the offsets when it fits, and what it took: nodes, and work in estimated nanoseconds."""

    verdict: Verdict
    offsets: Int64 | None
    nodes: int
    work: float


def decide(
    problem: Problem,
    capacity: int,
    *,
    nodes: int = ENDLESS,
    work: float = ENDLESS,
    seed: int = 0,
    options: ExactOptions | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Return whether the problem fits `capacity` bytes, as far as the search gets, and a placement when it does.

    The limits are nodes of the search and estimated nanoseconds of work; `stop` is asked between restarts.
    """
    options = options or ExactOptions()
    offsets = np.maximum(problem.fixed, 0)
    done = Outcome(verdict=Verdict.FITS, offsets=offsets, nodes=0, work=0.0)
    if lower_bound(problem) > capacity:
        return replace(done, verdict=Verdict.NEVER, offsets=None)
    for part in components(problem) if options.decompose else [np.flatnonzero(problem.size)]:
        limits = _Limits(nodes=nodes - done.nodes, work=work - done.work, stop=stop)
        found = _restarts(subproblem(problem, part), capacity, limits, seed, options)
        done = replace(found, nodes=done.nodes + found.nodes, work=done.work + found.work)
        if found.offsets is None:
            return done
        offsets[part] = found.offsets
    return replace(done, offsets=offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    nodes: int
    work: float
    stop: Callable[[], bool]


def sections(problem: Problem, *, maximal: bool = True) -> tuple[Int64, Int64, int]:
    """Return `(first, last, count)`: buffer `i` is live in the sections `first[i] .. last[i] - 1` of `count`.

    Two buffers are live together exactly when they share a section. Only the sections that no other one contains are
    kept when `maximal`: those after which a buffer ends and in which one has started since the section kept before.
    """
    times = np.unique(np.concatenate([problem.start, problem.end]))
    first, last = np.searchsorted(times, problem.start), np.searchsorted(times, problem.end)
    if not maximal:
        return first.astype(np.int64), last.astype(np.int64), len(times) - 1
    started = np.cumsum(np.bincount(first, minlength=len(times)))
    closing = np.unique(last) - 1
    kept = closing[np.diff(started[closing], prepend=0) > 0]
    return np.searchsorted(kept, first), np.searchsorted(kept, last), len(kept)


def _restarts(problem: Problem, capacity: int, limits: _Limits, seed: int, options: ExactOptions) -> Outcome:
    first, last, count = sections(problem, maximal=options.maximal)
    orders = _Orders(problem, first, last, count, seed, 6 if options.plain else 0)
    nodes, work, turn, setup = 0, 0.0, 0, setup_work(problem)
    while nodes < limits.nodes and work + setup < limits.work and not limits.stop():
        order = orders.next()
        model = build(first[order], last[order], problem.size[order], problem.fixed[order])
        state = blank(model, count)
        turn += 1
        length = options.restart * (1 + turn // LONGER) * (LONG if turn % LONG == 0 else 1)
        restart = min(max(length, 2 * len(problem)), limits.nodes - nodes)
        room = int(min(limits.work - work - setup, ENDLESS))
        status, visited = kernels.search(model, state, _switches(options), capacity, restart, room)
        nodes, work = nodes + visited, work + setup + float(state.work[0])
        if status == kernels.FOUND:
            offsets = np.empty(len(problem), np.int64)
            offsets[order] = state.offset
            return Outcome(verdict=Verdict.FITS, offsets=offsets, nodes=nodes, work=work)
        if status == kernels.EXHAUSTED:
            return Outcome(verdict=Verdict.NEVER, offsets=None, nodes=nodes, work=work)
        if options.learn:
            orders.learn(state.failures)
    return Outcome(verdict=Verdict.UNKNOWN, offsets=None, nodes=nodes, work=work)


def setup_work(problem: Problem) -> float:
    """Return the estimated nanoseconds that a restart takes before its first node."""
    return 1e5 + 4e3 * len(problem) + 10.0 * float(conflicts(problem).sum())


class _Orders:
    """The orders of the restarts: by live bytes without noise first, then drawn, most of them by learned weights."""

    def __init__(self, problem: Problem, first: Int64, last: Int64, count: int, seed: int, plain: int) -> None:
        self.first, self.last = first, last
        duration = (problem.end - problem.start).astype(np.float64)
        size = problem.size.astype(np.float64)
        self.base = (size * duration, duration, size)
        change = np.zeros(count + 1)
        np.add.at(change, first, size)
        np.add.at(change, last, -size)
        self.live = np.cumsum(change)[:count]
        self.learned = np.zeros(count)
        self.random = np.random.default_rng(seed)
        self.turn = 0
        self.plain = plain

    def next(self) -> Int64:
        """Return the buffers in the next order, first placed first."""
        turn, self.turn = self.turn, self.turn + 1
        if turn < self.plain:
            return self._ranked(turn % 3, WIDE, 0.0, self.live, highest=turn // 3 == 0)
        draw = self.random
        weight = self.learned if self.learned.any() and draw.random() < LEARNED else self.live
        base, power, noise = (options[draw.integers(len(options))] for options in (BASES, POWERS, NOISES))
        return self._ranked(int(base), power, noise, weight, highest=draw.random() < 0.5)

    def _ranked(self, base: int, power: float, noise: float, weight: Floats, *, highest: bool) -> Int64:
        factors = self.random.normal(0.0, noise, len(self.first)) if noise else 0.0
        key = power * np.log(self._over(weight, highest=highest) + 1e-9) + np.log(self.base[base]) + factors
        return np.argsort(-key, kind="stable").astype(np.int64)

    def _over(self, weight: Floats, *, highest: bool) -> Floats:
        share = weight / max(float(weight.max()), 1e-9)
        if highest:
            return np.array([share[a:b].max() for a, b in zip(self.first, self.last, strict=True)], np.float64)
        total: Floats = np.concatenate([np.zeros(1), np.cumsum(share)])
        return np.asarray(total[self.last] - total[self.first], np.float64)

    def learn(self, failures: Int64) -> None:
        """Move the learned weights toward where branches ended."""
        self.learned *= 0.8
        self.learned += failures / max(1, int(failures.sum()))


def build(first: Int64, last: Int64, size: Int64, fixed: Int64) -> kernels.Model:
    """Return the search's model of buffers that are in rank order already."""
    first_neighbor, neighbor = kernels.neighbors(first, last, np.argsort(first, kind="stable"))
    return kernels.Model(
        start=first,
        end=last,
        size=size,
        fixed=fixed,
        twin=_twins(first, last, np.where(fixed == FREE, size, -1 - np.arange(len(size)))),
        first_neighbor=first_neighbor,
        neighbor=neighbor,
        obstacle=np.flatnonzero(fixed != FREE),
    )


def _twins(first: Int64, last: Int64, size: Int64) -> Int64:
    order = np.lexsort((size, last, first))
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for key in (first, last, size):
        same &= key[order][1:] == key[order][:-1]
    twin = np.full(len(order), -1, np.int64)
    twin[order[1:][same]] = order[:-1][same]
    return twin


def blank(model: kernels.Model, count: int) -> kernels.State:
    """Return the state of a search that has placed nothing."""
    n = len(model.size)
    ring = np.arange(n + 1)
    return kernels.State(
        offset=np.zeros(n, np.int64),
        placed=np.zeros(n, np.int64),
        floor=np.zeros(n, np.int64),
        bound=np.zeros(n, np.int64),
        by_bound=np.arange(n),
        stack=np.zeros(count, np.int64),
        failures=np.zeros(count, np.int64),
        link=np.roll(ring, -1),
        back=np.roll(ring, 1),
        trail=np.zeros(2 * len(model.neighbor) + 2, np.int64),
        work=np.zeros(1, np.int64),
    )


def _switches(options: ExactOptions) -> kernels.Switches:
    return kernels.Switches(
        dominance=options.dominance,
        support=options.support,
        sections=options.sections,
        twins=options.twins,
        dynamic=options.dynamic,
    )
