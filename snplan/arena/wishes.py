"""Offsets within a capacity for live intervals that may be shorter than wished: what a planner under a budget needs.

A copied buffer needs its bytes from its first use to its last one; it would have them earlier, so that the prefetch
hides behind compute, or longer, so that nothing waits for the offload. Such wishes fill the arena to the brim, and then
no placement is found although what is needed has room to spare. So wishes are placed as they are; where buffers do not
fit, the wishes over their needs are cut shorter, again and again, until what is left has a placement. There every
buffer gets what is free of its wish at its addresses, or moves to where it gets more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from snplan.arena.effort import Clock
from snplan.arena.heuristics import stretches
from snplan.arena.problem import FREE, Int64, Problem, height_of, lower_bound, overlaps, subproblem
from snplan.arena.solve import assign

KEPT = (3, 3, 2, 2, *[0] * 12)  # quarters of a wish that one cut after the other leaves to it
SLACK = 0.002  # of the capacity: fragmentation that is not worth another placement
PASSES = 3  # over the buffers with wishes
LOOKS = 20_000_000, 500  # of one buffer at another one: in all, and for each buffer
LOOK = 2e-9  # seconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """Offsets within the capacity, the live intervals granted, and what did not fit.

    `start` and `end` lie between what was needed and what was wished for; `loss` is what wishes lack in all, in units
    of time. `misfits` are the buffers without an offset (theirs is `FREE`), largest first; the others are a placement.
    """

    offsets: Int64
    start: Int64
    end: Int64
    misfits: Int64
    loss: int

    @property
    def complete(self) -> bool:
        """Whether every buffer has an offset."""
        return len(self.misfits) == 0


def fit_within(
    problem: Problem,
    capacity: int,
    *,
    early: Int64 | None = None,
    late: Int64 | None = None,
    time_limit: float = 0.0,
    seed: int = 0,
    clock: Clock | None = None,
) -> Fit:
    """Return offsets that end within `capacity` bytes for all buffers but the misfits, and the live intervals granted.

    `problem` has the live intervals that are needed; `early` and `late` have the starts and ends that are wished for
    (default: as needed). Close to linear in time; `time_limit` (seconds) buys a search where greedy orders leave some
    needs out. Fixed buffers have to lie within the capacity and have no wishes. Raises ValueError when two overlap.

    A planner under a budget calls it so: needed = from a stay's first to its last event; wished = held until the
    offload is expected to be done, and begun when the prefetch should be issued. It then sets each buffer's live
    interval, and with it the moment of its prefetch, to what was granted. Where there are misfits it lowers the target
    of live bytes by `shortfall` (at those times alone, so that only what is live around a misfit moves), plans and
    calls again; at last it isolates the positions of the misfits, not the whole step. Time may be in positions or in
    microseconds: granted times are always times that the caller gave.
    """
    wish = _wish(problem, early, late)

    def place(cut: Problem) -> Int64:
        limit = time_limit if cut is problem else 0.0
        offsets = assign(cut, capacity=capacity, time_limit=limit, seed=seed, clock=clock).offsets
        return np.where((offsets + cut.size > capacity) & (cut.fixed == FREE), FREE, offsets)

    fit = _settled(problem, wish, _placed(problem, wish, place, KEPT), capacity, time_limit)
    return _lowered(problem, fit, capacity, time_limit)


def shortfall(problem: Problem, fit: Fit) -> tuple[Int64, Int64]:
    """Return `(times, bytes)`: from `times[i]` until `times[i + 1]` the misfits that need to be live hold `bytes[i]`.

    Live bytes lowered by that much at those times leave room for the misfits, but for fragmentation.
    """
    misfits = subproblem(problem, fit.misfits)
    times, index = np.unique(np.concatenate([misfits.start, misfits.end]), return_inverse=True)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, index, np.concatenate([misfits.size, -misfits.size]))
    return times.astype(np.int64), np.cumsum(change)


def _wish(problem: Problem, early: Int64 | None, late: Int64 | None) -> Problem:
    free = problem.fixed == FREE
    start = problem.start if early is None else np.where(free, np.minimum(early, problem.start), problem.start)
    end = problem.end if late is None else np.where(free, np.maximum(late, problem.end), problem.end)
    return Problem(start=start, end=end, size=problem.size, fixed=problem.fixed)


def _placed(problem: Problem, wish: Problem, place: Callable[[Problem], Int64], cuts: Sequence[int]) -> Int64:
    """Return the offsets of the longest wishes that have a placement, or else of the needs, `FREE` for what is left."""
    offsets = place(wish)
    over = offsets == FREE
    if wish is problem or not over.any():
        return offsets
    return _placed(problem, _cut(problem, wish, over, cuts[0]) if cuts else problem, place, cuts[1:])


def _cut(problem: Problem, wish: Problem, over: NDArray[np.bool_], quarters: int) -> Problem:
    """Return the wishes with those over the needs of some buffers cut to so many quarters; the needs, without any."""
    before = overlaps(problem, over, wish.start, problem.start)
    after = overlaps(problem, over, problem.end, wish.end)
    if not (before.any() or after.any()):
        return problem
    return Problem(
        start=np.where(before, problem.start - (problem.start - wish.start) * quarters // 4, wish.start),
        end=np.where(after, problem.end + (wish.end - problem.end) * quarters // 4, wish.end),
        size=problem.size,
        fixed=problem.fixed,
    )


def _settled(problem: Problem, wish: Problem, offsets: Int64, capacity: int, time_limit: float) -> Fit:
    """Return the fit that comes of these offsets, `FREE` for buffers yet to be fitted in, by `granting.settle`."""
    if _loss(wish, problem.start, problem.end) == 0 and not (offsets == FREE).any():
        return Fit(offsets=offsets, start=problem.start, end=problem.end, misfits=np.empty(0, np.int64), loss=0)
    from snplan.arena import granting

    lists = granting.list_by_time(*stretches(wish))
    wished = granting.Wished(
        problem.start.copy(), problem.end.copy(), wish.start.copy(), wish.end.copy(), problem.size.copy()
    )
    granted = granting.Granted(offsets.copy(), problem.start.copy(), problem.end.copy())
    granting.extend(wished, granted, lists)
    room = LOOKS[0] + LOOKS[1] * len(problem) + int(time_limit / LOOK)
    for order in _orders(problem, wish, offsets):
        room -= granting.settle(wished, granted, lists, order, capacity, room)
    misfits = np.flatnonzero(granted.offset == FREE)
    return Fit(
        offsets=granted.offset,
        start=granted.start,
        end=granted.end,
        misfits=misfits[np.argsort(-problem.size[misfits], kind="stable")],
        loss=_loss(wish, granted.start, granted.end),
    )


def _lowered(problem: Problem, fit: Fit, capacity: int, time_limit: float) -> Fit:
    """Return the fit at lower offsets, if there are any, where the granted intervals leave more than `SLACK` unused."""
    granted = Problem(start=fit.start, end=fit.end, size=problem.size, fixed=problem.fixed)
    height, bound = height_of(problem, fit.offsets), lower_bound(granted)
    if not fit.complete or height - bound <= SLACK * capacity:
        return fit
    lower = assign(granted, capacity=bound + int(SLACK * capacity), time_limit=time_limit)
    return replace(fit, offsets=lower.offsets) if lower.height < height else fit


def _orders(problem: Problem, wish: Problem, offsets: Int64) -> Iterator[Int64]:
    """Return the orders in which buffers are settled: those without a place, largest first; then those with wishes."""
    out = np.flatnonzero(offsets == FREE)
    yield out[np.argsort(-problem.size[out], kind="stable")]
    some = np.flatnonzero((wish.start < problem.start) | (wish.end > problem.end))
    yield from [some[np.argsort(problem.start[some], kind="stable")]] * PASSES


def _loss(wish: Problem, start: Int64, end: Int64) -> int:
    return int((wish.end - wish.start).sum() - (end - start).sum())
