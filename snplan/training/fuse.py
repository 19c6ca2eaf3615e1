"""Fusion: chains of elementwise ops, and what a sum reads, as one op each (kind `fused`), the unit of planning.

1. Batch normalisations are taken apart (`split_norms`), backward ops take in what they can make again (`rederive`).
2. In the order of the step each op takes in the ops before it that make what it reads, as long as
   - both work on one shape, in one arithmetic, in one phase, and what is between them does not read the results;
   - a forward op gives one tensor: nothing is kept, or written by a recompute, that was not before;
   - what is not adjacent keeps no more bytes alive in between than it saves;
   - the working set is at most the limit: the floor of the step before, so that fusion never raises it.

No bit changes on a backend that runs parts one after another. Ops move later only, and no more than to their reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from snplan.ir import Attr, Graph, Op, Phase, Role, Step, Tensor
from snplan.ops.fused import REDUCING, ROWS
from snplan.training.fusible import Fusible, lowest_floor, slots
from snplan.training.places import Places
from snplan.training.rederive import Rederived
from snplan.training.split_norms import split_norms

_MOST_PARTS = 24
_MOST_SOURCES = 16


def fuse_step(step: Step) -> Step:
    """`step` with elementwise ops fused; losses, gradients and updated values are the same to the bit."""
    limit = lowest_floor(step.graph)
    kept = {*step.gradients.values(), *step.becomes.values()}
    return replace(step, graph=_Fuser(split_norms(step.graph), kept, limit).run())


@dataclass(slots=True, kw_only=True)
class _Group:
    """Ops that run as one at the place of the last; `exports` are the results that others read."""

    ops: dict[str, Op]
    exports: list[str]
    indices: list[int]
    stream: int | None

    @property
    def has_rows(self) -> bool:
        """Whether one of the ops needs a row before it gives any of it."""
        return any(op.kind in ROWS for op in self.ops.values())

    @property
    def last(self) -> Op:
        """The op that gives the group its name."""
        return next(reversed(self.ops.values()))


class _Fuser:
    """Fuses one graph. `groups` holds, by the index of their last op, what runs as one; `owner` leads each op there."""

    def __init__(self, graph: Graph, kept: Iterable[str], limit: int) -> None:
        self.graph = graph
        self.limit = limit
        self.kept = {*graph.outputs, *kept}
        self.fusible = Fusible(graph)
        found = Rederived(graph, self.fusible, limit)
        self.readers, self.dropped = found.readers, found.dropped
        self.last_read = {name: max(readers, default=-1) for name, readers in self.readers.items()}
        self.places: dict[str, Places] = {}
        self.owner = [*range(len(graph.ops))]
        self.groups: dict[int, _Group] = {}
        for index, op in enumerate(graph.ops):
            if self.fusible.kinds[index] is not None and index not in self.dropped:
                ops = {member.name: member for member in (*found.private.get(index, ()), op)}
                self.groups[index] = _Group(ops=ops, exports=[*op.outputs], indices=[index], stream=op.rng)

    def run(self) -> Graph:
        """The graph with fused ops in place of groups."""
        for index in [*self.groups]:
            while index in self.groups and self._grow(index):
                index = self._root(index)
        ops = tuple(self._emitted())
        written = {*self.graph.sources, *(name for op in ops for name in op.outputs)}
        tensors = {name: tensor for name, tensor in self.graph.tensors.items() if name in written}
        return replace(self.graph, ops=ops, tensors=tensors)

    def _grow(self, index: int) -> bool:
        """Whether the group at `index` took in one before it that makes what it reads, the nearest first."""
        group = self.groups[index]
        writers = {root for writer in self._writers(group) if (root := self._root(writer)) in self.groups}
        return any(self._merge(before, index) for before in sorted(writers, reverse=True))

    def _writers(self, group: _Group) -> Iterator[int]:
        """The ops that write what `group` reads."""
        for name in self.fusible.sources(group.ops.values()):
            if name in self.graph.producer:
                yield self.graph.producer[name]

    def _root(self, index: int) -> int:
        """The index of the group that holds op `index`."""
        while self.owner[index] != index:
            self.owner[index] = self.owner[self.owner[index]]
            index = self.owner[index]
        return index

    def _merge(self, before: int, index: int) -> bool:
        """Join the groups at `before` and `index`, the second reads the first, where that is allowed and pays."""
        first, second = self.groups[before], self.groups[index]
        if not self._match(before, index):
            return False
        exports = [name for name in first.exports if self._is_needed(name, before, index)]
        if exports and (second.last.phase is Phase.FORWARD or second.last.kind in REDUCING):
            return False
        ops = {**first.ops, **second.ops}
        sources = self.fusible.sources(ops.values())
        if len(ops) > _MOST_PARTS or len(sources) > _MOST_SOURCES:
            return False
        if self.fusible.working_set([*ops.values()], [*exports, *second.exports]) > self.limit:
            return False
        place = self._place(before, index, exports)
        if place is None:
            return False
        stream = first.stream if second.stream is None else second.stream
        indices = [*first.indices, *second.indices]
        del self.groups[before], self.groups[index]
        self.groups[place] = _Group(ops=ops, exports=[*exports, *second.exports], indices=indices, stream=stream)
        self.owner[before] = self.owner[index] = place
        for name in dict.fromkeys(name for op in ops.values() for name in op.inputs):
            if name in self.places:
                self.places[name].add(place)
        for name in sources:
            if not _persists(self.graph.tensors[name]):
                self.last_read[name] = self._places(name).last()
        return True

    def _places(self, name: str) -> Places:
        """Where the readers of a tensor run."""
        if name not in self.places:
            self.places[name] = Places(map(self._root, self.readers[name]), self._root)
        return self.places[name]

    def _place(self, before: int, index: int, exports: list[str]) -> int | None:
        """Where the joint group may run: at the second's place, at the first's, or nowhere (None).

        What the first writes for others must be there for them. Between the two places no more bytes may be alive than
        before: inputs of the first that would have died, or results of the second, against what the first wrote.
        """
        first, second, sizes = self.groups[before], self.groups[index], self.fusible.sizes
        saved = sum(sizes[name] for name in first.exports if name not in exports)
        if all(self._places(name).first(besides=(before, index)) > index for name in exports):
            between = index - before - 1 - sum(before < i < index for i in second.indices)
            if between == 0 or self._kept_longer(first, index) <= saved:
                return index
        if max(map(self._root, self._writers(second))) > before or sum(sizes[name] for name in second.exports) > saved:
            return None
        return before

    def _kept_longer(self, group: _Group, index: int) -> int:
        """Bytes of what `group` reads that would be dead by place `index`."""
        return sum(
            self.fusible.sizes[name]
            for name in self.fusible.sources(group.ops.values())
            if self.last_read[name] < index and not _persists(self.graph.tensors[name])
        )

    def _match(self, before: int, index: int) -> bool:
        """Whether both have one phase, shape, arithmetic and random stream, and the second reads the first plainly."""
        first, second, fusible = self.groups[before], self.groups[index], self.fusible
        if first.last.phase is not second.last.phase or first.last.kind in REDUCING:
            return False
        # A row of a softmax, or what a sum reads, is made by elements alone.
        if first.has_rows and (second.has_rows or second.last.kind in REDUCING):
            return False
        if fusible.kinds[before] != fusible.kinds[index] or fusible.domains[before] != fusible.domains[index]:
            return False
        if first.stream is not None and (second.stream not in (None, first.stream) or second.last.kind in REDUCING):
            return False
        return all(fusible.reads_plainly(op, name) for op in second.ops.values() for name in first.exports)

    def _is_needed(self, name: str, before: int, index: int) -> bool:
        """Whether others than the two groups need the tensor."""
        return name in self.kept or any(self._root(r) not in (before, index) for r in self.readers[name])

    def _emitted(self) -> Iterable[Op]:
        """The ops of the new graph, in order."""
        for index, op in enumerate(self.graph.ops):
            if index in self.groups:
                group = self.groups[index]
                yield fused_op([*group.ops.values()], group.exports, group.stream) if len(group.ops) > 1 else op
            elif self.owner[index] == index and index not in self.dropped:
                yield op


def _persists(tensor: Tensor) -> bool:
    return tensor.role in (Role.PARAMETER, Role.STATE, Role.OPTIMIZER, Role.CONSTANT)


def fused_op(members: list[Op], exports: Iterable[str], stream: int | None = None) -> Op:
    """One op that does what `members` do in order, called as the last of them, and writes `exports`."""
    inputs, last = _input_slots(members), members[-1]
    numbers = {slot: number for number, slot in enumerate(inputs)}
    values: dict[str, int] = {}
    parts: list[Attr] = []
    for op in members:
        operands: list[Attr] = [values[n] if n in values else numbers[n, view] for n, view in slots(op)]
        parts.append([op.kind, operands, {key: value for key, value in op.attrs.items() if key != "in_shapes"}])
        values.update({name: len(numbers) + len(values) + k for k, name in enumerate(op.outputs)})
    outputs = sorted(exports, key=values.__getitem__)
    attrs: dict[str, Attr] = {"parts": parts, "results": [values[name] for name in outputs]}
    if any(view is not None for _, view in inputs):
        attrs["in_shapes"] = [None if view is None else [*view] for _, view in inputs]
    return Op(
        name=last.name,
        kind="fused",
        inputs=tuple(name for name, _ in inputs),
        outputs=tuple(outputs),
        phase=last.phase,
        attrs=attrs,
        nodes=tuple(dict.fromkeys(node for op in members for node in op.nodes)),
        rng=stream,
    )


def _input_slots(members: Iterable[Op]) -> list[tuple[str, tuple[int, ...] | None]]:
    """What `members` read and do not make, each tensor once for every shape under which it is read."""
    made: set[str] = set()
    found: dict[tuple[str, tuple[int, ...] | None], None] = {}
    for op in members:
        found.update((slot, None) for slot in slots(op) if slot[0] not in made)
        made.update(op.outputs)
    return [*found]
