"""The largest size (a batch, a depth) whose training step fits a budget: by bisection, with the floor as a bound.

No plan is below the floor, so a size whose floor is above the budget is refused without planning it, whatever the
strategy is. Between sizes that fit and sizes that do not, what grows with the size is taken to grow monotonically.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from snplan.compiler import CompileOptions, Prepared, Progress, plan_prepared
from snplan.errors import InfeasibleError, ModelError, NoPlanError, SnplanError
from snplan.strategies.registry import AUTO
from snplan.units import format_bytes

MOST = 1 << 22
"""Sizes above this are not tried."""

GUESSES = 6
"""How often the first guess is refined: small sizes have a floor that hardly depends on the size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One size that was tried: whether it fits, or the reason why not; figures of its plan where one was made.

    `fits` is None where only its floor is known to fit. `needed_bytes` is the arena that a refused plan asked for,
    `proven` says that no plan of the strategy can fit.
    """

    size: int
    fits: bool | None
    reason: str = ""
    proven: bool = False
    floor_bytes: int | None = None
    needed_bytes: int | None = None
    arena_bytes: int | None = None
    step_time_us: int | None = None
    keep_all_step_time_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    """The largest size that fits (None: none was found), the smallest larger one that does not, and all trials.

    `refused` is None where the search ended at its limit; `complete` is False where it was interrupted.
    """

    found: Trial | None
    refused: Trial | None
    trials: list[Trial]
    complete: bool = True


class _Interrupted(Exception):
    """The user wants what there is."""


def as_planned(options: CompileOptions) -> CompileOptions:
    """The options that sizes are prepared with: rules of other systems have every op on its own."""
    return replace(options, fuse=options.fuse and options.strategy == AUTO)


@dataclass(kw_only=True)
class Search:
    """A search over sizes, multiples of `unit` up to `most`; `options` has the budget.

    `make` prepares a size (`as_planned` says with which options). `floors` may hold what an earlier search for a
    strategy with the same options found out.

    With `max_slowdown` a plan must take at most so many times the step time of the keep-all plan of the same size. With
    `floor_only` no plan is made where the floor alone decides: by the strategy `auto` without a limit on host memory.
    """

    make: Callable[[int], Prepared]
    options: CompileOptions
    unit: int = 1
    most: int = MOST
    max_slowdown: float | None = None
    floor_only: bool = False
    progress: Progress = lambda what, share: None
    interrupted: Callable[[], bool] = lambda: False
    floors: dict[int, Trial] = field(default_factory=dict)
    plans: dict[int, Trial] = field(default_factory=dict)
    _reserve: int = 0

    def run(self) -> Largest:
        """The largest size. Raises InfeasibleError or NoPlanError where the smallest size does not fit, ModelError."""
        try:
            count = self._count(self._bound())
        except _Interrupted:
            return self._largest(complete=False)
        if count == 0:
            raise self._nothing()
        return self._largest(complete=True)

    def _count(self, bound: int) -> int:
        """The largest count of units whose plan fits, 0 for none; `bound` is the largest whose floor does."""
        if self.max_slowdown is not None:  # plans near the floor are slow: to run, and to find
            return self._bisect(0, bound + 1)
        if self.floor_only and self.options.strategy == AUTO and self.options.host_bytes is None:
            trial = self._floor(bound)
            if trial.fits is None:  # the plan that keeps nothing between ops is there
                self.plans[trial.size] = replace(trial, fits=True)
                return bound
        top = self._planned(bound)
        if top.fits:
            return bound
        if top.needed_bytes and bound > 1:  # what a rule needs grows about in proportion to the size
            if not self._planned(1).fits:
                return 0
            guess = bound * self._room() // top.needed_bytes
            return gallop(lambda count: bool(self._planned(count).fits), guess, bound - 1)
        return self._bisect(0, bound)

    def _bound(self) -> int:
        """The largest count of units whose floor fits; 1 where none does."""
        first, top = self._floor(1), self.most // self.unit
        if first.fits is False:
            return 1
        guess = 1
        for _ in range(GUESSES):
            guess = min(top, self._scaled(guess))
        return gallop(lambda count: self._floor(count).fits is not False, guess, top)

    def _scaled(self, count: int) -> int:
        """The count whose floor were the budget, did the floor grow in proportion to the size."""
        floor = self._floor(count).floor_bytes
        return max(1, count * self._room() // floor) if floor else count

    def _room(self) -> int:
        """Bytes of the budget without the reserve."""
        return self.options.budget_bytes - self._reserve

    def _why_below(self, floor: int) -> str:
        """Why the room is under a floor, in words."""
        budget, reserve, room = self.options.budget_bytes, self._reserve, self._room()
        if room > 0:
            return f"the floor of {format_bytes(floor)} is above the budget less the reserve, {format_bytes(room)}"
        taken = f"the reserve of {format_bytes(reserve)} takes all of the budget of {format_bytes(budget)}"
        return f"{taken}, and the floor is {format_bytes(floor)}"

    def _bisect(self, low: int, high: int) -> int:
        """The largest count whose plan fits, between one that does (0 for none) and one that does not."""
        return bisect(lambda count: bool(self._planned(count).fits), low, high)

    def _floor(self, count: int) -> Trial:
        """The trial of a size by its floor alone."""
        size = count * self.unit
        if size not in self.floors:
            self._told(f"{size}: floor")
            self.floors[size] = self._floor_of(size, first=count == 1)
        return self.floors[size]

    def _floor_of(self, size: int, *, first: bool) -> Trial:
        try:
            prepared = self.make(size)
        except (ModelError, InfeasibleError) as error:
            if first:
                raise
            return Trial(size=size, fits=False, proven=True, reason=error.message)
        self._reserve = prepared.reserve(self.options)
        lowest, room = prepared.lowest.bytes, self._room()
        if lowest <= room:
            return Trial(size=size, fits=None, floor_bytes=lowest)
        reason = self._why_below(lowest)
        return Trial(size=size, fits=False, proven=True, floor_bytes=lowest, needed_bytes=lowest, reason=reason)

    def _planned(self, count: int) -> Trial:
        """The trial of a size by its plan."""
        size = count * self.unit
        if size in self.plans:
            return self.plans[size]
        floor = self._floor(count)
        if floor.fits is None:
            self._told(f"{size}: planning")
            self.plans[size] = self._plan(size)
            if self.interrupted():  # what the planner answered then is not its best
                del self.plans[size]
                raise _Interrupted
            return self.plans[size]
        return floor

    def _plan(self, size: int) -> Trial:
        prepared = self.make(size)
        lowest = prepared.lowest.bytes
        try:
            report = plan_prepared(prepared, self.options, interrupted=self.interrupted).report
        except (InfeasibleError, NoPlanError) as error:
            return Trial(
                size=size,
                fits=False,
                reason=error.message,
                proven=isinstance(error, InfeasibleError),
                floor_bytes=lowest,
                needed_bytes=error.details.get("wanted_bytes"),
            )
        time, keep_all = report["step_time_us"], prepared.everything.step_us
        slow = self.max_slowdown is not None and time > self.max_slowdown * keep_all
        return Trial(
            size=size,
            fits=not slow,
            reason=_slow_text(time, keep_all, self.max_slowdown) if self.max_slowdown is not None and slow else "",
            floor_bytes=lowest,
            arena_bytes=report["arena_bytes"],
            step_time_us=time,
            keep_all_step_time_us=keep_all,
        )

    def _told(self, what: str) -> None:
        if self.interrupted():
            raise _Interrupted
        self.progress(what, None)

    def _largest(self, *, complete: bool) -> Largest:
        trials = {**self.floors, **self.plans}
        found = max((t for t in self.plans.values() if t.fits), key=lambda trial: trial.size, default=None)
        least = 0 if found is None else found.size
        larger = (t for t in trials.values() if t.fits is False and t.size > least)
        refused = min(larger, key=lambda trial: trial.size, default=None)
        in_order = [trials[size] for size in sorted(trials)]
        return Largest(found=found, refused=refused, trials=in_order, complete=complete)

    def _nothing(self) -> SnplanError:
        """Why not even the smallest size fits."""
        trial = self._planned(1)
        message = f"not even size {trial.size}, the smallest, fits: {trial.reason}"
        details = {
            "budget_bytes": self.options.budget_bytes,
            "reserve_bytes": self._reserve,
            "floor_bytes": trial.floor_bytes,
            "wanted_bytes": trial.needed_bytes,
        }
        known = {name: value for name, value in details.items() if value is not None}
        return InfeasibleError("SNP-P006", message, known) if trial.proven else NoPlanError("SNP-P007", message, known)


def gallop(fits: Callable[[int], bool], guess: int, most: int) -> int:
    """The largest count from 1 to `most` that fits, where 1 does: strides that double from a guess, then bisection."""
    low, high, stride = 1, most + 1, 1
    at = max(1, min(guess, most))
    if fits(at):
        low = at
        while low < most and low + stride < high:
            if not fits(min(most, low + stride)):
                high = min(most, low + stride)
                break
            low, stride = min(most, low + stride), stride * 2
    else:
        high = at
        while high - stride > 1 and not fits(high - stride):
            high, stride = high - stride, stride * 2
        low = max(1, high - stride)
    return bisect(fits, low, high)


def bisect(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The largest count that fits, between `low`, which does (or stands for none), and `high`, which does not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _slow_text(time: int, keep_all: int, limit: float) -> str:
    """Why a plan is too slow, with digits enough to tell its factor from the limit."""
    factor = time / max(1, keep_all)
    shown = next((text for digits in range(3, 9) if float(text := f"{factor:.{digits}f}") > limit), f"{factor!r}")
    return f"{shown} times the keep-all plan's step time, above --max-slowdown {limit:g}"
