"""Plans of large steps, near linear in ops: a few drafts that keep checkpoints, each laid out once.

Where all of the forward pass goes through single tensors (bottlenecks), every so many of them are kept and what lies
between them is recomputed, as far as the budget asks for it and the link cannot move it. Fewer and fewer are kept as
long as that saves time: longer segments write more when they run again. The best draft by its estimate is placed as it
was laid out: its live bytes end somewhat below the budget, which is room for fragmentation, so that the first placement
nearly always fits. Where it does not, the same draft is laid out for less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from snplan.analysis.index import IndexedStep
from snplan.analysis.schedule import Schedule, build_schedule, saved_tensors
from snplan.passes.realise import Candidate, Costs, Sketch, finish, isolated, place, sketch
from snplan.passes.recompute import bottlenecks, drop_order, drops_that_free
from snplan.passes.slots import host_excess

LARGE_STEP = 10_000  # ops; larger steps are planned here
TARGETS = (0.985, 0.95, 0.88, 0.75)  # parts of the budget that live bytes may fill
STRIDES = (2, 4, 16)  # one in so many bottlenecks stays
SEGMENT = 0.7  # of the budget: the bound on a recomputed segment


class _Ranked(NamedTuple):
    """A sketch, the bytes of host memory that it needs too much, and its microseconds."""

    excess: int
    us: int
    sketch: Sketch

    def beats(self, excess: int, us: int) -> bool:
        """Whether nothing with so many bytes too much and so many microseconds is better."""
        return (self.excess, self.us) <= (excess, us)


@dataclass(frozen=True, kw_only=True)
class LargeStep:
    """A step to plan, the bytes that keep-all has live at its peak, and the limits of device and host (None: none)."""

    step: IndexedStep
    costs: Costs
    budget: int
    least: int  # live bytes that no plan is below
    peak: int
    host_limit: int | None = None

    def plan(self, interrupted: Callable[[], bool] = lambda: False) -> Candidate | None:
        """The candidate of the best draft; None where even isolated positions do not fit."""
        target = self._target(TARGETS[0])
        found = self._best(target, interrupted)
        if found is None:
            return None
        schedule = found.layout.residency.schedule
        for part in TARGETS:
            if self._target(part) < target:
                target = self._target(part)
                found = sketch(schedule, target, self.costs)
            if found is None or interrupted():
                break
            offsets = place(found.layout, self.budget)
            if offsets is not None:
                return finish(found.layout, offsets, self.costs)
        return isolated(schedule, self.budget, self.costs)

    def _target(self, part: float) -> int:
        return max(int(self.budget * part), self.least)

    def _best(self, target: int, interrupted: Callable[[], bool]) -> Sketch | None:
        """The sketch with the least time of those that the host has room for, or else with the least host memory."""
        best: _Ranked | None = None
        for schedules in self._schedules(target):
            before = best
            for schedule in schedules:
                if best is not None and (interrupted() or best.beats(0, schedule.least_us())):
                    continue
                was, best = best, self._better(best, schedule, target)
                if best is not None and best is was and before is not None and best.excess == 0:
                    return best.sketch  # fewer checkpoints save nothing, and fewer still neither
        return None if best is None else best.sketch

    def _better(self, best: _Ranked | None, schedule: Schedule, target: int) -> _Ranked | None:
        """The better of the best sketch so far and that of a schedule; the other one's memory is free on return."""
        found = sketch(schedule, target, self.costs)
        if found is None:
            return best
        excess = max(0, host_excess(found.layout, self.host_limit))
        return best if best is not None and best.beats(excess, found.step_us) else _Ranked(excess, found.step_us, found)

    def _schedules(self, target: int) -> Iterator[Iterator[Schedule]]:
        """Schedules of drafts, for each stride: what the link leaves to recompute, and all but the checkpoints."""
        saved = frozenset(saved_tensors(self.step))
        narrow = bottlenecks(self.step)
        moved = self.costs.sent_forward(self.step, self.host_limit)
        everything = False  # had to be dropped: then that is where to go on
        for stride in STRIDES:
            drops = drop_order(self.step, int(self.budget * SEGMENT), frozenset(narrow[::stride]))
            some = drops_that_free(self.step, drops, self.peak - target - moved)
            counts = (len(drops), some) if everything else (some, len(drops))
            kept = (saved - frozenset(drops[:count]) if count else None for count in dict.fromkeys(counts))
            yield (build_schedule(self.step, tensors) for tensors in kept)
            everything = some == len(drops)
