"""The budget planner: what to recompute, what to move and which engines to use, by the predicted step time of drafts.

First come drafts that differ in how much they drop: prefixes of drop orders, each for a bound on recomputed segments
and a set of tensors that are left to the link. The best of them are changed where their timelines stall (`improve`), as
long as that makes them faster. The best drafts are placed, emitted and simulated, and the fastest candidate wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from snplan.analysis.floor import Floor
from snplan.analysis.index import IndexedStep
from snplan.analysis.schedule import Schedule, build_schedule, saved_tensors
from snplan.passes.improve import Draft, relieved, taken_back
from snplan.passes.realise import Candidate, Costs, Sketch, keep_all, realise, sketch
from snplan.passes.recompute import drop_order, worth_moving

# (part of what the link can move in the forward pass that is left to it, bound on a recomputed segment by budget)
FAMILIES = ((0.0, 0.35), (0.6, None), (1.0, None), (0.0, 0.12))
HALVINGS = 7
STARTS = 2
FINALISTS = 3
LEAST_SKETCHES, MOST_SKETCHES, SKETCHED_OPS = 6, 100, 60_000
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
    _times: dict[Draft, int] = field(default_factory=dict)
    _sketches: int = 0
    _saved: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self._saved = frozenset(saved_tensors(self.step))

    def run(self, everything: Candidate) -> Candidate | None:
        """The fastest candidate found; `everything` is the keep-all candidate. None where the host limit stops all."""
        if everything.body.arena_bytes <= self.budget:
            return everything
        starts = []
        for number, (moved, share) in enumerate(FAMILIES):
            self.progress("planning", number / (len(FAMILIES) + 2))
            protected = worth_moving(self.step, moved * self.costs.device.d2h_bytes_per_s / 10**6)
            limit = None if share is None else int(self.budget * share)
            starts.append(self._search_prefix(drop_order(self.step, limit, protected)))
            if self.interrupted():
                break
        for draft in sorted(dict.fromkeys(starts), key=self._times.__getitem__)[:STARTS]:
            self.progress("planning", len(FAMILIES) / (len(FAMILIES) + 2))
            self._improve(draft)
        self._finish()
        return self.best

    def _search_prefix(self, drops: list[int]) -> Draft:
        """The best prefix of `drops` by golden-section search: more recompute means less to move (one minimum)."""
        drafts = [Draft(dropped=frozenset(drops[:count])) for count in (0, len(drops))]
        low, high = 0, len(drops)
        for draft in drafts:
            self._time(draft)
        for _ in range(HALVINGS):
            if high - low < 2 or self.interrupted():
                break
            left, right = low + int((high - low) * 0.382), low + int((high - low) * 0.618)
            drafts += [Draft(dropped=frozenset(drops[:count])) for count in (left, right)]
            if self._time(drafts[-2]) <= self._time(drafts[-1]):
                high = right
            else:
                low = left
        return min(drafts, key=self._times.__getitem__)

    def _improve(self, draft: Draft) -> None:
        """Change `draft` for the better, one change after another, as long as the estimate falls."""
        while not self._is_over():
            now = self._sketch(draft)
            if now is None:
                return
            better = self._fastest(relieved(draft, now, self.costs), self._times[draft])
            if better is None:
                better = self._fastest(taken_back(draft, self.step), self._times[draft])
            if better is None:
                return
            draft = better

    def _fastest(self, drafts: Sequence[Draft], below: int) -> Draft | None:
        """The fastest of `drafts`, where one takes less than `below` microseconds."""
        best: Draft | None = None
        for draft in drafts:
            if self._is_over():
                break
            if self._time(draft) < below:
                best, below = draft, self._times[draft]
        return best

    def _time(self, draft: Draft) -> int:
        """Estimated microseconds of `draft`; a lower bound on them where that is not the best."""
        if draft not in self._times:
            self._times[draft] = self._estimate(draft)
        return self._times[draft]

    def _estimate(self, draft: Draft) -> int:
        schedule = self._schedule(draft)
        least = sum(self.step.cost) + schedule.recompute_us()
        shortest = min(self._times.values(), default=NO_PLAN)
        if least >= shortest or self._is_over():
            return max(least, shortest + 1)
        self._sketches += 1
        found = sketch(schedule, self.budget, self.costs, draft.ceilings)
        return NO_PLAN if found is None else found.step_us

    def _sketch(self, draft: Draft) -> Sketch | None:
        return sketch(self._schedule(draft), self.budget, self.costs, draft.ceilings)

    def _is_over(self) -> bool:
        """Whether enough was sketched: less for larger steps, so that planning stays near linear."""
        most = max(LEAST_SKETCHES, min(MOST_SKETCHES, SKETCHED_OPS // max(1, len(self.step.ops))))
        return self._sketches >= most or self.interrupted()

    def _schedule(self, draft: Draft) -> Schedule:
        kept = None if not draft.dropped else self._saved - draft.dropped
        return build_schedule(self.step, kept, draft.transient)

    def _finish(self) -> None:
        """Realise the best drafts; the fastest by simulation wins."""
        ranked = sorted(self._times, key=lambda draft: (self._times[draft], len(draft.dropped)))
        for number, draft in enumerate(ranked[:FINALISTS]):
            if number and self.best is not None and self.interrupted():
                return
            self._realise(draft)
        for draft in ranked[FINALISTS:]:
            if self.best is not None:
                return
            self._realise(draft)

    def _realise(self, draft: Draft) -> None:
        candidate = realise(self._schedule(draft), self.budget, self.costs, self.floor.bytes, draft.ceilings)
        if candidate is not None:
            self.consider(candidate)

    def consider(self, candidate: Candidate) -> None:
        """Take `candidate`, which fits the budget, where it is the fastest so far and the host has room for it."""
        needed = candidate.body.host_arena_bytes
        if self.host_limit is not None and needed > self.host_limit:
            self.host_needed = needed if self.host_needed is None else min(self.host_needed, needed)
            return
        if self.best is None or candidate.step_us < self.best.step_us:
            self.best = candidate


def keep_all_candidate(step: IndexedStep, costs: Costs) -> Candidate:
    """The keep-all candidate of `step`."""
    return keep_all(build_schedule(step), costs)
