"""Plans of large steps, near linear in ops: a few drafts that keep checkpoints, each laid out once.

Where all of the forward pass goes through single tensors (bottlenecks), every so many of them are kept and what lies
between them is recomputed, as far as the budget asks for it and the link cannot move it. Fewer and fewer are kept as
long as that saves time: longer segments write more when they run again. The best draft by its estimate is placed as it
was laid out: its live bytes end somewhat below the budget, which is room for fragmentation, so that the first placement
nearly always fits. Where it does not, the same draft is laid out for less.

Before that, blocks that repeat share decisions: what twin ops of all blocks write is dropped, or kept, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from snplan.analysis.index import IndexedStep
from snplan.analysis.repeats import strands
from snplan.analysis.schedule import Schedule, build_schedule, saved_tensors
from snplan.passes.realise import Candidate, Costs, Sketch, finish, isolated, place, sketch
from snplan.passes.recompute import bottlenecks, drop_order, drops_that_free
from snplan.passes.slots import host_excess

LARGE_STEP = 10_000  # ops; larger steps are planned here
TARGETS = (0.985, 0.95, 0.88, 0.75)  # parts of the budget that live bytes may fill
STRIDES = (2, 4, 16)  # one in so many bottlenecks stays
SEGMENT = 0.7  # of the budget: the bound on a recomputed segment
TWIN_ACTIONS = 100_000  # of schedules, and of sketches, in which the decisions for twins are changed


class _Ranked(NamedTuple):
    """A sketch, the host memory that it needs too much (bytes), its microseconds, and the saved tensors it keeps."""

    excess: int
    us: int
    sketch: Sketch
    kept: frozenset[int]

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

    @cached_property
    def _saved(self) -> frozenset[int]:
        return frozenset(saved_tensors(self.step))

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
        best = self._checkpointed(target, interrupted)
        if best is not None and best.excess == 0:
            best = self._with_twins(best, target, interrupted)
        return None if best is None else best.sketch

    def _checkpointed(self, target: int, interrupted: Callable[[], bool]) -> _Ranked | None:
        """The best of the drafts that keep checkpoints."""
        best: _Ranked | None = None
        for drafts in self._drafts():
            before = best
            for kept in drafts:
                schedule = self._schedule(kept)
                if best is not None and (interrupted() or best.beats(0, schedule.least_us())):
                    continue
                was, best = best, self._better(best, schedule, kept, target)
                if best is not None and best is was and before is not None and best.excess == 0:
                    return best  # fewer checkpoints save nothing, and fewer still neither
        return best

    def _with_twins(self, best: _Ranked, target: int, interrupted: Callable[[], bool]) -> _Ranked:
        """`best`, or what it becomes where twins in repeated blocks are dropped or kept together, most bytes first."""
        size, left = self.step.size, TWIN_ACTIONS
        groups = [frozenset(tensors) & self._saved for tensors in strands(self.step)]
        for group in sorted(groups, key=lambda group: (-sum(size[t] for t in group), min(group, default=0))):
            for kept in (best.kept - group, best.kept | group):
                if left < len(self.step.ops) or interrupted():
                    return best
                if kept == best.kept:
                    continue
                schedule = self._schedule(kept)
                left -= schedule.end // 4
                if best.beats(0, schedule.least_us()):
                    continue
                left -= schedule.end
                was, best = best, self._better(best, schedule, kept, target) or best
                if best is not was:
                    break
        return best

    def _better(self, best: _Ranked | None, schedule: Schedule, kept: frozenset[int], target: int) -> _Ranked | None:
        """The better of the best sketch so far and that of a schedule; the other one's memory is free on return."""
        found = sketch(schedule, target, self.costs)
        if found is None:
            return best
        excess = max(0, host_excess(found.layout, self.host_limit))
        if best is not None and best.beats(excess, found.step_us):
            return best
        return _Ranked(excess, found.step_us, found, kept)

    def _schedule(self, kept: frozenset[int]) -> Schedule:
        """The schedule that keeps these saved tensors."""
        return build_schedule(self.step, None if kept == self._saved else kept)

    def _drafts(self) -> Iterator[Iterator[frozenset[int]]]:
        """Saved tensors that drafts keep, for each stride: what the link can move or more, and only checkpoints."""
        narrow = bottlenecks(self.step)
        moved = self.costs.sent_forward(self.step, self.host_limit)
        excess = self.peak - self._target(TARGETS[0]) - moved
        everything = False  # had to be dropped: then that is where to go on
        for stride in STRIDES:
            drops = drop_order(self.step, int(self.budget * SEGMENT), frozenset(narrow[::stride]))
            some = drops_that_free(self.step, drops, excess)
            counts = (len(drops), some) if everything else (some, len(drops))
            yield (self._saved - frozenset(drops[:count]) for count in dict.fromkeys(counts))
            everything = some == len(drops)
