"""Which saved tensors to drop and recompute: an order of drops from cheapest to dearest for each byte freed.

The marginal cost of a drop is the time of the ops that have to run again because of it and do not run again anyway
(recomputed values are shared). `segment_bytes` bounds how many bytes one connected run of recomputed ops may write, so
that checkpoints remain: without it the last drops would recompute the whole forward pass at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Sequence

from snplan.analysis.index import IndexedStep, forward_readers
from snplan.analysis.schedule import needed_at_end, saved_tensors
from snplan.ir import Phase


class Segments:
    """Union-find over recomputed ops with the bytes that each connected segment writes."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))
        self.bytes = [0] * count

    def find(self, op: int) -> int:
        """Representative of the segment of `op`."""
        while self.parent[op] != op:
            self.parent[op] = self.parent[self.parent[op]]
            op = self.parent[op]
        return op

    def union(self, a: int, b: int) -> None:
        """Join two segments."""
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[b] = a
            self.bytes[a] += self.bytes[b]


class Dropper:
    """What a growing set of drops costs: `again` are the ops that run again, `kept` the saved tensors still kept."""

    def __init__(self, step: IndexedStep, segment_bytes: int | None = None, dropped: Iterable[int] = ()) -> None:
        self.step = step
        self.limit = segment_bytes
        self.again: set[int] = set()
        self.segments = Segments(len(step.ops))
        self.saved = frozenset(saved_tensors(step))
        self.kept = set(self.saved)
        self.pinned = needed_at_end(step)
        self.readers = forward_readers(step)
        for tensor in sorted(dropped):
            self.drop(tensor, self.closure(tensor))

    def _missing_inputs(self, op: int, without: int) -> list[int]:
        """Producers of what `op` reads and the backward pass will not have, when `without` is dropped as well."""
        step, found = self.step, []
        for tensor in step.reads[op]:
            producer = step.producer[tensor]
            if producer < 0 or step.ops[producer].phase is not Phase.FORWARD or tensor in self.pinned:
                continue
            if tensor in self.kept and tensor != without:
                continue
            found.append(producer)
        return found

    def closure(self, tensor: int) -> list[int]:
        """Ops that run again because of dropping `tensor` and do not run again already."""
        found: dict[int, None] = {}
        stack = [self.step.producer[tensor]]
        while stack:
            op = stack.pop()
            if op in found or op in self.again:
                continue
            found[op] = None
            stack.extend(self._missing_inputs(op, tensor))
        return list(found)

    def ratio(self, tensor: int) -> float:
        """Microseconds for each byte freed."""
        return sum(self.step.cost[op] for op in self.closure(tensor)) / self.step.size[tensor]

    def too_long(self, tensor: int, ops: list[int]) -> bool:
        """Whether dropping `tensor` would make a segment that writes more than the limit."""
        if self.limit is None:
            return False
        written = sum(self.step.size[t] for op in ops for t in self.step.writes[op])
        roots = {self.segments.find(op) for op in self._neighbours(tensor, ops)}
        return written + sum(self.segments.bytes[root] for root in roots) > self.limit

    def _neighbours(self, tensor: int, ops: list[int]) -> list[int]:
        """Recomputed ops that feed `ops` or read `tensor`."""
        feeding = [p for op in ops for p in self._missing_inputs(op, tensor) if p in self.again]
        return feeding + [op for op in self.readers[tensor] if op in self.again]

    def drop(self, tensor: int, ops: list[int]) -> None:
        """Drop `tensor`."""
        neighbours = self._neighbours(tensor, ops)
        for op in ops:
            self.segments.bytes[self.segments.find(op)] += sum(self.step.size[t] for t in self.step.writes[op])
        for op in (*ops[1:], *neighbours):
            self.segments.union(self.step.producer[tensor], op)
        self.again.update(ops)
        self.kept.discard(tensor)


def drops_that_free(step: IndexedStep, drops: Sequence[int], excess: int) -> int:
    """How many of `drops`, in their order, free `excess` bytes (all of them where they free less)."""
    for count, tensor in enumerate(drops):
        if excess <= 0:
            return count
        excess -= step.size[tensor]
    return len(drops)


def drop_order(
    step: IndexedStep, segment_bytes: int | None = None, protected: Container[int] = frozenset()
) -> list[int]:
    """Tensors to drop, in order: each time the one that adds least time for a byte (lazy greedy: costs only grow).

    `protected` tensors are never dropped.
    """
    dropper = Dropper(step, segment_bytes)
    heap = [(dropper.ratio(tensor), tensor) for tensor in sorted(dropper.kept) if tensor not in protected]
    heapq.heapify(heap)
    drops: list[int] = []
    while heap:
        ratio, tensor = heapq.heappop(heap)
        now = dropper.ratio(tensor)
        if heap and now > max(ratio, heap[0][0]):
            heapq.heappush(heap, (now, tensor))
            continue
        ops = dropper.closure(tensor)
        if dropper.too_long(tensor, ops):
            continue
        dropper.drop(tensor, ops)
        drops.append(tensor)
    return drops


def worth_moving(step: IndexedStep, bytes_per_us: float) -> frozenset[int]:
    """Saved tensors that the link serves best: the dearest to recompute that it moves before the backward pass.

    Choosing tensors of known birth for one stream that must be done by a common deadline is scheduling with deadlines
    read backwards in time: a tensor is taken, and where those born since do not fit the cheapest goes (Moore 1968).
    """
    times = [0]
    for us in step.cost[: step.backward]:
        times.append(times[-1] + us)
    taken: list[tuple[float, int]] = []
    total = 0
    for tensor in sorted(saved_tensors(step), key=lambda t: (-step.producer[t], t)):
        op, size = step.producer[tensor], step.size[tensor]
        heapq.heappush(taken, (step.cost[op] / size, tensor))
        total += size
        while total > bytes_per_us * (times[-1] - times[op + 1]):
            total -= step.size[heapq.heappop(taken)[1]]
    return frozenset(tensor for _, tensor in taken)


def bottlenecks(step: IndexedStep) -> list[int]:
    """Saved tensors through which all of the forward pass goes: alone they let everything after them be recomputed."""
    last = [-1] * len(step.names)
    for op in range(step.backward):
        for tensor in step.reads[op]:
            last[tensor] = op
    crossing: set[int] = set()
    ends: dict[int, list[int]] = {}
    found: list[int] = []
    saved = frozenset(saved_tensors(step))
    for op in range(step.backward):
        for tensor in step.writes[op]:
            if last[tensor] > op and step.ops[op].phase is Phase.FORWARD:
                crossing.add(tensor)
                ends.setdefault(last[tensor], []).append(tensor)
        crossing.difference_update(ends.pop(op, ()))
        if len(crossing) == 1:
            found.extend(tensor for tensor in crossing if tensor in saved and tensor not in found[-1:])
    return found
