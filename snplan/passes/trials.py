"""Estimated times of drafts for one target of live bytes, and the search for better ones.

A draft that needs more pinned host memory than there is ranks behind all that do not, by how much it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from snplan.analysis.index import IndexedStep
from snplan.analysis.schedule import Schedule, build_schedule, saved_tensors
from snplan.passes.evict import NO_LEANINGS
from snplan.passes.improve import Draft, dearest, filled, lightened, relieved, taken_back
from snplan.passes.leanings import leaned
from snplan.passes.realise import Costs, Sketch, sketch
from snplan.passes.slots import host_excess

NO_PLAN = 1 << 62
TOO_MUCH_HOST = 1 << 61
HALVINGS = 2
PATIENCE = 8
RECENT = 32
MOST_LOSS = 0.1  # more than that is worth no more sketches
LEAN_NEAR = 1.05  # times the least time
LEAST_GAIN = 3000  # a change has to save one such part of the step


@dataclass(kw_only=True)
class Trials:
    """Drafts for `target` bytes and their times; sketches of `allowance` actions, about, are made in all.

    extra     actions more for each percent that the best draft takes above `least_us`, up to `most_loss`
    least_us  microseconds of all ops without recomputes: no draft is below
    times     draft -> estimated microseconds
    bounds    draft -> a lower bound on them, for drafts that are not estimated: others are as fast, or work is over
    """

    step: IndexedStep
    costs: Costs
    target: int
    allowance: int
    extra: int = 0
    most_loss: float = MOST_LOSS
    least_us: int = 1
    host_limit: int | None = None
    interrupted: Callable[[], bool] = lambda: False
    times: dict[Draft, int] = field(default_factory=dict)
    work: int = 0
    bounds: dict[Draft, int] = field(default_factory=dict)
    _saved: frozenset[int] = field(init=False)
    _recent: dict[Draft, Sketch] = field(default_factory=dict)
    _last: tuple[Draft, Schedule] | None = None

    def __post_init__(self) -> None:
        self._saved = frozenset(saved_tensors(self.step))

    def is_over(self) -> bool:
        """Whether enough was sketched."""
        if self.interrupted():
            return True
        if self.work < self.allowance:
            return False
        shortest = min(self.times.values(), default=self.least_us)
        loss = min(shortest / self.least_us - 1, self.most_loss)
        return self.work >= self.allowance + self.extra * 100 * loss

    def schedule(self, draft: Draft) -> Schedule:
        """The executions of a draft, whatever its leanings."""
        plain = replace(draft, leanings=NO_LEANINGS)
        if self._last is None or self._last[0] != plain:
            kept = None if not draft.dropped else self._saved - draft.dropped
            self._last = plain, build_schedule(self.step, kept, draft.transient)
        return self._last[1]

    def sketch(self, draft: Draft) -> Sketch | None:
        """The sketch of a draft; None where the target is below what an op needs."""
        recent = self._recent.get(draft)
        return sketch(self.schedule(draft), self.target, self.costs, draft.leanings) if recent is None else recent

    def time(self, draft: Draft) -> int:
        """Estimated microseconds of a draft, or a lower bound on them, no lower than the least of all."""
        if draft not in self.times and draft not in self.bounds:
            self._estimate(draft)
        return self.times[draft] if draft in self.times else self.bounds[draft]

    def _estimate(self, draft: Draft) -> None:
        """Note the time of a draft, or a lower bound on it."""
        schedule = self.schedule(draft)
        least = self.least_us + schedule.recompute_us()
        shortest = min(self.times.values(), default=NO_PLAN)
        if least >= shortest or (self.times and self.is_over()):
            self.bounds[draft] = max(least, shortest + 1)
        else:
            self.times[draft] = self._sketched(draft, schedule)

    def measured(self, draft: Draft) -> int:
        """Estimated microseconds of a draft, which is sketched however much was sketched before."""
        if draft not in self.times:
            self.times[draft] = self._sketched(draft, self.schedule(draft))
        return self.times[draft]

    def _sketched(self, draft: Draft, schedule: Schedule) -> int:
        """Estimated microseconds of a draft, which is sketched for that."""
        found = sketch(schedule, self.target, self.costs, draft.leanings)
        if found is None:
            return NO_PLAN
        self.work += schedule.end + 4 * len(found.layout.prefetches)
        self._remember(draft, found)
        excess = host_excess(found.layout, self.host_limit)
        return TOO_MUCH_HOST + excess if excess > 0 else found.step_us

    def _remember(self, draft: Draft, found: Sketch) -> None:
        """Keep the last sketches: the best of them is looked at next."""
        self._recent[draft] = found
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]

    def host_suffices(self) -> bool:
        """Whether the host has room for the best draft."""
        return min(self.times.values(), default=NO_PLAN) < TOO_MUCH_HOST

    def host_needed(self) -> int:
        """Bytes of host memory that the draft with the least need asks for, where none suffices."""
        return min(self.times.values()) - TOO_MUCH_HOST + (self.host_limit or 0)

    def ranked(self) -> list[Draft]:
        """Drafts, fastest first; of those that take the same time, which mostly are one plan, one alone."""
        found: dict[int, Draft] = {}
        for draft in sorted(self.times, key=lambda draft: (self.times[draft], len(draft.dropped))):
            found.setdefault(self.times[draft], draft)
        return list(found.values())

    def best_prefix(self, drops: Sequence[int], guess: int) -> Draft:
        """The best draft that drops a prefix of `drops`, searched from `guess` drops in smaller and smaller steps."""
        best = Draft(dropped=frozenset(drops[:guess]))
        self.time(best)
        stride = max(1, len(drops) // 8)
        for _ in range(HALVINGS):
            for count in (guess - stride, guess + stride):
                draft = Draft(dropped=frozenset(drops[: max(0, count)]))
                if not self.is_over() and self.time(draft) < self.time(best):
                    best, guess = draft, min(len(drops), max(0, count))
            stride = max(1, stride // 3)
        return best

    def improve(self, draft: Draft, keeping: frozenset[int] = frozenset()) -> Draft:
        """`draft` changed for the better, one change after another, as long as its time falls.

        Tensors of `keeping` are not dropped. Leanings, which take most sketches, are only changed near the best time.
        """
        self.time(draft)
        while not self.is_over():
            better = self._better(draft, keeping)
            if better is None:
                break
            draft = better
        return draft

    def shake(self) -> None:
        """Look for better drafts beyond changes that make the best one slower at first.

        One of its drops is forbidden, and what is left is improved (a tabu search of one move; Glover 1989).
        """
        best = self.ranked()[0]
        tried: set[Draft] = set()
        failed = 0
        while failed < PATIENCE and not self.is_over():
            near = {best.keeping((tensor,)): tensor for tensor in dearest(best, self.step)}
            starts = [draft for draft in near if draft not in tried][:PATIENCE]
            if not starts:
                break
            start = min(starts, key=self.time)
            tried.add(start)
            found = self.improve(start, frozenset((near[start],)))
            failed += 1
            if self.time(found) < self.time(best):
                best, failed = self.improve(found), 0

    def _better(self, draft: Draft, keeping: frozenset[int]) -> Draft | None:
        """A faster draft near `draft`: the best of the first changes that help."""
        now = self.sketch(draft)
        if now is None:
            return None
        below = self.time(draft) - now.step_us // LEAST_GAIN
        excess = host_excess(now.layout, self.host_limit)
        for near in self._near(draft, now, max(excess, self._stalled(now))):
            allowed = [other for other in near if keeping.isdisjoint(other.dropped)]
            better = self._fastest(allowed, below)
            if better is not None:
                return better
        return None

    def _near(self, draft: Draft, now: Sketch, excess: int) -> Iterator[list[Draft]]:
        yield filled(draft, now, self.target)
        yield from relieved(draft, now, self.costs, self.target)
        yield lightened(draft, now, excess)
        yield taken_back(draft, self.step)
        if self.time(draft) <= min(self.times.values()) * LEAN_NEAR:
            yield from leaned(draft, now, self.costs, self.target)

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
                best, below = draft, self.time(draft)
        return best
