"""`--solver cp-sat`: improve a candidate with the exact solver; every step of it is a placed and simulated plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from snplan.analysis.residency import Residency
from snplan.passes.layout import make_layout
from snplan.passes.realise import Candidate, Costs, finish, place
from snplan.passes.workspaces import positions_of_ops
from snplan.solver.refine import Outcome, refine
from snplan.solver.space import Decisions, Space, decisions_of, make_space, residency_of

PLACE_EFFORT = 0.05
ISOLATED_ABOVE = (0.95, 0.7, 0.4, 0.0)  # of the budget: what is isolated where placement fails


@dataclass(kw_only=True)
class Realiser:
    """Turns decisions into candidates within `budget` bytes, and keeps the fastest."""

    space: Space
    costs: Costs
    budget: int
    host_limit: int | None = None
    best: Candidate | None = None
    _live: dict[Decisions, list[int]] = field(default_factory=dict)

    def evaluate(self, decisions: Decisions) -> int | None:
        """Microseconds of the plan of `decisions`; None where there is none."""
        candidate = self.candidate(decisions)
        if candidate is None:
            return None
        if self.host_limit is not None and candidate.body.host_arena_bytes > self.host_limit:
            return None
        if self.best is None or candidate.step_us < self.best.step_us:
            self.best = candidate
        return candidate.step_us

    def candidate(self, decisions: Decisions) -> Candidate | None:
        """The placed and simulated candidate of `decisions`; None where the budget is below what an op needs."""
        for part in (None, *ISOLATED_ABOVE):
            residency = self._fitted(decisions)
            if residency is None:
                return None
            if part is not None:
                residency.isolate(np.flatnonzero(residency.live > int(self.budget * part)).tolist())
            layout = make_layout(residency, self.budget, self.costs.copy_us)
            offsets = place(layout, self.budget, PLACE_EFFORT if part is None else 0.0)
            if offsets is not None:
                return finish(layout, offsets, self.costs)
        return None

    def _fitted(self, decisions: Decisions) -> Residency | None:
        """The residency of `decisions`, with the smallest workspaces; positions over the budget are isolated."""
        residency = residency_of(self.space, decisions)
        for op, positions in positions_of_ops(residency).items():
            residency.set_engine(op, 0, positions)
        over = np.flatnonzero(residency.live > self.budget)
        if over.size:
            residency.isolate(over.tolist())
        return residency if int(residency.live.max(initial=0)) <= self.budget else None

    def live(self, decisions: Decisions) -> list[int]:
        """Live bytes while each op first runs."""
        residency = residency_of(self.space, decisions)
        found = [0] * self.space.end
        for position, op in enumerate(residency.schedule.runs):
            found[op] = max(found[op], int(residency.live[position]))
        return found


@dataclass(frozen=True, kw_only=True)
class Refined:
    """What the solver made of a candidate: the fastest candidate, and the outcome."""

    candidate: Candidate
    outcome: Outcome


def refine_candidate(
    start: Candidate,
    costs: Costs,
    budget: int,
    *,
    bound_us: int = 0,
    seconds: float = 60.0,
    host_limit: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Refined:
    """The best candidate found within `budget` bytes in about `seconds`, at least as fast as `start`."""
    step = start.schedule.step
    space = make_space(step, costs.device)
    realiser = Realiser(space=space, costs=costs, budget=budget, host_limit=host_limit, best=start)
    outcome = refine(
        space,
        budget,
        (decisions_of(space, start.layout.residency), start.step_us),
        realiser.evaluate,
        realiser.live,
        bound_us=bound_us,
        seconds=seconds,
        progress=progress,
        interrupted=interrupted,
    )
    assert realiser.best is not None
    return Refined(candidate=realiser.best, outcome=outcome)
