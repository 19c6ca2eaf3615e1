"""Orders of the backward pass in which stalls are filled: what does not depend on an op that waits runs meanwhile.

An op waits for copies that could not begin before its pinch, the position that had no room for them, was over. Ops
before the pinch that it does not need move behind it (weight gradients and updates, most of them), the last ones first,
as far as the stall is long; ops after the one that waits, which do not need it, move before it. What moves keeps its
order. Whether that helps is for a sketch to say: what waits takes room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from snplan.analysis.index import IndexedStep
from snplan.passes.improve import Draft, Loss, stalls
from snplan.passes.realise import Costs, Sketch
from snplan.passes.reorder import edges_of, in_order, readers_of
from snplan.passes.trials import LEAST_GAIN, Trials

MOST_STALLS = 6
MOST_ROUNDS = 12

Edges: TypeAlias = Sequence[Sequence[int]]


def refilled(trials: Trials, draft: Draft) -> tuple[IndexedStep, Draft] | None:
    """The step in an order in which `draft` takes less time, and the draft there; None where none was found."""
    step, now = trials.step, trials.sketch(draft)
    found: tuple[IndexedStep, Draft] | None = None
    for _ in range(MOST_ROUNDS):
        if now is None:
            break
        better = _fastest(step, draft, now, trials)
        if better is None:
            break
        step, draft, now = better
        found = step, draft
    return found


def _fastest(step: IndexedStep, draft: Draft, now: Sketch, trials: Trials) -> tuple[IndexedStep, Draft, Sketch] | None:
    """The fastest of the orders near that of `step`, where one is faster."""
    best: tuple[IndexedStep, Draft, Sketch] | None = None
    below = now.step_us - now.step_us // LEAST_GAIN
    for order in orders(now, trials.costs):
        near = in_order(step, order)
        moved = renumbered(draft, order)
        found = Trials(step=near, costs=trials.costs, target=trials.target, allowance=1).sketch(moved)
        if found is not None and found.step_us < below:
            best, below = (near, moved, found), found.step_us
    return best


def renumbered(draft: Draft, order: Sequence[int]) -> Draft:
    """The draft for the step whose ops are in `order`."""
    place = {op: position for position, op in enumerate(order)}
    leanings = replace(
        draft.leanings,
        patient=frozenset(place[op] for op in draft.leanings.patient),
        slowed=frozenset((place[op], engine) for op, engine in draft.leanings.slowed),
    )
    return replace(draft, leanings=leanings)


def orders(sketch: Sketch, costs: Costs) -> Iterator[list[int]]:
    """Orders of the ops of a sketch's step, each of which fills one of its longest stalls."""
    schedule = sketch.layout.residency.schedule
    found = sorted(stalls(sketch, costs), key=lambda loss: (-loss.us, loss.position))[:MOST_STALLS]
    edges = edges_of(schedule.step, readers_of(schedule.step))
    for loss in found:
        op, pinch = schedule.runs[loss.position], _last_first_run(sketch, loss)
        if op < schedule.step.backward or not schedule.first[loss.position] or pinch >= op:
            continue
        for us in (loss.us, 2 * loss.us):
            for pushed, pulled in ((True, True), (True, False), (False, True)):
                order = _order(schedule.step, edges, op, pinch, us, pushed=pushed, pulled=pulled)
                if order is not None:
                    yield order


def _last_first_run(sketch: Sketch, loss: Loss) -> int:
    """The op that runs first at the pinch of a loss or last before it; -1 where that is no op of the backward pass."""
    schedule = sketch.layout.residency.schedule
    position = loss.pinch
    while position >= 0 and not schedule.first[position]:
        position -= 1
    op = schedule.runs[position] if position >= 0 else -1
    return op if op >= schedule.step.backward else -1


def _order(
    step: IndexedStep, edges: tuple[Edges, Edges], op: int, pinch: int, us: int, *, pushed: bool, pulled: bool
) -> list[int] | None:
    """The order with some `us` microseconds of ops moved into the stall of `op`; None where nothing moves."""
    before, behind = edges
    push = _until(step, _not_needed(step, before, pinch), us) if pushed else set()
    pull = _closed(before, op, _until(step, _not_waiting(step, behind, op), us)) if pulled else set()
    if not push and not pull:
        return None
    place = pinch if push else op - 1
    head = [i for i in range(place + 1) if i not in push]
    rest = [i for i in range(op, len(step.ops)) if i not in pull]
    return [*head, *sorted(push), *range(place + 1, op), *sorted(pull), *rest]


def _not_needed(step: IndexedStep, before: Edges, pinch: int) -> list[int]:
    """Ops of the backward pass before `pinch` that it does not need, the last first: those that need them are ahead."""
    needed = _reached(before, pinch) if pinch >= 0 else set()
    return [i for i in range(pinch - 1, step.backward - 1, -1) if i not in needed]


def _not_waiting(step: IndexedStep, behind: Edges, op: int) -> list[int]:
    """Ops after `op` that do not need it."""
    waiting = _reached(behind, op)
    return [i for i in range(op + 1, len(step.ops)) if i not in waiting]


def _closed(before: Edges, op: int, ops: set[int]) -> set[int]:
    """Those of `ops` that need only what runs before `op`, or one another."""
    found: set[int] = set()
    for i in sorted(ops):
        if all(b < op or b in found for b in before[i]):
            found.add(i)
    return found


def _until(step: IndexedStep, ops: Sequence[int], us: int) -> set[int]:
    """As many of `ops`, in their order, as take `us` microseconds."""
    chosen: set[int] = set()
    for op in ops:
        if us <= 0:
            break
        chosen.add(op)
        us -= step.cost[op]
    return chosen


def _reached(edges: Edges, op: int) -> set[int]:
    """The ops that can be reached from `op`."""
    found: set[int] = set()
    stack = [op]
    while stack:
        for other in edges[stack.pop()]:
            if other not in found:
                found.add(other)
                stack.append(other)
    return found
