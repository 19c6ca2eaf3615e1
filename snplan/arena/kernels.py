"""The inner loops of the exact search, compiled (`jit`).

`search` places buffers in the order of their offsets, lowest first, which every placement that has
been pushed down as far as it goes (a canonical placement) allows. At every node the *floor* of a buffer is the highest
top of the placed buffers it conflicts with, so a placement is a sequence of buffers and nothing else. A node is dead
when some section (a set of buffers all live at one time) cannot hold what is left of it above the floors. Canonical
placements, sections and dominated offsets are ideas published with MiniMalloc (Moffitt, ASPLOS 2023).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from snplan.arena.jit import inner, kernel
from snplan.arena.problem import Int64

HUGE = 1 << 62

# Estimated nanoseconds: of a node, of each buffer unplaced there, of each entry of a list that is walked.
NODE, UNPLACED, ENTRY = 200, 20, 1
FOUND, EXHAUSTED, STOPPED = 1, 0, 2


class Model(NamedTuple):
    """A problem for `search`: buffers in rank order, live in the sections `start[i] .. end[i] - 1`."""

    start: Int64
    end: Int64
    size: Int64
    fixed: Int64  # offset, or -1
    twin: Int64  # the buffer of the rank before with the same interval and size, or -1
    first_neighbor: Int64  # by buffer, into `neighbor`
    neighbor: Int64
    obstacle: Int64  # the buffers with a fixed offset


class State(NamedTuple):
    """What `search` changes; `link` and `back` list the unplaced buffers by rank, with the entry `n` as both ends."""

    offset: Int64
    placed: Int64
    floor: Int64
    bound: Int64  # lowest offset that is still possible, refreshed at every node
    by_bound: Int64  # the buffers by bound, as last sorted
    stack: Int64  # per section: where its unplaced buffers end at the lowest
    failures: Int64  # per section: how often it ended a branch
    link: Int64
    back: Int64
    trail: Int64  # pairs (buffer, its floor before)
    work: Int64  # one number: estimated nanoseconds


class Switches(NamedTuple):
    """Which of the optional rules are on; none of them changes whether a problem has a solution."""

    dominance: bool
    support: bool
    sections: bool
    twins: bool
    dynamic: bool


@kernel
def neighbors(start: Int64, end: Int64, order: Int64) -> tuple[Int64, Int64]:
    """Return `(first, neighbor)`: those live together with buffer `i` are `neighbor[first[i] : first[i + 1]]`.

    `order` has the buffers by start.
    """
    n = len(start)
    live = np.empty(n, np.int64)
    first = np.zeros(n + 1, np.int64)
    count = 0
    for i in order:
        count = _still_live(live, count, end, start[i])
        first[i + 1] += count
        for j in live[:count]:
            first[j + 1] += 1
        live[count] = i
        count += 1
    for i in range(n):
        first[i + 1] += first[i]
    neighbor, filled = np.empty(first[n], np.int64), first.copy()
    count = 0
    for i in order:
        count = _still_live(live, count, end, start[i])
        for j in live[:count]:
            neighbor[filled[i]], neighbor[filled[j]] = j, i
            filled[i] += 1
            filled[j] += 1
        live[count] = i
        count += 1
    return first, neighbor


@inner
def _still_live(live: Int64, count: int, end: Int64, time: int) -> int:
    """Return how many of some buffers end after a time; these now come first."""
    kept = 0
    for k in range(count):
        if end[live[k]] > time:
            live[kept] = live[k]
            kept += 1
    return kept


@kernel
def search(model: Model, state: State, switches: Switches, capacity: int, limit: int, room: int) -> tuple[int, int]:
    """Return `(FOUND | EXHAUSTED | STOPPED, nodes)`; when found, `state.offset` holds the offsets.

    Depth first, without recursion: `chosen[d]` is the buffer placed at depth `d`; the next branch there is the next
    buffer after it in the order of (floor, rank), which needs no list because backtracking restores every floor.
    """
    n = len(model.size)
    chosen = np.full(n + 1, -1, np.int64)
    ceiling = np.zeros(n + 1, np.int64)
    marks = np.zeros(n + 1, np.int64)
    depth, nodes = 0, 0
    while True:
        last = chosen[depth - 1] if depth else -1
        last_offset = state.offset[last] if depth else 0
        if chosen[depth] < 0:
            nodes += 1
            if depth == n:
                return FOUND, nodes
            if nodes > limit or state.work[0] > room:
                return STOPPED, nodes
            state.work[0] += NODE + UNPLACED * (n - depth)
            ceiling[depth] = _examine(model, state, switches, capacity, last_offset, last)
        pick = _next_branch(model, state, switches, ceiling[depth], chosen[depth], last_offset, last)
        if pick >= 0:
            chosen[depth] = pick
            marks[depth + 1] = _put(model, state, pick, marks[depth])
            depth += 1
            chosen[depth] = -1
        else:
            depth -= 1
            if depth < 0:
                return EXHAUSTED, nodes
            _take(state, chosen[depth], marks[depth], marks[depth + 1])


@inner
def _is_before(offset: int, i: int, last_offset: int, last: int) -> bool:
    """Return whether a buffer at this offset should have been placed before the last one."""
    return offset < last_offset or (offset == last_offset and i < last)


@inner
def _blocked(model: Model, state: State, i: int) -> bool:
    """Return whether an unplaced fixed buffer is in the way of a free buffer at its floor."""
    if model.fixed[i] >= 0:
        return False
    low, high = state.floor[i], state.floor[i] + model.size[i]
    for j in model.obstacle:
        if (
            not state.placed[j]
            and (model.start[j] < model.end[i] and model.start[i] < model.end[j])
            and (model.fixed[j] < high and low < model.fixed[j] + model.size[j])
        ):
            return True
    return False


@inner
def _examine(model: Model, state: State, switches: Switches, capacity: int, last_offset: int, last: int) -> int:
    """Return the offset below which the next buffer must lie; 0 when the node is dead. Refreshes `state.bound`."""
    ceiling = _bounds(model, state, last_offset, last)
    if ceiling == 0:
        return 0
    if switches.support:
        _support(model, state, last_offset, last)
    if not _each_fits(model.size, state.bound, state.link, capacity):
        return 0
    if switches.sections and not _sections_fit(model, state, capacity):
        return 0
    return ceiling if switches.dominance else HUGE


@inner
def _bounds(model: Model, state: State, last_offset: int, last: int) -> int:
    """Return the lowest top of a buffer that could be placed next; 0 when a fixed buffer has become impossible."""
    size, fixed, floor, bound, link = model.size, model.fixed, state.floor, state.bound, state.link
    obstacles = len(model.obstacle) > 0
    ceiling = HUGE
    i = link[len(size)]
    while i < len(size):
        if fixed[i] >= 0 and (floor[i] > fixed[i] or _is_before(fixed[i], i, last_offset, last)):
            return 0
        bound[i] = fixed[i] if fixed[i] >= 0 else max(floor[i], last_offset)
        passed_over = fixed[i] < 0 and _is_before(floor[i], i, last_offset, last)
        if not passed_over and bound[i] + size[i] < ceiling and not (obstacles and _blocked(model, state, i)):
            ceiling = bound[i] + size[i]
        i = link[i]
    return ceiling


@inner
def _support(model: Model, state: State, last_offset: int, last: int) -> None:
    """Raise the bound of every buffer passed over to the lowest top that it can still come to rest on."""
    size, fixed, floor, bound, link = model.size, model.fixed, state.floor, state.bound, state.link
    placed, first, neighbor = state.placed, model.first_neighbor, model.neighbor
    i = link[len(size)]
    while i < len(size):
        if fixed[i] < 0 and _is_before(floor[i], i, last_offset, last):
            lowest = HUGE
            state.work[0] += ENTRY * (first[i + 1] - first[i]) // 2
            for k in range(first[i], first[i + 1]):
                j = neighbor[k]
                if not placed[j] and bound[j] + size[j] < lowest:
                    lowest = bound[j] + size[j]
            bound[i] = lowest
        i = link[i]


@inner
def _each_fits(size: Int64, bound: Int64, link: Int64, capacity: int) -> bool:
    """Return whether every unplaced buffer fits above its bound."""
    i = link[len(size)]
    while i < len(size):
        if bound[i] + size[i] > capacity:
            return False
        i = link[i]
    return True


@inner
def _sections_fit(model: Model, state: State, capacity: int) -> bool:
    """Return whether the unplaced buffers of every section, one on the other and none below its bound, end in time.

    One on the other in the order of their bounds is the lowest they can end (one machine, release dates). One sweep
    over all buffers in that order stacks them in all their sections at once.
    """
    size, bound, placed, by_bound, stack = model.size, state.bound, state.placed, state.by_bound, state.stack
    _sort(by_bound, bound)
    stack[:] = 0
    looks = 0
    for i in by_bound:
        if not placed[i]:
            looks += model.end[i] - model.start[i]
            _add(stack[model.start[i] : model.end[i]], bound[i], size[i])
    state.work[0] += ENTRY * looks
    fits = True
    for section in range(len(stack)):
        if stack[section] > capacity:
            state.failures[section] += 1
            fits = False
    return fits


@inner
def _sort(order: Int64, key: Int64) -> None:
    """Sort an order that is nearly sorted already."""
    for k in range(1, len(order)):
        i, at = order[k], k
        while at > 0 and key[order[at - 1]] > key[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i


@inner
def _add(stack: Int64, bound: int, size: int) -> None:
    for k in range(len(stack)):
        stack[k] = max(stack[k], bound) + size


@inner
def _next_branch(
    model: Model, state: State, switches: Switches, ceiling: int, previous: int, last_offset: int, last: int
) -> int:
    """Return the unplaced buffer to try after `previous` (-1: the first), or -1 when there is none."""
    fixed, floor, link, placed, twin = model.fixed, state.floor, state.link, state.placed, model.twin
    n, twins, dynamic, obstacles = len(fixed), switches.twins, switches.dynamic, len(model.obstacle) > 0
    after = -1
    if previous >= 0:
        after = fixed[previous] if fixed[previous] >= 0 else floor[previous]
    best, best_position = -1, ceiling
    i = link[n] if dynamic or previous < 0 else link[previous]
    while i < n:
        position = fixed[i] if fixed[i] >= 0 else floor[i]
        if (
            position < best_position
            and not (dynamic and _is_before(position, i, after, previous + 1))
            and not _is_before(position, i, last_offset, last)
            and not (twins and twin[i] >= 0 and not placed[twin[i]])
            and not (obstacles and _blocked(model, state, i))
        ):
            best, best_position = i, position
            if not dynamic:
                break
        i = link[i]
    return best


@inner
def _put(model: Model, state: State, i: int, mark: int) -> int:
    """Place a buffer, raise the floors of its neighbors, and return the new end of the trail."""
    placed, floor, trail, neighbor = state.placed, state.floor, state.trail, model.neighbor
    state.offset[i] = model.fixed[i] if model.fixed[i] >= 0 else floor[i]
    top = state.offset[i] + model.size[i]
    placed[i] = 1
    state.link[state.back[i]], state.back[state.link[i]] = state.link[i], state.back[i]
    state.work[0] += 2 * ENTRY * (model.first_neighbor[i + 1] - model.first_neighbor[i])
    for k in range(model.first_neighbor[i], model.first_neighbor[i + 1]):
        j = neighbor[k]
        if not placed[j] and floor[j] < top:
            trail[mark], trail[mark + 1] = j, floor[j]
            floor[j] = top
            mark += 2
    return mark


@inner
def _take(state: State, i: int, mark: int, end: int) -> None:
    """Undo `_put`, whose trail is `mark .. end`."""
    floor, trail = state.floor, state.trail
    for k in range(mark, end, 2):
        floor[trail[k]] = trail[k + 1]
    state.link[state.back[i]], state.back[state.link[i]] = i, i
    state.placed[i] = 0
