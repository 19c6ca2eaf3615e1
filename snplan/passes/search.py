"""The budget planner: how much to recompute and how much to move, by the predicted step time of whole candidates.

Candidates differ in which saved tensors are dropped: prefixes of the drop order, for each bound on recomputed segments.
Their times are estimated before placement; the best few are placed, emitted and simulated, and the fastest wins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from snplan.analysis.floor import Floor
from snplan.analysis.index import IndexedStep
from snplan.analysis.schedule import Schedule, build_schedule, saved_tensors
from snplan.passes.realise import Candidate, Costs, keep_all, realise, sketch
from snplan.passes.recompute import drop_order

SEGMENT_SHARES = (None, 0.35, 0.12)  # of the budget: how much one recomputed segment may write
FINALISTS = 3
LEAST_SKETCHES, MOST_SKETCHES, SKETCHED_OPS = 4, 24, 100_000
NO_PLAN = 1 << 62


@dataclass(kw_only=True)
class Search:
    """What is planned, and the best candidate so far.

    `host_limit` bounds the pinned arena (None: no bound); `host_needed` is the least that a candidate asked for.
    """

    step: IndexedStep
    costs: Costs
    budget: int
    floor: Floor
    host_limit: int | None = None
    progress: Callable[[str, float | None], None] = lambda what, share: None
    interrupted: Callable[[], bool] = lambda: False
    best: Candidate | None = None
    host_needed: int | None = None
    _sketches: dict[frozenset[int], int] = field(default_factory=dict)
    _saved: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self._saved = frozenset(saved_tensors(self.step))

    def run(self, everything: Candidate) -> Candidate | None:
        """The fastest candidate found; `everything` is the keep-all candidate. None where the host limit stops all."""
        if everything.body.arena_bytes <= self.budget:
            return everything
        for number, share in enumerate(SEGMENT_SHARES):
            self.progress("planning", number / (len(SEGMENT_SHARES) + 1))
            limit = None if share is None else int(self.budget * share)
            self._search_prefix(drop_order(self.step, limit))
            if self.interrupted():
                break
        self._finish()
        return self.best

    def _search_prefix(self, drops: list[int]) -> None:
        """Sketch prefixes of `drops`: golden-section search, since more recompute means less to move (one minimum)."""
        low, high = 0, len(drops)
        for count in (low, high):
            self._sketch(drops, count)
        for _ in range(7):
            if high - low < 2 or self.interrupted():
                break
            left, right = low + int((high - low) * 0.382), low + int((high - low) * 0.618)
            if self._sketch(drops, left) <= self._sketch(drops, right):
                high = right
            else:
                low = left

    def _sketch(self, drops: list[int], count: int) -> int:
        """Estimated microseconds with the first `count` drops; a lower bound on them where that is not the best."""
        dropped = frozenset(drops[:count])
        if dropped not in self._sketches:
            self._sketches[dropped] = self._estimate(dropped)
        return self._sketches[dropped]

    def _estimate(self, dropped: frozenset[int]) -> int:
        schedule = self._schedule(dropped)
        least = sum(self.step.cost) + schedule.recompute_us()
        shortest = min(self._sketches.values(), default=NO_PLAN)
        if least >= shortest or len(self._sketches) >= self._most():
            return max(least, shortest + 1)
        time = sketch(schedule, self.budget, self.costs)
        return NO_PLAN if time is None else time

    def _most(self) -> int:
        """How many candidates may be sketched: fewer for larger steps, so that planning stays near linear."""
        return max(LEAST_SKETCHES, min(MOST_SKETCHES, SKETCHED_OPS // max(1, len(self.step.ops))))

    def _schedule(self, dropped: frozenset[int]) -> Schedule:
        kept = None if not dropped else self._saved - dropped
        return build_schedule(self.step, kept)

    def _finish(self) -> None:
        """Realise the best sketches; the fastest by simulation wins."""
        ranked = sorted(self._sketches, key=lambda dropped: (self._sketches[dropped], len(dropped)))
        for number, dropped in enumerate(ranked[:FINALISTS]):
            if number and self.best is not None and self.interrupted():
                return
            self._realise(dropped)
        for dropped in ranked[FINALISTS:]:
            if self.best is not None:
                return
            self._realise(dropped)

    def _realise(self, dropped: frozenset[int]) -> None:
        candidate = realise(self._schedule(dropped), self.budget, self.costs, self.floor.bytes)
        if candidate is None:
            return
        needed = candidate.body.host_arena_bytes
        if self.host_limit is not None and needed > self.host_limit:
            self.host_needed = needed if self.host_needed is None else min(self.host_needed, needed)
            return
        if self.best is None or candidate.step_us < self.best.step_us:
            self.best = candidate


def keep_all_candidate(step: IndexedStep, costs: Costs) -> Candidate:
    """The keep-all candidate of `step`."""
    return keep_all(build_schedule(step), costs)
