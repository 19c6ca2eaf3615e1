"""Which ops can be parts of fused ops, and what sets of them read, write and need on the device at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from snplan.ir import Graph, Op, Phase
from snplan.ops import inplace_pairs, input_specs
from snplan.ops.fused import ELEMENTWISE, REDUCING, ROWS, arithmetic
from snplan.ops.shapes import Shape
from snplan.units import GRANULE, round_up

_SMALL = 16
"""An operand of a sixteenth of the result's bytes or less counts as nothing."""


class Fusible:
    """Answers about the ops of one graph, by index, and about sets of ops."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.bytes = {name: tensor.bytes for name, tensor in graph.tensors.items()}
        self.sizes = buffer_sizes(self.bytes)
        self.kinds: list[str | None] = [None] * len(graph.ops)
        self.domains: list[Shape | None] = [None] * len(graph.ops)
        for index, op in enumerate(graph.ops):
            self._classify(index, op)

    def _classify(self, index: int, op: Op) -> None:
        """Note the arithmetic and the domain of an op that can be a part."""
        if op.kind not in ELEMENTWISE and op.kind not in ROWS and op.kind not in REDUCING:
            return
        tensors = self.graph.tensors
        if op.phase is Phase.UPDATE or not op.inputs or tensors[op.outputs[0]].spec.elements == 0:
            return
        found = arithmetic([tensors[name].dtype for name in (*op.inputs, *op.outputs)])
        if found is None:
            return
        self.kinds[index] = found
        reducing = op.kind in REDUCING
        self.domains[index] = input_specs(op, tensors)[0].shape if reducing else tensors[op.outputs[0]].shape

    def elementwise(self, index: int) -> bool:
        """Whether the op can be one of many parts of a fused op."""
        return self.kinds[index] is not None and self.graph.ops[index].kind in ELEMENTWISE

    def same_domain(self, index: int, name: str) -> bool:
        """Whether op `index` can be a part that works on the shape of tensor `name`."""
        return self.kinds[index] is not None and self.domains[index] == self.graph.tensors[name].shape

    def reads_plainly(self, op: Op, name: str) -> bool:
        """Whether `op` reads the tensor `name` under its own shape wherever it does."""
        return all(view is None for source, view in slots(op) if source == name)

    def is_whole(self, name: str, result: str) -> bool:
        """Whether `name` is not much smaller than `result`: reading it costs."""
        return self.bytes[name] * _SMALL > self.bytes[result]

    def whole(self, index: int) -> list[str]:
        """Inputs of an op that are not much smaller than its domain, each once."""
        op, size = self.graph.ops[index], self.bytes
        largest = max([size[name] for name in (*op.inputs, *op.outputs)])
        return [name for name in dict.fromkeys(op.inputs) if size[name] * _SMALL > largest]

    def sources(self, members: Collection[Op]) -> list[str]:
        """Tensors that `members`, in order, read and do not make."""
        made: set[str] = set()
        found: dict[str, None] = {}
        for op in members:
            for name in op.inputs:
                if name not in made:
                    found[name] = None
            made.update(op.outputs)
        return [*found]

    def working_set(self, members: Sequence[Op], exports: Sequence[str] | None = None) -> int:
        """Bytes on the device while a fused op of `members` runs that writes `exports` (None: what the last writes).

        Outputs go in place of inputs of the same type and bytes, unless the last of the members is a reduction.
        """
        sizes = self.sizes
        sources, written = self.sources(members), members[-1].outputs if exports is None else exports
        total = sum([sizes[name] for name in (*sources, *written)])
        if members[-1].kind in REDUCING:
            return total
        for name in written:
            match = next((s for s in sources if self._is_alike(s, name)), None)
            if match is not None:
                total -= sizes[name]
                sources.remove(match)
        return total

    def _is_alike(self, a: str, b: str) -> bool:
        return self.bytes[a] == self.bytes[b] and self.graph.tensors[a].dtype is self.graph.tensors[b].dtype


def buffer_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Bytes of a buffer for each tensor of `sizes`."""
    return {name: max(GRANULE, round_up(size)) for name, size in sizes.items()}


def _in_place(sizes: dict[str, int], op: Op, graph: Graph) -> int:
    """Bytes of the outputs that one op may write over its inputs, each input once."""
    taken: set[int] = set()
    done: dict[int, int] = {}
    for output, index in inplace_pairs(op, graph.tensors):
        if output not in done and index not in taken:
            taken.add(index)
            done[output] = sizes[op.outputs[output]]
    return sum(done.values())


def slots(op: Op) -> list[tuple[str, tuple[int, ...] | None]]:
    """Each input of an op with the shape under which it is read (None: its own)."""
    views = op.attrs.get("in_shapes")
    if not isinstance(views, list):
        return [(name, None) for name in op.inputs]
    return [
        (name, tuple(view) if isinstance(view, (list, tuple)) else None)  # type: ignore[arg-type]
        for name, view in zip(op.inputs, views, strict=True)
    ]


def lowest_floor(graph: Graph) -> int:
    """The largest working set of an op of `graph`, without workspaces: no floor is below it."""
    sizes, largest = buffer_sizes({name: tensor.bytes for name, tensor in graph.tensors.items()}), 0
    for op in graph.ops:
        total = sum([sizes[name] for name in {*op.inputs, *op.outputs}])
        if total > largest:
            largest = max(largest, total - _in_place(sizes, op, graph))
    return largest
