"""The budget planner: what to recompute, what to move and which engines to use, by the predicted step time of drafts.

First come drafts that differ in how much they drop: prefixes of drop orders, each for a bound on recomputed segments
and a set of tensors that stay. They are changed where their timelines lose time (`improve`), as long as that makes them
faster. The best drafts are placed, emitted and simulated, and the fastest candidate wins. Where fragmentation is too
much for the budget, and where work is left, lower targets of live bytes are tried.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from snplan.analysis.floor import Floor, working_set
from snplan.analysis.index import IndexedStep
from snplan.analysis.schedule import build_schedule
from snplan.cost.bounds import lower_bound_us
from snplan.passes.fill import refilled
from snplan.passes.improve import Draft
from snplan.passes.large import LARGE_STEP, LargeStep
from snplan.passes.lean import lean_drafts
from snplan.passes.lower import lowered
from snplan.passes.realise import Candidate, Costs, isolated, keep_all, realise
from snplan.passes.recompute import bottlenecks, drop_order, drops_that_free, worth_moving
from snplan.passes.trials import LEAST_GAIN, MOST_LOSS, Trials
from snplan.passes.wander import wander

# What the link can move in the forward pass, in parts of which it is left the tensors that are dearest to recompute,
# and the bound on a recomputed segment in parts of the budget.
LINK_FAMILIES = ((0.0, 0.35), (0.6, None), (1.0, None), (0.0, 0.12))
# One in so many bottlenecks of the forward pass stays, and the bound on a recomputed segment.
CHECKPOINT_FAMILIES = ((2, 0.7), (4, 0.7))
STARTS = 4  # drafts of one target that those for a lower one begin with
EFFORTS = ((0.1, 1, 8), (2.0, 4, 2))  # of placement, attempts, and finalists
# Sketches, and actions sketched, for a target; more of them for each percent above the least that the ops take.
LEAST_SKETCHES, FIRST_SKETCHES, MOST_SKETCHES = 4, 12, 300
FIRST_ACTIONS, SKETCHED_ACTIONS, MORE_ACTIONS = 12_000, 80_000, 25_000
FEW_OPS = 1000
LOWER_SKETCHES = 4  # of those for the budget itself there is at least one for a lower target
WIN_BACK = 4  # what is lost to fragmentation buys so many times the sketches that other losses do
FEW_OPS_IN_ORDER, LOSS_TO_FILL = 256, 0.05  # orders are tried in steps of so many ops that lose that part of their time
GAP = 0.1  # above the lower bound: where drafts are further from it, so many actions are sketched at random, and
WANDERED, WANDERED_PER_US = 450_000, 40  # no more than so many for each microsecond of the step
LOWER_TARGETS = (0.985, 0.96, 0.9, 0.8, 0.65)
# Where a plan takes more by that part than the ops alone: targets, in parts of the budget, at which its drafts are
# changed on, and the work for each of them, in parts of what was done so far.
SWING_LOSS, SWINGS, SWING_WORK = 0.04, (1.05, 0.95), 0.25


@dataclass(kw_only=True)
class Search:
    """What is planned, and the best candidate so far.

    `host_limit` bounds the pinned arena (None: no bound); `host_needed` is the least that a candidate asked for.
    `extra` are candidates from elsewhere, such as strategies: those within the budget compete.
    """

    step: IndexedStep
    costs: Costs
    budget: int
    floor: Floor
    host_limit: int | None = None
    extra: Sequence[Candidate] = ()
    progress: Callable[[str, float | None], None] = lambda what, share: None
    interrupted: Callable[[], bool] = lambda: False
    best: Candidate | None = None
    host_needed: int | None = None

    def run(self, everything: Candidate) -> Candidate | None:
        """The fastest candidate found; `everything` is the keep-all candidate. None where the host limit stops all."""
        for candidate in (everything, *self.extra):
            if candidate.arena_bytes <= self.budget:
                self._offer(candidate)
        if self.best is everything:
            return everything
        with _frozen_heap():
            if len(self.step.ops) > LARGE_STEP:
                self._plan_large(everything)
            else:
                self._search(everything)
        return self.best

    def _plan_large(self, everything: Candidate) -> None:
        large = LargeStep(
            step=self.step,
            costs=self.costs,
            budget=self.budget,
            least=self.floor.bytes,
            peak=int(everything.layout.residency.live.max()),
            host_limit=self.host_limit,
        )
        self.progress("planning", None)
        candidate = large.plan(self.interrupted)
        if candidate is not None:
            self._offer(candidate)

    def _search(self, everything: Candidate) -> None:
        left = self._allowance()
        trials = self._tried(everything, self.budget, left)
        self._swing(trials)
        left -= trials.work
        if not trials.host_suffices():
            trials = self._leaner(trials)
        if not trials.host_suffices():
            return
        trials = self._filled(trials)
        if self._has_gap(trials):
            wander(trials, min(WANDERED, WANDERED_PER_US * self._least_us))
        self._finish(trials)
        shortest = min(trials.times.values())
        for part in LOWER_TARGETS:
            target = max(int(self.budget * part), self.floor.bytes)
            best = trials.ranked()
            met = left <= 0 and self._is_met(trials.times[best[0]])
            if self.interrupted() or target == trials.target or met:
                break
            trials = self._tried(everything, target, left, best[:STARTS], shortest)
            left -= trials.work
            self._finish(trials)
        if self.best is None:
            self._isolate(trials)
        elif all(self.best is not other for other in self.extra):
            self.best = lowered(self.best, self.costs)

    def _tried(
        self, everything: Candidate, target: int, left: int, drafts: Sequence[Draft] = (), least: int = 0
    ) -> Trials:
        """Trials for a target that begin with `drafts` and, if actions are `left` to be sketched, with new ones.

        `least` are microseconds that drafts are hardly below: what plans lose to that is what they may win.
        """
        trials = self._trials(target, max(left, self._allowance() // LOWER_SKETCHES), least)
        for draft in (*drafts, *(self._starts(trials, everything) if left > 0 else ())):
            trials.improve(draft)
        trials.shake()
        return trials

    def _swing(self, trials: Trials) -> None:
        """Look for better drafts by way of what is best with a little more memory, and with a little less.

        Where the search got stuck matters less then: more memory seldom makes a plan slower.
        """
        spent, before = trials.work, trials.times[trials.ranked()[0]]
        for part in SWINGS:
            if trials.is_over() or not trials.host_suffices() or before <= self._least_us * (1 + SWING_LOSS):
                return
            near = self._trials(max(int(self.budget * part), self.floor.bytes), int(spent * SWING_WORK))
            near.extra = 0
            for there, back in ((trials, near), (near, trials)):
                for draft in there.ranked()[:STARTS]:
                    back.improve(draft)
            trials.work += near.work
        if trials.times[trials.ranked()[0]] < before:
            trials.shake()

    def _filled(self, trials: Trials) -> Trials:
        """Trials of the best draft in an order in which its stalls are filled, where that helps a short step."""
        draft = trials.ranked()[0]
        if len(self.step.ops) > FEW_OPS_IN_ORDER or trials.times[draft] < self._least_us * (1 + LOSS_TO_FILL):
            return trials
        found = refilled(trials, draft)
        if found is None:
            return trials
        self._finish(trials)
        route, self.step = self.step, found[0]
        filled = self._trials(self.budget, self._allowance() // LOWER_SKETCHES)
        filled.extra = 0
        filled.improve(found[1])
        filled.shake()
        if filled.host_suffices():
            return filled
        self.step = route
        return trials

    def _has_gap(self, trials: Trials) -> bool:
        """Whether the best draft of a short step takes much longer than the lower bound says any plan must."""
        us = trials.times[trials.ranked()[0]]
        if len(self.step.ops) > FEW_OPS_IN_ORDER or us < self._least_us * (1 + GAP):
            return False
        return us > lower_bound_us(self.step, self.costs.device, self.budget) * (1 + GAP)

    def _leaner(self, trials: Trials) -> Trials:
        """Trials of drafts that recompute more, so that the host has room; the least that was asked for is noted."""
        leaner = self._trials(self.budget, self._allowance())
        for draft in lean_drafts(self.step):
            leaner.time(draft)
        leaner.improve(leaner.ranked()[0])
        if not leaner.host_suffices():
            self._note_host(min(trials.host_needed(), leaner.host_needed()))
        return leaner

    def _is_met(self, us: int) -> bool:
        """Whether a plan is as fast as a draft that takes `us`, about: then nothing is lost to fragmentation."""
        return self.best is not None and self.best.step_us <= us + us // LEAST_GAIN

    def _allowance(self) -> int:
        """Actions that are sketched for a start; fewer for larger steps, so that planning stays near linear."""
        ops = len(self.step.ops)
        most = min(MOST_SKETCHES * ops, FIRST_ACTIONS + FIRST_SKETCHES * ops, SKETCHED_ACTIONS)
        return max(LEAST_SKETCHES * ops, most)

    @cached_property
    def _least_us(self) -> int:
        """Microseconds of all ops, each with the fastest engine whose workspace fits the budget beside its tensors."""
        step, least = self.step, 0
        for op, engines in enumerate(step.engines):
            if engines:
                room = self.budget - working_set(step, op) + engines[0].workspace
                least += min((engine.us for engine in engines if engine.workspace <= room), default=engines[0].us)
            else:
                least += step.cost[op]
        return least

    def _trials(self, target: int, allowance: int, least: int = 0) -> Trials:
        ops = max(1, len(self.step.ops))
        lost = WIN_BACK * (self.best.step_us / least - 1) if least and self.best is not None else MOST_LOSS
        return Trials(
            step=self.step,
            costs=self.costs,
            target=target,
            least_us=self._least_us,
            allowance=allowance,
            extra=min(MOST_SKETCHES * ops, MORE_ACTIONS * min(ops, FEW_OPS) // ops),
            most_loss=min(lost, MOST_LOSS),
            host_limit=self.host_limit,
            interrupted=self.interrupted,
        )

    def _starts(self, trials: Trials, everything: Candidate) -> list[Draft]:
        """The best drafts of some families, to be improved."""
        excess = int(everything.layout.residency.live.max()) - trials.target
        found: list[Draft] = []
        families = len(LINK_FAMILIES) + len(CHECKPOINT_FAMILIES)
        for number, (drops, moved) in enumerate(self._families()):
            self.progress("planning", number / (families + 2))
            found.append(trials.best_prefix(drops, drops_that_free(self.step, drops, excess - moved)))
            if trials.is_over():
                break
        self.progress("planning", families / (families + 2))
        return sorted(dict.fromkeys(found), key=trials.time)

    def _families(self) -> Iterator[tuple[list[int], int]]:
        """Orders of drops, and the bytes that need not be dropped because the link moves them."""
        moved = self.costs.sent_forward(self.step, self.host_limit)
        for part, segment in LINK_FAMILIES:
            kept = worth_moving(self.step, part * self.costs.device.d2h_bytes_per_s / 10**6)
            yield drop_order(self.step, None if segment is None else int(self.budget * segment), kept), moved
        narrow = bottlenecks(self.step)
        for stride, segment in CHECKPOINT_FAMILIES:
            yield drop_order(self.step, int(self.budget * segment), frozenset(narrow[::stride])), moved

    def _finish(self, trials: Trials) -> None:
        """Realise the best drafts; the fastest by simulation wins. Little effort goes into many, then more into few."""
        for effort, attempts, finalists in EFFORTS:
            for number, draft in enumerate(trials.ranked()[:finalists]):
                best = self.best
                if best is not None and (best.step_us <= trials.times[draft] or (number and self.interrupted())):
                    break
                candidate = realise(
                    trials.schedule(draft),
                    trials.target,
                    self.budget,
                    self.costs,
                    draft.leanings,
                    effort=effort,
                    attempts=attempts,
                )
                if candidate is not None:
                    self._offer(candidate)

    def _isolate(self, trials: Trials) -> None:
        """Realise the best drafts with isolated positions: this can always be placed."""
        for draft in trials.ranked():
            candidate = isolated(trials.schedule(draft), self.budget, self.costs)
            if candidate is not None:
                self._offer(candidate)
            if self.best is not None or (candidate is not None and self.host_limit is not None):
                return

    def _offer(self, candidate: Candidate) -> None:
        needed = candidate.body.host_arena_bytes
        if self.host_limit is not None and needed > self.host_limit:
            self._note_host(needed)
        elif self.best is None or candidate.step_us < self.best.step_us:
            self.best = candidate

    def _note_host(self, needed: int) -> None:
        self.host_needed = needed if self.host_needed is None else min(self.host_needed, needed)


@contextmanager
def _frozen_heap() -> Iterator[None]:
    """Spares the garbage collector what is there already: drafts make many objects, and none of them in cycles."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def keep_all_candidate(step: IndexedStep, costs: Costs) -> Candidate:
    """The keep-all candidate of `step`."""
    return keep_all(build_schedule(step), costs)
