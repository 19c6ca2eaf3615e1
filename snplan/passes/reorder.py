"""Refinement of the order of a step: local moves that lower the peak of live bytes when everything is kept.

1. The route and the backward pass that mirrors it are the start. Live bytes are counted as `Residency` counts them:
   buffers rounded to the granule, in-place rules, the workspace of the fastest engine.
2. At the position of the peak, op x, a *group* moves across x: either ops after x run before it, as they free more than
   they leave (a pull), or ops before x wait until after it, as they leave more than they free (a push). A group begins
   with what frees or makes one tensor that is alive across x and all that must go with it, and grows along its chain.
   It goes right next to x or to the valley beyond, where fewest bytes are alive: so whole branches of a fork change
   places, as the rule of Liu (1987) for trees would have it.
3. A move is made when no position of its window is as high as the peak; then the next peak is looked for. It ends
   where nothing helps, or when its work, counted in ops looked at, is spent.

Forward ops stay before the backward pass, updates after all readers of what they overwrite. The ops are the same: no
random stream and no order of a sum changes, so no bit does. Nothing moves where the peak does not fall.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from snplan.analysis.index import IndexedStep, index_step, match_in_place

REACH = 256
"""Positions on each side of the peak from which ops are moved."""
MOST_OPS = 64
"""Ops that move together at most."""
TRIES = 12
"""Moves tried at a peak, the most promising first."""
LEAST_PART = 4096
"""What moves frees at least one in so many bytes of the peak, and all moves together lower it by as much."""
WORK, WORK_PER_OP = 2_000_000, 40
"""Ops and tensors that may be looked at: a constant, and for each op of the step."""


class Move(NamedTuple):
    """Ops in a new order from position `start` on."""

    start: int
    ops: list[int]


def reorder(step: IndexedStep, work: int | None = None) -> IndexedStep:
    """`step` in an order with a lower peak of live bytes, or `step` itself where none was found.

    `work` bounds the ops that are looked at (None: near linear in the ops of the step).
    """
    refinement = Refinement(step, WORK + WORK_PER_OP * len(step.ops) if work is None else work)
    return in_order(step, refinement.order) if refinement.run() else step


def alive_at_turn(step: IndexedStep) -> int:
    """Bytes alive between the forward and the backward pass, in any order: no keep-all plan needs less."""
    kept = {*step.becomes.values(), *step.outputs}
    later = {tensor for reads in step.reads[step.backward :] for tensor in reads}
    return sum(
        size
        for tensor, (size, producer) in enumerate(zip(step.size, step.producer, strict=True))
        if producer < step.backward and (tensor in later or tensor in kept)
    )


def in_order(step: IndexedStep, order: Sequence[int]) -> IndexedStep:
    """`step` with its ops as `order` lists them."""
    graph = step.step.graph
    ordered = replace(step.step, graph=replace(graph, ops=tuple(graph.ops[op] for op in order)))
    engines = {position: step.engines[op] for position, op in enumerate(order) if step.engines[op]}
    return index_step(ordered, [step.cost[op] for op in order], engines)


class Refinement:
    """An order of the ops of a step, with the live bytes of each position kept up to date."""

    def __init__(self, step: IndexedStep, work: int) -> None:
        self.step = step
        self.size = step.size
        self.work = work
        self.order: list[int] = [*range(len(step.ops))]
        self.position: list[int] = [*self.order]
        self.readers = readers_of(step)
        self.before, self.after = edges_of(step, self.readers)
        kept = {*step.becomes.values(), *step.outputs}
        end = len(step.ops)
        self.last = [end if t in kept else max(readers, default=-1) for t, readers in enumerate(self.readers)]
        self.written = [sum(self.size[t] for t in writes) for writes in step.writes]
        self.alive = [sum(self.size[t] for t in step.sources if self.last[t] >= 0)]
        """Bytes alive before each position, and at the end."""
        live, alive = self.replayed(Move(0, self.order))
        self.alive += alive
        self.live = np.asarray(live, np.int64)
        self.least = max(live, default=0) // LEAST_PART + 1

    def run(self) -> bool:
        """Whether moves lowered the peak."""
        if not self.order:
            return False
        start = int(self.live.max())
        while self.work > 0 and (move := self._better(int(self.live.argmax()))) is not None:
            self._make(move)
        return int(self.live.max()) <= start - self.least

    def _better(self, peak: int) -> Move | None:
        """The move that lowers the peak, and of those the one that adds least to the live bytes of its window."""
        found = sorted(self._groups(peak), key=lambda entry: -entry[0])
        highest = int(self.live[peak])
        best: tuple[int, Move] | None = None
        for move in (move for _, group in found[:TRIES] for move in self._moves(group, peak)):
            live = self.replayed(move)[0]
            risen = sum(live) - int(self.live[move.start : move.start + len(live)].sum())
            if max(live) < highest and (best is None or risen < best[0]):
                best = (risen, move)
        return None if best is None else best[1]

    def _moves(self, group: set[int], peak: int) -> Iterator[Move]:
        """The moves of `group` to the other side of the peak: next to it, and to the valley there."""
        moved = sorted(group, key=self.position.__getitem__)
        first, last = self.position[moved[0]], self.position[moved[-1]]
        for border in dict.fromkeys((peak + (first < peak), self._valley(moved, peak))):
            start, stop = min(first, border), max(last + 1, border)
            others = [op for op in self.order[start:stop] if op not in group]
            yield Move(start, [*moved, *others] if first > peak else [*others, *moved])

    def _valley(self, group: list[int], peak: int) -> int:
        """The position beyond the peak before which fewest bytes are alive, of those to which `group` may move."""
        first, stop = self._part(peak)
        self.work -= REACH
        if self.position[group[0]] > peak:
            sources = (self.position[op] for member in group for op in self.before[member])
            low = max((place + 1 for place in sources if place < peak), default=first)
            return min(range(peak, max(low, first, peak - REACH) - 1, -1), key=self.alive.__getitem__)
        sinks = (self.position[op] for member in group for op in self.after[member])
        high = min((place for place in sinks if place > peak), default=stop)
        return min(range(peak + 1, min(high, stop, peak + REACH) + 1), key=self.alive.__getitem__)

    def _part(self, peak: int) -> tuple[int, int]:
        """The positions of the forward pass or of what follows it: the first, and that after the last."""
        backward = self.step.backward
        return (0, backward) if peak < backward else (backward, len(self.order))

    def _make(self, move: Move) -> None:
        live, alive = self.replayed(move)
        start, stop = move.start, move.start + len(move.ops)
        self.order[start:stop] = move.ops
        self.live[start:stop] = live
        self.alive[start + 1 : stop + 1] = alive
        for position, op in enumerate(move.ops, start):
            self.position[op] = position
            for tensor in self.step.reads[op]:
                if self.last[tensor] < stop:
                    self.last[tensor] = position

    def replayed(self, move: Move) -> tuple[list[int], list[int]]:
        """Live bytes at each position of `move`, and bytes alive after it."""
        step, stop = self.step, move.start + len(move.ops)
        self.work -= len(move.ops)
        uses: dict[int, int] = {}
        for op in move.ops:
            for tensor in step.reads[op]:
                if self.last[tensor] < stop:
                    uses[tensor] = uses.get(tensor, 0) + 1
        live, after = [], []
        alive = self.alive[move.start]
        for op in move.ops:
            dying = []
            for tensor in step.reads[op]:
                if tensor in uses:
                    uses[tensor] -= 1
                    if not uses[tensor]:
                        dying.append(tensor)
            live.append(alive + self.written[op] + self._workspace(op) - self._joined(op, dying))
            alive += self.written[op] - sum(self.size[tensor] for tensor in dying)
            alive -= sum(self.size[tensor] for tensor in step.writes[op] if self.last[tensor] < 0)
            after.append(alive)
        return live, after

    def _workspace(self, op: int) -> int:
        engines = self.step.engines[op]
        return engines[-1].workspace if engines else 0

    def _joined(self, op: int, dying: list[int]) -> int:
        """Bytes that `op` writes in place."""
        pairs = [pair for pair in self.step.overwrites[op] if pair[1] in dying]
        return sum(self.size[written] for written, _ in match_in_place(pairs))

    def _groups(self, peak: int) -> Iterator[tuple[int, set[int]]]:
        """Groups whose move frees bytes at the peak, and those bytes."""
        first, stop = self._part(peak)
        for op in self.order[peak + 1 : min(peak + 1 + REACH, stop)]:
            yield from self._pulls(op, peak)
        for op in self.order[max(first, peak - REACH) : peak]:
            yield from self._pushes(op, peak)

    def _pulls(self, op: int, peak: int) -> Iterator[tuple[int, set[int]]]:
        """Groups with `op` that run before the peak: for each tensor across the peak that `op` is the last to read."""
        self.work -= 1
        for tensor in self.step.reads[op]:
            producer = self.step.producer[tensor]
            if self.size[tensor] < self.least or self.last[tensor] != self.position[op]:
                continue
            if producer >= 0 and self.position[producer] >= peak:
                continue
            self.work -= len(self.readers[tensor])
            seeds = [reader for reader in self.readers[tensor] if self.position[reader] >= peak]
            if self.order[peak] not in seeds:
                yield from self._grown(seeds, peak, pull=True)

    def _pushes(self, op: int, peak: int) -> Iterator[tuple[int, set[int]]]:
        """Groups with `op` that wait until after the peak, where it writes a tensor that is alive across the peak."""
        self.work -= 1
        if any(self.last[t] > peak and self.size[t] >= self.least for t in self.step.writes[op]):
            yield from self._grown([op], peak, pull=False)

    def _grown(self, seeds: list[int], peak: int, *, pull: bool) -> Iterator[tuple[int, set[int]]]:
        """The group of `seeds`, and what it is after it has grown along its chain, where they free bytes."""
        group = self._closed(seeds, peak, self.before if pull else self.after)
        if group is None:
            return
        freed = self._freed(group, peak, pull=pull)
        if freed >= self.least:
            yield freed, group
        best, found = freed, group
        current = set(group)
        for op in self._next(current, peak, pull=pull):
            current.add(op)
            freed = self._freed(current, peak, pull=pull)
            if freed > best and freed >= self.least:
                best, found = freed, set(current)
        if found is not group:
            yield best, found

    def _closed(self, seeds: list[int], peak: int, along: list[list[int]]) -> set[int] | None:
        """`seeds` and all up to the peak that must move with them; None where that is the peak's op, or too much."""
        group, stack = set(seeds), [*seeds]
        pull = self.position[seeds[0]] > peak
        while stack:
            self.work -= 1
            for op in along[stack.pop()]:
                if op in group or self._distance(op, peak, pull=pull) < 0:
                    continue
                if self.position[op] == peak or len(group) >= MOST_OPS:
                    return None
                group.add(op)
                stack.append(op)
        return group

    def _next(self, group: set[int], peak: int, *, pull: bool) -> Iterator[int]:
        """Ops by which `group` (it takes them in meanwhile) can grow along its chain with nothing else to move."""
        near, needs = (self.after, self.before) if pull else (self.before, self.after)
        first, stop = self._part(peak)
        stack = sorted(group, key=self.position.__getitem__, reverse=pull)
        while stack and len(group) < MOST_OPS:
            self.work -= 1
            for op in near[stack.pop()]:
                is_near = 0 < self._distance(op, peak, pull=pull) <= REACH and first <= self.position[op] < stop
                if op in group or not is_near:
                    continue
                if all(other in group or self._distance(other, peak, pull=pull) < 0 for other in needs[op]):
                    yield op
                    stack.append(op)

    def _distance(self, op: int, peak: int, *, pull: bool) -> int:
        """Positions from the peak to `op`: after it (`pull`) or before it; negative on the other side."""
        return self.position[op] - peak if pull else peak - self.position[op]

    def _freed(self, group: set[int], peak: int, *, pull: bool) -> int:
        """Bytes that the peak is rid of when `group` moves across it."""
        made = dict.fromkeys(tensor for op in group for tensor in self.step.writes[op])
        read = dict.fromkeys(tensor for op in group for tensor in self.step.reads[op] if tensor not in made)
        self.work -= len(made) + len(read)
        left = sum(self.size[t] for t in made if self._is_needed(t, group, 0))
        gone = sum(self.size[t] for t in read if not self._is_needed(t, group, peak))
        return gone - left if pull else left - gone

    def _is_needed(self, tensor: int, group: set[int], start: int) -> bool:
        """Whether an op from position `start` on that is not in `group` reads the tensor, or it is kept."""
        last = self.last[tensor]
        if last == len(self.order) or (last >= start and self.order[last] not in group):
            return True
        readers = self.readers[tensor]
        self.work -= len(readers)
        return any(reader not in group and self.position[reader] >= start for reader in readers)


def readers_of(step: IndexedStep) -> list[list[int]]:
    """The ops that read each tensor."""
    readers: list[list[int]] = [[] for _ in step.names]
    for op, reads in enumerate(step.reads):
        for tensor in reads:
            readers[tensor].append(op)
    return readers


def edges_of(step: IndexedStep, readers: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """The ops that each op comes after, and those that come after it: data, and updates after other readers."""
    found: list[dict[int, None]] = [{} for _ in step.ops]
    for op, reads in enumerate(step.reads):
        found[op] = dict.fromkeys(step.producer[tensor] for tensor in reads if step.producer[tensor] >= 0)
    for tensor, becomes in step.becomes.items():
        update = step.producer[becomes]
        found[update].update((op, None) for op in readers[tensor] if op < update)
    before = [[*others] for others in found]
    after: list[list[int]] = [[] for _ in step.ops]
    for op, others in enumerate(before):
        for other in others:
            after[other].append(op)
    return before, after
