"""Which saved values backward ops can make again from other saved values, in registers, instead of reading them.

A forward value made by elementwise ops (its *recipe*) from one tensor that is saved anyway need not be saved itself:
the ops that read it in the backward pass take the recipe in. That saves memory, or for values that are saved anyway
for others, traffic. Where that tensor is not saved, it may be in the value's place, which then need not be written.
The same goes for a gradient that several ops read beside what it is made from.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from snplan.ir import Graph, Op, Phase, Role
from snplan.ops.fused import REDUCING
from snplan.training.fusible import Fusible

_LONGEST = 8
"""Most ops of a recipe."""
_MOST_READERS = 3
"""Most readers that a gradient is made again for."""


def _persists(graph: Graph, name: str) -> bool:
    return graph.tensors[name].role is not Role.INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Ops that make a tensor, in order, and the tensors of its size that they start from."""

    ops: tuple[Op, ...]
    bases: tuple[str, ...]


class Rederived:
    """What each op takes in: `private` lists ops by the op's index; `readers` are those left of each tensor.

    `dropped` holds the indices of ops that all their readers took in.
    """

    def __init__(self, graph: Graph, fusible: Fusible, limit: int) -> None:
        self.graph = graph
        self.fusible = fusible
        self.limit = limit
        self.readers: dict[str, Collection[int]] = dict(graph.readers)
        self.private: dict[int, tuple[Op, ...]] = {}
        self.dropped: set[int] = set()
        self._recipes: dict[str, Recipe] = {}
        self._kept = {*graph.outputs, *(name for name in graph.sources if _persists(graph, name))}
        for index, op in enumerate(graph.ops):
            if op.phase is Phase.FORWARD:
                for name in op.outputs:
                    self._settle(index, op, name)
        for index, op in enumerate(graph.ops):
            if op.phase is Phase.BACKWARD and len(op.outputs) == 1:
                self._share(index, op)

    def _settle(self, index: int, op: Op, name: str) -> None:
        """Decide whether the forward tensor `name`, which `op` writes, stays saved, and who makes it again."""
        later = [r for r in self.readers[name] if self.graph.ops[r].phase is not Phase.FORWARD]
        recipe = self._recipe(index, op)
        if recipe is None:
            self._kept.update([name] if later else [])
            return
        self._recipes[name] = recipe
        soft = [r for r in later if self._may_take(r, name, recipe)]
        missing = [base for base in recipe.bases if base not in self._kept]
        if len(soft) < len(later) or name in self._kept:
            self._kept.add(name)
            # It is saved all the same: only traffic counts, where all that follows reads the base as well.
            soft = [] if missing else [r for r in soft if self._saves_traffic(r, recipe)]
        elif later and missing:
            if len(missing) > 1 or not self._fuses_forward(name):
                self._kept.add(name)
                return
            # What it is made from is saved in its place, and it need not be written.
            self._kept.update(missing)
        for reader in soft:
            self._take(reader, name, recipe.ops)

    def _recipe(self, index: int, op: Op) -> Recipe | None:
        """How to make the output of `op` again from results of ops, or what persists; None where that does not pay."""
        if not self.fusible.elementwise(index) or op.rng is not None:
            return None
        ops: dict[str, Op] = {}
        bases: dict[str, None] = {}
        for name in self.fusible.whole(index):
            known = None if name in self._kept else self._recipes.get(name)
            if known is None:
                if name not in self._kept and name not in self.graph.producer:
                    return None
                bases[name] = None
            elif self.fusible.reads_plainly(op, name):
                ops.update((member.name, member) for member in known.ops)
                bases.update(dict.fromkeys(known.bases))
            else:
                return None
        ops[op.name] = op
        size = self.graph.tensors[op.outputs[0]].bytes
        small = all(self.graph.tensors[base].bytes <= size for base in bases)
        return Recipe(ops=tuple(ops.values()), bases=tuple(bases)) if small and len(ops) <= _LONGEST else None

    def _fuses_forward(self, name: str) -> bool:
        """Whether all forward readers of a tensor can be one op with what makes it."""
        forward = [r for r in self.readers[name] if self.graph.ops[r].phase is Phase.FORWARD]
        return all(
            self.fusible.same_domain(r, name) and self.fusible.reads_plainly(self.graph.ops[r], name) for r in forward
        )

    def _may_take(self, reader: int, name: str, recipe: Recipe) -> bool:
        """Whether backward op `reader` can make `name` itself, reading no more than before."""
        if not self.fusible.same_domain(reader, name) or not self.fusible.reads_plainly(self.graph.ops[reader], name):
            return False
        own = {other for other in self.fusible.whole(reader) if other != name}
        new = [base for base in recipe.bases if base not in own]
        members = (*recipe.ops, *self.private.get(reader, ()), self.graph.ops[reader])
        return len(new) <= 1 and self.fusible.working_set(members) <= self.limit

    def _saves_traffic(self, reader: int, recipe: Recipe) -> bool:
        """Whether every reader of what `reader` writes reads all bases too."""
        (output,) = self.graph.ops[reader].outputs[:1]
        following = self.readers[output]
        return bool(following) and all({*recipe.bases} <= {*self.graph.ops[r].inputs} for r in following)

    def _take(self, reader: int, name: str, ops: Sequence[Op]) -> None:
        """Let `reader` make `name` itself."""
        members = {op.name: op for op in (*self.private.get(reader, ()), *ops)}
        self.private[reader] = tuple(members.values())
        del self._own(name)[reader]
        for source in self.fusible.sources(ops):
            self._own(source).setdefault(reader)

    def _own(self, name: str) -> dict[int, None]:
        """The readers of a tensor, to be changed: most keep the list that the graph has."""
        found = self.readers[name]
        if not isinstance(found, dict):
            found = self.readers[name] = dict.fromkeys(found)
        return found

    def _share(self, index: int, op: Op) -> None:
        """Let all readers of a gradient make it themselves, where one sums it and they read the rest of it anyway."""
        (name,) = op.outputs
        readers = [*self.readers[name]]
        if not 1 < len(readers) <= _MOST_READERS or name in self._kept or op.rng is not None:
            return
        if not self.fusible.elementwise(index) or all(self.graph.ops[r].kind not in REDUCING for r in readers):
            return
        members = (*self.private.get(index, ()), op)
        sources = {source for source in self.fusible.sources(members) if self.fusible.is_whole(source, name)}
        if not all(self._may_share(reader, name, sources, members) for reader in readers):
            return
        for reader in readers:
            self._take(reader, name, members)
        self.dropped.add(index)
        for source in self.fusible.sources(members):
            self._own(source).pop(index, None)

    def _may_share(self, reader: int, name: str, sources: set[str], members: Sequence[Op]) -> bool:
        if not self.fusible.same_domain(reader, name) or not self.fusible.reads_plainly(self.graph.ops[reader], name):
            return False
        new = sources - {*self.graph.ops[reader].inputs}
        return len(new) <= 1 and self.fusible.working_set((*members, self.graph.ops[reader])) <= self.limit
