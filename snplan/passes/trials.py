"""Estimated times of drafts for one target of live bytes, and the search for better ones.

A draft that needs more pinned host memory than there is ranks behind all that do not, by how much it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from snplan.analysis.index import IndexedStep
from snplan.analysis.schedule import Schedule, build_schedule, saved_tensors
from snplan.passes.improve import Draft, lightened, relieved, taken_back
from snplan.passes.realise import Costs, Sketch, sketch
from snplan.passes.slots import host_excess

NO_PLAN = 1 << 62
TOO_MUCH_HOST = 1 << 61
HALVINGS = 3
LEAST_GAIN = 3000  # a change has to save one such part of the step


@dataclass(kw_only=True)
class Trials:
    """Drafts for `target` bytes and their times; sketches of `allowance` actions, about, are made in all.

    times  draft -> estimated microseconds, or a lower bound on them where they are not the least so far
    """

    step: IndexedStep
    costs: Costs
    target: int
    allowance: int
    host_limit: int | None = None
    interrupted: Callable[[], bool] = lambda: False
    times: dict[Draft, int] = field(default_factory=dict)
    work: int = 0
    _saved: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self._saved = frozenset(saved_tensors(self.step))

    def is_over(self) -> bool:
        """Whether enough was sketched."""
        return self.work >= self.allowance or self.interrupted()

    def schedule(self, draft: Draft) -> Schedule:
        """The executions of a draft."""
        kept = None if not draft.dropped else self._saved - draft.dropped
        return build_schedule(self.step, kept, draft.transient)

    def sketch(self, draft: Draft) -> Sketch | None:
        """The sketch of a draft; None where the target is below what an op needs."""
        return sketch(self.schedule(draft), self.target, self.costs, draft.ceilings)

    def time(self, draft: Draft) -> int:
        """Estimated microseconds of a draft, as in `times`."""
        if draft not in self.times:
            self.times[draft] = self._estimate(draft)
        return self.times[draft]

    def _estimate(self, draft: Draft) -> int:
        schedule = self.schedule(draft)
        least = schedule.least_us()
        shortest = min(self.times.values(), default=NO_PLAN)
        if least >= shortest or (self.times and self.is_over()):
            return max(least, shortest + 1)
        found = sketch(schedule, self.target, self.costs, draft.ceilings)
        if found is None:
            return NO_PLAN
        self.work += schedule.end + 4 * len(found.layout.prefetches)
        excess = host_excess(found.layout, self.host_limit)
        return TOO_MUCH_HOST + excess if excess > 0 else found.step_us

    def ranked(self) -> list[Draft]:
        """All drafts, fastest first."""
        return sorted(self.times, key=lambda draft: (self.times[draft], len(draft.dropped)))

    def best_prefix(self, drops: Sequence[int], guess: int) -> Draft:
        """The best draft that drops a prefix of `drops`, searched from `guess` drops in smaller and smaller steps."""
        best = Draft(dropped=frozenset(drops[:guess]))
        self.time(best)
        stride = max(1, len(drops) // 8)
        for _ in range(HALVINGS):
            for count in (guess - stride, guess + stride):
                draft = Draft(dropped=frozenset(drops[: max(0, count)]))
                if not self.is_over() and self.time(draft) < self.times[best]:
                    best, guess = draft, min(len(drops), max(0, count))
            stride = max(1, stride // 3)
        return best

    def improve(self, draft: Draft) -> Draft:
        """`draft` changed for the better, one change after another, as long as its time falls."""
        self.time(draft)
        while not self.is_over():
            now = self.sketch(draft)
            if now is None:
                break
            excess = host_excess(now.layout, self.host_limit)
            near = [*relieved(draft, now, self.costs), *lightened(draft, now, max(excess, self._stalled(now)))]
            below = self.times[draft] - now.step_us // LEAST_GAIN
            better = self._fastest(near, below)
            if better is None:
                better = self._fastest(taken_back(draft, self.step), below)
            if better is None:
                break
            draft = better
        return draft

    def _stalled(self, found: Sketch) -> int:
        """Bytes that the link moves to the host while ops wait."""
        times = found.estimate
        idle = times.step_us - sum(end - start for start, end in zip(times.start, times.end, strict=True))
        return self.costs.sent_bytes(idle)

    def _fastest(self, drafts: Sequence[Draft], below: int) -> Draft | None:
        """The fastest of `drafts`, where one takes less than `below` microseconds."""
        best: Draft | None = None
        for draft in drafts:
            if self.is_over():
                break
            if self.time(draft) < below:
                best, below = draft, self.times[draft]
        return best
