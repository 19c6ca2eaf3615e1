"""Small training steps, exhaustively: the fastest plan by enumeration, by CP-SAT, and the planner's own.

`python benchmarks/optimality.py [--json]` prints one line a step and exits non-zero where CP-SAT misses an optimum, the
planner finds no plan where there is one, its plans are more than 10 % slower on average, or the lower bound is above an
optimum.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from solver.steps import brute_force, chain, fan, random_graph, slow_link, step_of

from snplan.analysis.floor import floor
from snplan.analysis.index import IndexedStep
from snplan.cost.bounds import lower_bound_us
from snplan.passes.realise import step_costs
from snplan.passes.refine import Realiser, refine_candidate
from snplan.passes.search import Search, keep_all_candidate
from snplan.solver.space import make_space

STEP_BYTES = 2048
EXCESS_BAR = 0.10
MOST_OPS = 12
SEEDS = range(1, 13)
DEVICE = slow_link()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One step: budgets tried, optima that CP-SAT proved, budgets that the planner met, its mean excess, seconds.

    `bounded` counts the budgets whose lower bound is at most the optimum, `slack` is by how much less on average.
    """

    name: str
    ops: int
    budgets: int
    proved: int
    met: int
    excess: float
    bounded: int
    slack: float
    solver_gain: float
    seconds: float


def instances() -> dict[str, IndexedStep]:
    """The steps, by name: chains, fans, and random graphs whose step has at most 12 ops."""
    forwards = {"chain of 2": chain(2), "chain of 3": chain(3), "fan of 1": fan(1)}
    forwards |= {f"random {ops}/{seed}": random_graph(ops, seed) for ops in (4, 5) for seed in SEEDS}
    steps = {name: step_of(forward, len(name) + i) for i, (name, forward) in enumerate(forwards.items())}
    return {name: step for name, step in steps.items() if len(step.ops) <= MOST_OPS or not name.startswith("random")}


def measure(name: str, step: IndexedStep) -> Row:
    """The row of one step, over every budget from the floor to keep-all in steps of 2 KiB."""
    start = time.perf_counter()
    costs, low = step_costs(step, DEVICE), floor(step)
    everything = keep_all_candidate(step, costs)
    excesses, gains, bounds, proved, met = [], [], [], 0, 0
    budgets = range(low.bytes, everything.body.arena_bytes, STEP_BYTES)
    for budget in budgets:
        space = make_space(step, DEVICE)
        best = brute_force(space, Realiser(space=space, costs=costs, budget=budget))
        found = Search(step=step, costs=costs, budget=budget, floor=low).run(everything)
        if found is None:
            continue
        met += 1
        refined = refine_candidate(found, costs, budget)
        proved += refined.outcome.status == "optimal" and refined.candidate.step_us <= best
        excesses.append(found.step_us / best - 1)
        bounds.append(min(best, found.step_us) / lower_bound_us(step, DEVICE, budget) - 1)
        gains.append(1 - refined.candidate.step_us / found.step_us)
    return Row(
        name=name,
        ops=len(step.ops),
        budgets=len(budgets),
        proved=proved,
        met=met,
        excess=_mean(excesses),
        bounded=sum(slack >= 0 for slack in bounds),
        slack=_mean(bounds),
        solver_gain=_mean(gains),
        seconds=round(time.perf_counter() - start, 1),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _over(rows: list[Row], field: str) -> float:
    """The mean of a field over all budgets that the planner met."""
    return float(sum(getattr(row, field) * row.met for row in rows) / max(1, sum(row.met for row in rows)))


def passed(rows: list[Row]) -> bool:
    """Whether every optimum was proved and bounded, every budget met, and the planner near enough."""
    mean = _over(rows, "excess")
    return all(row.proved == row.bounded == row.met == row.budgets for row in rows) and mean <= EXCESS_BAR


def table(rows: list[Row]) -> str:
    """The rows as text, with the mean excess below."""
    names = ("step", "ops", "budgets", "CP-SAT optimal", "planner met", "planner excess", "bounded", "slack", "s")
    lines = ["{:14} {:>4} {:>8} {:>15} {:>12} {:>15} {:>8} {:>6} {:>6}".format(*names)]
    for row in rows:
        lines.append(
            f"{row.name:14} {row.ops:4} {row.budgets:8} {row.proved:15} {row.met:12} {row.excess:15.1%} "
            f"{row.bounded:8} {row.slack:6.0%} {row.seconds:6}"
        )
    total = sum(row.met for row in rows)
    mean, slack = _over(rows, "excess"), _over(rows, "slack")
    lines.append(
        f"{len(rows)} steps, {sum(r.budgets for r in rows)} budgets: CP-SAT optimal at {sum(r.proved for r in rows)}, "
        f"planner met {total}, mean excess {mean:.1%} (bar {EXCESS_BAR:.0%}), lower bound under the optimum at "
        f"{sum(r.bounded for r in rows)}, by {slack:.0%}: {'passed' if passed(rows) else 'FAILED'}"
    )
    return "\n".join(lines)


def main() -> int:
    """Measure, print, and say by the exit code whether the bars are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the rows as one JSON list")
    arguments = parser.parse_args()
    rows = []
    for name, step in instances().items():
        rows.append(measure(name, step))
        print(f"{name}: {rows[-1].seconds} s", file=sys.stderr)
    print(json.dumps([asdict(row) for row in rows]) if arguments.json else table(rows))
    return 0 if passed(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
