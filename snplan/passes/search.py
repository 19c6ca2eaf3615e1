"""The budget planner: how much to recompute and how much to move, by the simulated step time of whole candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from snplan.analysis.floor import Floor
from snplan.analysis.index import IndexedStep
from snplan.analysis.schedule import build_schedule, saved_tensors
from snplan.passes.realise import Candidate, Costs, keep_all, realise
from snplan.passes.recompute import Drop, drop_order

SEGMENT_SHARES = (None, 0.35, 0.12)  # of the budget: how much one recomputed segment may write
LEAST_EVALUATIONS, MOST_EVALUATIONS, EVALUATED_OPS = 4, 24, 60_000


@dataclass(kw_only=True)
class Search:
    """The best candidate so far, and what decides whether to go on.

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
    _evaluations: int = 0
    _tried: dict[frozenset[int], int | None] = field(default_factory=dict)

    def run(self, everything: Candidate) -> Candidate | None:
        """The fastest candidate found; `everything` is the keep-all candidate. None where the host limit stops all."""
        if everything.body.arena_bytes <= self.budget:
            return everything
        for number, share in enumerate(SEGMENT_SHARES):
            self.progress("planning", number / len(SEGMENT_SHARES))
            limit = None if share is None else int(self.budget * share)
            self._search_prefix(drop_order(self.step, limit))
            if self.best is not None and self.interrupted():
                break
        return self.best

    def _search_prefix(self, drops: list[Drop]) -> None:
        """Try prefixes of `drops`: golden-section search, since more recompute means less to move (one minimum)."""
        low, high = 0, len(drops)
        for count in (low, high):
            self._try(drops, count)
        for _ in range(5):
            if high - low < 2 or self.interrupted():
                break
            left, right = low + int((high - low) * 0.382), low + int((high - low) * 0.618)
            if self._try(drops, left) <= self._try(drops, right):
                high = right
            else:
                low = left

    def _try(self, drops: list[Drop], count: int) -> int:
        """Simulated microseconds with the first `count` drops; a very large number where that gives no plan."""
        dropped = frozenset(drop.tensor for drop in drops[:count])
        if dropped not in self._tried:
            self._tried[dropped] = self._evaluate(dropped)
        time = self._tried[dropped]
        return 1 << 62 if time is None else time

    def _most(self) -> int:
        """How many candidates may be built whole: fewer for larger steps, so that planning stays near linear."""
        return max(LEAST_EVALUATIONS, min(MOST_EVALUATIONS, EVALUATED_OPS // max(1, len(self.step.ops))))

    def _evaluate(self, dropped: frozenset[int]) -> int | None:
        kept = None if not dropped else {t for t in saved_tensors(self.step) if t not in dropped}
        schedule = build_schedule(self.step, kept)
        least = sum(self.step.cost) + schedule.recompute_us()
        if self.best is not None and (least >= self.best.step_us or self._evaluations >= self._most()):
            return least
        self._evaluations += 1
        candidate = realise(schedule, self.budget, self.costs, self.floor.bytes)
        if candidate is None:
            return None
        if self.host_limit is not None and candidate.body.host_arena_bytes > self.host_limit:
            needed = candidate.body.host_arena_bytes
            self.host_needed = needed if self.host_needed is None else min(self.host_needed, needed)
            return None
        if self.best is None or candidate.step_us < self.best.step_us:
            self.best = candidate
        return candidate.step_us


def keep_all_candidate(step: IndexedStep, costs: Costs) -> Candidate:
    """The keep-all candidate of `step`."""
    return keep_all(build_schedule(step), costs)
