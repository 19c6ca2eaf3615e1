"""Search a space of plans with CP-SAT, starting from a plan: exactly for small steps, by windows for others.

Each solution of the model is realised and timed by the caller (`evaluate`); the model then excludes it and asks for
less than the best time. When nothing is left, the best plan is optimal in its space (a logic-based Benders
decomposition; Hooker and Ottosson, Mathematical Programming 96, 2003). With windows, decisions outside the window stay
as they are, until no window gives anything. Anytime: the best plan found is kept at every moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ortools.sat.python import cp_model

from snplan.solver.model import Frame, Model, build_model
from snplan.solver.space import Decisions, Space

EXACT_UP_TO = 64  # ops of the step
WINDOW_TENSORS = 24
WINDOW_POSITIONS = 48
SOLVE_SECONDS = 1.5  # so that an interrupt is seen soon
SOLVE_EFFORT = 4.0  # deterministic time of one solve
WINDOW_TRIES = 4

Evaluate = Callable[[Decisions], "int | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The best decisions found, their time, a lower bound on the time of the space, and how it ended.

    status: "optimal" (no better plan in the space), "feasible" (limits were reached), "interrupted"
    """

    decisions: Decisions
    time_us: int
    bound_us: int
    status: str
    evaluated: int


@dataclass(kw_only=True)
class Refiner:
    """State of `refine`."""

    space: Space
    budget: int
    evaluate: Evaluate
    best: Decisions
    best_us: int
    bound_us: int
    deadline: float
    progress: Callable[[str], None] = lambda text: None
    interrupted: Callable[[], bool] = lambda: False
    solve_seconds: float = SOLVE_SECONDS
    evaluated: int = 0

    def stopped(self) -> bool:
        """Whether to stop now."""
        return self.interrupted() or time.monotonic() >= self.deadline

    def exact(self) -> str:
        """Search the whole space; the status."""
        frame = Frame(positions=range(self.space.end))
        seen: list[Decisions] = []
        while not self.stopped() and self.best_us > self.bound_us:
            model = build_model(self.space, frame, self.budget, self.best_us)
            for decisions in seen:
                model.forbid(decisions)
            status, found, bound = self._solve(model)
            self.bound_us = min(max(self.bound_us, bound), self.best_us)
            if status == cp_model.INFEASIBLE:
                self.bound_us = self.best_us
                return "optimal"
            if found is None:
                continue
            seen.append(found)
            self._try(found)
        return "optimal" if self.best_us <= self.bound_us else self._ended()

    def windows(self, live: Callable[[Decisions], list[int]]) -> str:
        """Improve window by window until none helps; the status. `live` gives live bytes of each op for decisions."""
        idle = 0
        spans = list(_spans(self.space))
        while idle < len(spans) and self.best_us > self.bound_us:
            for tensors in spans:
                if self.stopped():
                    return self._ended()
                idle = 0 if self._improve(tensors, live) else idle + 1
                if idle >= len(spans):
                    break
        return "optimal" if self.best_us <= self.bound_us else "feasible"

    def _improve(self, tensors: frozenset[int], live: Callable[[Decisions], list[int]]) -> bool:
        """Search one window; whether the best plan changed."""
        frame = Frame(
            current=self.best, free=tensors, positions=_watched(self.space, tensors, live(self.best), WINDOW_POSITIONS)
        )
        before, seen = self.best_us, [self.best]
        for _ in range(WINDOW_TRIES):
            if self.stopped():
                break
            model = build_model(self.space, frame, self.budget, self.best_us)
            for decisions in seen:
                model.forbid(decisions)
            _, found, _ = self._solve(model)
            if found is None:
                break
            seen.append(found)
            if self._try(found):
                break
        return self.best_us < before

    def _solve(self, model: Model) -> tuple[cp_model.CpSolverStatus, Decisions | None, int]:
        """Status, decisions and lower bound of one solve."""
        model.hint(self.best)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        solver.parameters.max_deterministic_time = SOLVE_EFFORT
        solver.parameters.max_time_in_seconds = max(0.05, min(self.solve_seconds, self.deadline - time.monotonic()))
        status = solver.solve(model.cp)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return status, None, 0
        return status, model.decisions(solver), int(solver.best_objective_bound)

    def _try(self, decisions: Decisions) -> bool:
        """Realise decisions; whether they are the best so far."""
        self.evaluated += 1
        found = self.evaluate(decisions)
        better = found is not None and found < self.best_us
        if found is not None and better:
            self.best, self.best_us = decisions, found
        gap = 100 * (self.best_us - self.bound_us) / self.best_us if self.best_us else 0.0
        self.progress(
            f"cp-sat: {self.evaluated} plans, best {self.best_us} us, bound {self.bound_us} us, gap {gap:.1f} %"
        )
        return better

    def _ended(self) -> str:
        return "interrupted" if self.interrupted() else "feasible"


def refine(
    space: Space,
    budget: int,
    start: tuple[Decisions, int],
    evaluate: Evaluate,
    live: Callable[[Decisions], list[int]],
    *,
    bound_us: int = 0,
    seconds: float = 60.0,
    solve_seconds: float = SOLVE_SECONDS,
    progress: Callable[[str], None] = lambda text: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """The best decisions found within `budget` bytes in about `seconds`, from `start` (decisions and their time).

    `evaluate` realises decisions and gives the time of the plan (None: no plan); `live` gives live bytes at each op.
    `bound_us` is a lower bound that is known already; no solve takes more than `solve_seconds`.
    """
    state = Refiner(
        space=space,
        budget=budget,
        evaluate=evaluate,
        best=start[0],
        best_us=start[1],
        bound_us=bound_us,
        deadline=time.monotonic() + seconds,
        solve_seconds=solve_seconds,
        progress=progress,
        interrupted=interrupted,
    )
    status = state.exact() if space.end <= EXACT_UP_TO else state.windows(live)
    return Outcome(
        decisions=state.best,
        time_us=state.best_us,
        bound_us=min(state.bound_us, state.best_us),
        status=status,
        evaluated=state.evaluated,
    )


def _spans(space: Space) -> Iterator[frozenset[int]]:
    """Windows of saved tensors by their op, each half over the one before."""
    order = sorted(space.saved, key=lambda saved: (saved.op, saved.tensor))
    if not order:
        return
    step = max(1, WINDOW_TENSORS // 2)
    for first in range(0, max(1, len(order) - step), step):
        yield frozenset(saved.tensor for saved in order[first : first + WINDOW_TENSORS])


def _watched(space: Space, tensors: frozenset[int], live: list[int], count: int) -> list[int]:
    """Positions to model: the fullest ones, and ones spread over the lifetimes of `tensors`."""
    marks = sorted({p for s in space.saved if s.tensor in tensors for p in (s.last_forward, s.first_backward)})
    step = max(1, len(marks) // (count // 2))
    chosen = set(marks[::step])
    fullest = sorted(range(space.end), key=lambda p: (-live[p], p))
    spread = max(1, len(fullest) // (8 * count))
    for p in fullest[: 4 * count * spread : 4 * spread]:
        chosen.add(p)
    return sorted(chosen)
