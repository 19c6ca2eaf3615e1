"""Lower bounds on the step time: no plan of the step within the budget is faster.

1. The compute stream runs every op at least once, with an engine whose workspace fits beside what the op reads and
   writes: C microseconds in all.
2. Take any op v. When it first runs, all ops that it depends on have run and none of those that depend on it. So the
   items of its cut (`snplan.cost.cuts`) are somewhere: on the device, beside what v itself needs; in host memory; or
   nowhere, to be made again. What is E bytes too many for the budget is absent, and each byte of it costs time:

   - An item that is made again adds the time of its op to C.
   - An item that must come back goes over the link in both directions. What goes both ways takes time on the link,
     as much at a time as both directions together move: a bound of its own.
   - What is in host memory when v begins was copied out before that, each item after the ops that make it. Let `room`
     be C less the microseconds of v and of the ops that depend on it: without stalls v begins no later than that (ops
     run again after v delay no copy before it). Of the items made at time m or later the link moves at most room - m
     microseconds' worth while ops run. Every copy beyond that, for whatever m, delays the step by as much as it takes.
   - What is in host memory when v ends comes back after that, each item before the ops that read it: the same with
     time read backwards. Here the ops that run again and the copies are on the same side of v and may overlap: the
     step is late by at least any weighted mean of the two.

   With a price for each absent byte (a Lagrange multiplier), every item is absent in the cheapest way: made again,
   copied with a delay, or copied for nothing where the windows have room. The windows are nested, so what goes into
   them is a matroid and the dearest items are chosen greedily (as for jobs with deadlines, Moore 1968), parts allowed.
   `absent_ticks` has the proof.
3. Each op that is cut at runs with one of its engines: a slower one drives out less, and what all of them are slower by
   adds up (`least_late_us`).

All of it holds for every order of the ops. It is evaluated in integers, rounded down, at the ops where most is too
much for the budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from snplan.analysis.floor import working_set
from snplan.analysis.index import IndexedStep, match_in_place
from snplan.cost.cuts import NEVER, Bools, Cut, Cutter, Ints
from snplan.cost.device import Device
from snplan.units import GRANULE

Floats: TypeAlias = npt.NDArray[np.float64]

_CUTS = 24  # more for steps of few ops, fewer where the ops visited for all cuts together would be more than _MOST_WORK
_LEAST_WORK, _MOST_WORK = 20_000, 400_000
_TICKS = 1 << 20  # of a microsecond
_FINE = 20  # bits of a worth for each tick of the link
_BISECTIONS = 3
_ITEMS = 1500  # more of them are put together,
_GROUPS = 128  # in so many groups
_SLACK = 1 - 1e-9  # rounding of floats must not lift the bound above the truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """Items in one view of a cut: what their absence costs.

    granules   of memory that the absence of each gives
    cost       ticks that its absence costs
    link       ticks of copying that it takes instead, for nothing, where the windows have room; 0: it takes no room
    room       ticks of link time for it and all items with less room
    """

    granules: Ints
    cost: Ints
    link: Ints
    room: Ints


class Way(NamedTuple):
    """An op first runs `slower` than with its fastest engine, and the step is `late` then at least, in microseconds."""

    slower: int
    late: int


def lower_bound_us(step: IndexedStep, device: Device, budget_bytes: int | None = None) -> int:
    """Microseconds that no plan of `step` beats within `budget_bytes` (those for buffers, without the reserve)."""
    if budget_bytes is None:
        return sum(step.cost)
    us = fitting_us(step, budget_bytes)
    ops = _candidates(step, us, device, budget_bytes)
    if not ops:
        return sum(us)
    cutter = Cutter(step=step, us=us)
    return sum(us) + least_late_us([ways(step, us, cutter.at(op), device, budget_bytes) for op in ops])


def fitting_us(step: IndexedStep, budget_bytes: int) -> list[int]:
    """Microseconds of each op with the fastest engine whose workspace fits beside what the op reads and writes."""
    us = list(step.cost)
    for op, engines in enumerate(step.engines):
        if engines:
            us[op] = min((us for _, us in _engines(step, op, budget_bytes)), default=us[op])
    return us


def _engines(step: IndexedStep, op: int, budget_bytes: int) -> Iterator[tuple[int, int]]:
    """(workspace, microseconds) of the engines of `op` that fit, the fastest first."""
    engines = step.engines[op]
    if not engines:
        yield 0, step.cost[op]
        return
    room = budget_bytes - working_set(step, op) + engines[0].workspace
    yield from ((engine.workspace, engine.us) for engine in reversed(engines) if engine.workspace <= room)


def ways(step: IndexedStep, us: Sequence[int], cut: Cut, device: Device, budget_bytes: int) -> list[Way]:
    """The ways in which the op of a cut can first run: its engines, the fastest first; none below the floor."""
    found = []
    for workspace, op_us in _engines(step, cut.op, budget_bytes):
        slower = op_us - us[cut.op]
        compute = sum(us) + slower
        late = engine_bound_us(cut, compute, op_us, cut.bytes + workspace - budget_bytes, device) - sum(us)
        found.append(Way(slower, late))
        if late == slower:
            break  # nothing need be absent, whatever slower engines leave free
    return found


def least_late_us(cuts: Sequence[Sequence[Way]]) -> int:
    """The least microseconds by which the step is late, each cut's op running in one of its ways.

    A step that is late by x runs each op in a way that is late by x at most, and all that these ways are slower by is
    part of x. The larger x is, the more ways there are: so the least x is found by bisection.
    """
    cuts = [options for options in cuts if options]
    low, high = 0, sum(max(way.late for way in options) for options in cuts)
    while low < high:
        middle = (low + high) // 2
        slowest = [min((way.slower for way in options if way.late <= middle), default=None) for options in cuts]
        if all(us is not None for us in slowest) and sum(us for us in slowest if us is not None) <= middle:
            high = middle
        else:
            low = middle + 1
    return low


def engine_bound_us(cut: Cut, compute_us: int, op_us: int, excess: int, device: Device) -> int:
    """The bound of a cut with one engine of its op: ops take `compute_us`, it `op_us`; `excess` bytes are absent."""
    if excess <= 0:
        return compute_us
    found = [link_bound_us(cut, compute_us, excess, device)]
    leaving = leaving_absence(cut, compute_us - op_us - cut.after, device)
    found.append(compute_us + _late_us(leaving, excess, cut.whole))
    for part in (1, 2):
        returning = returning_absence(cut, compute_us - op_us - cut.before, device, part)
        found.append(compute_us + _late_us(returning, excess, cut.whole))
    return max(found)


def leaving_absence(cut: Cut, room_us: int, device: Device) -> Absence:
    """What the absence of items costs before the cut's op begins, `room_us` after the step did if nothing stalls."""
    link = np.where(cut.made >= 0, _copy_ticks(cut.moved, device.d2h_bytes_per_s, device), 0)
    again = np.where(cut.again >= 0, cut.again * _TICKS, link)
    room = (room_us - np.maximum(cut.made, 0)) * _TICKS
    return Absence(granules=cut.size // GRANULE, cost=np.minimum(link, again), link=link, room=room)


def returning_absence(cut: Cut, room_us: int, device: Device, part: int) -> Absence:
    """What it costs after the op: 1 / `part` of the copies' time, or the rest of that of the ops that run again."""
    link = np.where(cut.due >= 0, _copy_ticks(cut.moved, device.h2d_bytes_per_s, device), 0)
    again = np.where(cut.again >= 0, cut.again * _TICKS * (part - 1) // part, link)
    room = (room_us - np.maximum(cut.due, 0)) * _TICKS
    return Absence(granules=cut.size // GRANULE, cost=np.minimum(link // part, again), link=link, room=room)


def _copy_ticks(moved: Ints, bytes_per_s: int, device: Device) -> Ints:
    """Ticks of copying each item: latency, then its bytes at the rate of one direction alone, rounded down."""
    per_us = -(-bytes_per_s // 10**6)
    whole, rest = moved // per_us, moved % per_us  # apart, since bytes times ticks need not fit 64 bits
    ticks: Ints = (device.copy_latency_us + whole) * _TICKS + rest * _TICKS // per_us
    return ticks


def _late_us(absence: Absence, excess: int, whole: Bools) -> int:
    """Microseconds by which `excess` absent bytes delay the step, at the price that tells most.

    Of a tensor that is larger than what is wanted no less than all is absent: it counts for no more than that.
    """
    free = absence.cost <= 0
    wanted = -(-excess // GRANULE) - int(absence.granules[free].sum())
    if wanted <= 0 or free.all():
        return 0
    granules = np.where(whole, np.minimum(absence.granules, wanted), absence.granules)
    return -(-_best_ticks(_in_order(replace(absence, granules=granules), ~free), wanted) // _TICKS)


def _in_order(absence: Absence, chosen: Bools) -> Absence:
    """The chosen items by room upwards; of many, neighbours that are alike are put together."""
    room = np.maximum(absence.room[chosen], 0)
    order = np.argsort(room, kind="stable")
    columns = (absence.granules[chosen][order], absence.cost[chosen][order], absence.link[chosen][order], room[order])
    if len(order) > _ITEMS:
        columns = _merged(*columns)
    return Absence(granules=columns[0], cost=columns[1], link=columns[2], room=columns[3])


def _merged(granules: Ints, cost: Ints, link: Ints, room: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Items in groups of neighbours: those of a group that are alike as one, with the room of the last of the group."""
    group = np.arange(len(room)) // -(-len(room) // _GROUPS)
    last = np.flatnonzero(np.diff(group, append=-1))
    kinds, which, count = np.unique(np.stack((granules, cost, link)), axis=1, return_inverse=True, return_counts=True)
    both, repeats = np.unique(group * len(count) + which.reshape(-1), return_counts=True)
    granules, cost, link = kinds[:, both % len(count)] * repeats
    return granules, cost, link, room[last][both // len(count)]


def _best_ticks(items: Absence, wanted: int) -> int:
    """The most that `absent_ticks` says for any price: concave in the price, it breaks where items change sides."""
    prices = np.unique(-(-items.cost // items.granules)).tolist()
    best, low, high = 0, 0, len(prices) - 1
    while low <= high:
        middle = (low + high) // 2
        ticks, slope = absent_ticks(items, wanted, prices[middle])
        best = max(best, ticks)
        if slope > 0:
            low = middle + 1
        else:
            high = middle - 1
    below, above = prices[low - 1] if low else 0, prices[min(low, len(prices) - 1)]
    for _ in range(_BISECTIONS):
        middle = (below + above) // 2
        ticks, slope = absent_ticks(items, wanted, middle)
        best = max(best, ticks)
        below, above = (middle, above) if slope > 0 else (below, middle)
    return best


def absent_ticks(items: Absence, wanted: int, price: int) -> tuple[int, float]:
    """Ticks that the absence of `wanted` granules costs at least, and how that changes with the price.

    Proof. Let a plan have part d of an item absent at its cost and part h within the windows, d + h <= 1. Granules of
    all absent parts are at least `wanted`, so for each price p >= 0 the costs are at least

        p wanted - sum of (d + h) p granules + sum of d cost
            >= p wanted - sum of max(0, p granules - cost) - sum of h min(p granules, cost)

    and the last sum is at most what the greedy choice gives, whose worths are rounded up. Items come by room upwards.
    """
    worth = np.minimum(items.granules * price, items.cost)
    surplus = int((items.granules * price - worth).sum())
    taken, parts = _greedy(worth, items.link, items.room)
    cheap = items.cost <= items.granules * price
    slope = wanted - float(items.granules[cheap].sum()) - float((items.granules * parts)[~cheap].sum())
    return price * wanted - surplus - taken, slope


def _greedy(worth: Ints, link: Ints, room: Ints) -> tuple[int, Floats]:
    """The most worth that the windows take, rounded up, and the part of each item that is taken.

    Each item takes `link` of the windows; of the items up to any place in the order at most `room` there is taken.
    """
    rates = (((worth << _FINE) // link) + 1).tolist()
    links, rooms = link.tolist(), room.tolist()
    heap: list[tuple[int, int]] = []
    left = links.copy()
    total = 0
    for i, (rate, most) in enumerate(zip(rates, rooms, strict=True)):
        heappush(heap, (rate, i))
        total += links[i]
        while total > most:
            worst = heap[0][1]
            out = min(left[worst], total - most)
            left[worst] -= out
            total -= out
            if not left[worst]:
                heappop(heap)
    taken = sum(rate * rest for rate, rest in zip(rates, left, strict=True))
    return -(-taken >> _FINE), np.asarray(left, np.float64) / link.astype(np.float64)


def link_bound_us(cut: Cut, compute_us: int, excess: int, device: Device) -> int:
    """The bound from the time of the link: what goes both ways, and what is made again instead, the cheapest first."""
    both, per_byte = cut.both, copies_us(1, 1, device)
    # In bytes that copies move: what buffers have beyond them is absent for nothing, as is what goes one way only.
    left: float = excess - int(cut.size.sum()) + int(cut.moved[both].sum())
    time: float = compute_us
    for moved, us in _by_rate(cut):
        if left * per_byte <= time:
            break
        # Made again, d bytes more raise compute time by d us and shorten copies by d per_byte, until both are equal.
        part = min(float(moved), left, (left * per_byte - time) / (us / moved + per_byte))
        time += part * us / moved
        left -= part
        if part < moved:
            break
    return max(compute_us, int(max(time, left * per_byte) * _SLACK))


def _by_rate(cut: Cut) -> list[tuple[int, int]]:
    """(bytes, microseconds) of the items that can be made again, the cheapest microsecond a byte first."""
    chosen = cut.both & (cut.again != NEVER) & (cut.moved > 0)
    items = zip(cut.moved[chosen].tolist(), cut.again[chosen].tolist(), strict=True)
    return sorted(items, key=lambda item: item[1] / item[0])


def copies_us(h2d_bytes: float, d2h_bytes: float, device: Device) -> float:
    """Least microseconds in which the link moves these bytes, both directions as much at a time as pays."""
    h2d, d2h = device.h2d_bytes_per_s / 1e6, device.d2h_bytes_per_s / 1e6
    h2d_both, d2h_both = device.h2d_both_bytes_per_s / 1e6, device.d2h_both_bytes_per_s / 1e6
    both = min(h2d_bytes / h2d_both, d2h_bytes / d2h_both) if h2d_both / h2d + d2h_both / d2h > 1 else 0.0
    return both + (h2d_bytes - both * h2d_both) / h2d + (d2h_bytes - both * d2h_both) / d2h


def _candidates(step: IndexedStep, us: Sequence[int], device: Device, budget_bytes: int) -> list[int]:
    """Ops to cut at: in parts of the step, where most is too much beyond what the link can have moved by then."""
    count = len(step.ops)
    if count == 0 or sum(step.size) + max((e[-1].workspace for e in step.engines if e), default=0) <= budget_bytes:
        return []
    times = np.cumsum(np.asarray(us, np.int64)) - us
    workspace = np.asarray([engines[-1].workspace if engines else 0 for engines in step.engines], np.int64)
    in_place = np.asarray([sum(step.size[w] for w, _ in match_in_place(pairs)) for pairs in step.overwrites], np.int64)
    over = _live_bytes(step) - in_place + workspace - budget_bytes
    score = over - times * (device.d2h_bytes_per_s / 1e6)
    cuts = max(2, min(max(_CUTS, _LEAST_WORK // count), _MOST_WORK // count))
    marks = np.unique(np.linspace(0, count, 2 * cuts + 1).astype(int))
    tops = [int(a + np.argmax(score[a:b])) for a, b in pairwise(marks.tolist())]
    tops = [op for op in tops if over[op] > 0]
    return sorted(tops, key=lambda op: (-score[op], op))[:cuts]


def _live_bytes(step: IndexedStep) -> Ints:
    """Bytes of tensors at each op in the order of the step: from their producer, or the start, to their last reader."""
    last = [max(producer, 0) for producer in step.producer]
    for op, reads in enumerate(step.reads):
        for tensor in reads:
            last[tensor] = op
    for tensor in (*step.outputs, *step.becomes.values()):
        last[tensor] = len(step.ops) - 1
    change = np.zeros(len(step.ops) + 1, np.int64)
    np.add.at(change, np.maximum(step.producer, 0), step.size)
    np.add.at(change, np.asarray(last) + 1, -np.asarray(step.size))
    return np.cumsum(change[:-1])
