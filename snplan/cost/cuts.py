"""Cuts of a step: all that must be somewhere while one op runs for the first time, whatever the order of the ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from snplan.analysis.floor import working_set
from snplan.analysis.index import IndexedStep, forward_readers
from snplan.analysis.reach import ancestor_us, descendant_us
from snplan.ir import Phase

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Items: TypeAlias = tuple[Ints, Ints, Ints, Ints, Ints, Bools, Bools]
NEVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What must be somewhere while op `op` runs for the first time: on the device, in host memory, or made again.

    here            bytes of what the op itself reads and writes, what can be in place counted once; no workspace
    before, after   microseconds of the ops that it depends on, and of those that depend on it
    size            bytes of the buffer of each item: of a tensor, or of the outputs of one op
    moved           bytes that a copy of it moves
    again           microseconds of the ops that make it again; NEVER where nothing can
    made            microseconds of ops that must run before it, or what it can be made of, is there to be copied out;
                    NEVER where it need not be, because it may have been in host memory from the start
    due             microseconds of ops that can only run after it is back; NEVER where nothing has to read it again
    both            whether its absence takes a copy in each direction at some time in the step
    whole           whether it is one tensor, which is absent or not; of several outputs some may be
    """

    op: int
    here: int
    before: int
    after: int
    size: Ints
    moved: Ints
    again: Ints
    made: Ints
    due: Ints
    both: Bools
    whole: Bools

    @property
    def bytes(self) -> int:
        """All bytes of the cut."""
        return self.here + int(self.size.sum())


@dataclass(frozen=True, kw_only=True)
class Cutter:
    """Makes cuts of `step` whose ops take `us` microseconds at least.

    An item whose op reads what nothing else reads in the forward pass, and what takes no less room and time to copy, is
    not there either: to keep that instead would be no better than to keep the item. So making the item again takes the
    op of what is read too, and so on; what is copied out is at best the first of them.
    """

    step: IndexedStep
    us: Sequence[int]
    preds: list[list[int]] = field(init=False)
    made: Ints = field(init=False)
    due: Ints = field(init=False)
    edges: tuple[Ints, Ints] = field(init=False)
    producer: Ints = field(init=False)
    size: Ints = field(init=False)
    moved: Ints = field(init=False)
    sole: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        step, tensors = self.step, self.step.step.graph.tensors
        preds = [[step.producer[t] for t in reads if step.producer[t] >= 0] for reads in step.reads]
        us = np.asarray(self.us, np.int64)
        readers = np.repeat(np.arange(len(step.ops)), [len(reads) for reads in step.reads])
        values: dict[str, object] = {
            "preds": preds,
            "made": np.asarray(ancestor_us(preds, self.us), np.int64) + us,
            "due": np.asarray(descendant_us(preds, self.us), np.int64) + us,
            "edges": (readers, np.fromiter(chain.from_iterable(step.reads), np.int64, len(readers))),
            "producer": np.asarray(step.producer, np.int64),
            "size": np.asarray(step.size, np.int64),
            "moved": np.asarray([tensors[name].bytes for name in step.names], np.int64),
            "sole": _sole_inputs(step),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def at(self, op: int) -> Cut:
        """The cut at `op`."""
        step, us = self.step, np.asarray(self.us, np.int64)
        before, after = _ancestors(self.preds, op), _descendants(self.preds, op)
        due = self._due(after)
        free = np.ones(len(step.names), np.bool_)
        free[[*step.reads[op], *step.writes[op]]] = False
        groups = (self._written(before, due, free), self._sources(due, free), self._persistent(op, before, after, due))
        size, moved, again, made, back, both, whole = (np.concatenate(column) for column in zip(*groups, strict=True))
        engines = step.engines[op]
        return Cut(
            op=op,
            here=working_set(step, op) - (engines[0].workspace if engines else 0),
            before=int(us[before].sum()),
            after=int(us[after].sum()),
            size=size,
            moved=moved,
            again=again,
            made=made,
            due=back,
            both=both,
            whole=whole,
        )

    def _due(self, after: Bools) -> Ints:
        """For each tensor the microseconds of ops that can only run after it is back; NEVER where there are none."""
        readers, tensors = self.edges
        late = after[readers]
        due = np.full(len(self.step.names), NEVER, np.int64)
        np.maximum.at(due, tensors[late], self.due[readers[late]])
        return due

    def _written(self, before: Bools, due: Ints, free: Bools) -> Items:
        """What ops of `before` write for readers to come, or as results of the step; outputs of one op are one item."""
        step = self.step
        needed = due >= 0
        needed[list(step.outputs)] = True
        needed[list(step.becomes.values())] = False  # `_persistent` has them
        chosen = np.flatnonzero(needed & free & (self.producer >= 0) & before[self.producer])
        chosen = chosen[np.argsort(self.producer[chosen], kind="stable")]
        ops, first = np.unique(self.producer[chosen], return_index=True)
        if not len(ops):
            return _NOTHING
        size = np.add.reduceat(self.size[chosen], first)
        # A part of the item must never take longer to copy than the outputs that it stands for.
        share = np.minimum.reduceat(self.moved[chosen] / self.size[chosen], first)
        single = np.diff(np.append(first, len(chosen))) == 1
        moved: Ints = np.where(single, self.moved[chosen][first], (size * share * (1 - 1e-12)).astype(np.int64))
        hidden = (free & ~needed).tolist()
        ways = [self._again(*item, hidden) for item in zip(ops.tolist(), size.tolist(), moved.tolist(), strict=True)]
        again, made = np.asarray(ways, np.int64).T
        back = np.minimum.reduceat(due[chosen], first)
        return size, moved, again, made, back, back >= 0, single

    def _again(self, op: int, size: int, moved: int, hidden: Sequence[bool]) -> tuple[int, int]:
        """Microseconds to make again what `op` wrote, and those before which nothing of what it takes is there."""
        made = int(self.made[op])
        if self.step.ops[op].phase is not Phase.FORWARD:
            return NEVER, made
        us, stack = 0, [op]
        while stack:
            now = stack.pop()
            us += self.us[now]
            for tensor in self.sole[now]:
                source = self.step.producer[tensor]
                earlier = int(self.made[source])
                if not hidden[tensor] or self.size[tensor] < size or self.moved[tensor] < moved:
                    continue
                if 2 * self.us[source] >= made - earlier:  # where copies may begin much earlier, little is won
                    stack.append(source)
                    made = min(made, earlier)
        return us, made

    def _sources(self, due: Ints, free: Bools) -> Items:
        """Sources that the step never replaces: they may be in host memory from the start, and must be read again."""
        fixed = [t for t in self.step.sources if free[t] and due[t] >= 0 and self.step.becomes.get(t, t) == t]
        never = np.full(len(fixed), NEVER, np.int64)
        one_way = np.zeros(len(fixed), np.bool_)
        return self.size[fixed], self.moved[fixed], never, never, due[fixed], one_way, ~one_way

    def _persistent(self, op: int, before: Bools, after: Bools, due: Ints) -> Items:
        """Persistent tensors that the step replaces: the old value or the new one is somewhere at any time."""
        step = self.step
        own = {*step.reads[op], *step.writes[op]}
        pairs = [(a, b) for a, b in step.becomes.items() if step.producer[b] >= 0 and a not in own and b not in own]
        if not pairs:
            return _NOTHING
        old, new = np.asarray(pairs, np.int64).T
        writers = self.producer[new]
        made = np.where(before[writers], self.made[writers], NEVER)
        back = np.where(after[writers], due[old], np.where(before[writers], due[new], NEVER))
        yes = np.ones(len(old), np.bool_)
        return self.size[old], self.moved[old], np.full(len(old), NEVER), made, back, yes, yes


_NONE = np.zeros(0, np.int64)
_NOTHING: Items = (_NONE, _NONE, _NONE, _NONE, _NONE, np.zeros(0, np.bool_), np.zeros(0, np.bool_))


def _sole_inputs(step: IndexedStep) -> list[list[int]]:
    """For each op the tensors that no other forward op reads, and that are all that a forward op writes."""
    readers = forward_readers(step)
    found: list[list[int]] = [[] for _ in step.ops]
    for op in range(step.backward):
        if step.ops[op].phase is Phase.FORWARD and len(step.writes[op]) == 1:
            (tensor,) = step.writes[op]
            if len(readers[tensor]) == 1:
                found[readers[tensor][0]].append(tensor)
    return found


def _ancestors(preds: Sequence[Sequence[int]], op: int) -> Bools:
    """Which ops `op` depends on."""
    found = bytearray(len(preds))
    found[op] = 1
    for i in range(op, -1, -1):
        if found[i]:
            for p in preds[i]:
                found[p] = 1
    found[op] = 0
    return np.frombuffer(found, np.bool_)


def _descendants(preds: Sequence[Sequence[int]], op: int) -> Bools:
    """Which ops depend on `op`."""
    found = bytearray(len(preds))
    found[op] = 1
    for i in range(op + 1, len(preds)):
        for p in preds[i]:
            if found[p]:
                found[i] = 1
                break
    found[op] = 0
    return np.frombuffer(found, np.bool_)
