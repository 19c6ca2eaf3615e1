"""Rewrites of a graph that change no bit of any result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from snplan.ir import Attr, Graph, Op, Phase
from snplan.ops.binary import ARITHMETIC, COMPARISONS, LOGIC
from snplan.ops.shapes import Shape

_FLAGS = ("trans_a", "trans_b")
_BROADCASTING = frozenset({*ARITHMETIC, *COMPARISONS, *LOGIC, "mod", "where", "mask"})
"""Kinds that repeat a smaller input themselves, element by element."""


def fold_transposes(graph: Graph) -> Graph:
    """`graph` with matmuls that read what transposes of the last two axes read, their flags flipped.

    The transposes stay; those that nobody reads any more are dead.
    """
    swaps: dict[str, tuple[str, bool]] = {}
    for op in graph.ops:
        if op.kind == "transpose" and _swaps_last(op):
            # A transpose of a transpose is folded as well: flags flip twice.
            base, odd = swaps.get(op.inputs[0], (op.inputs[0], False))
            swaps[op.outputs[0]] = base, not odd
    if not swaps:
        return graph
    return replace(graph, ops=tuple(_folded(op, swaps) if op.kind == "matmul" else op for op in graph.ops))


def _swaps_last(op: Op) -> bool:
    perm = op.attrs["perm"]
    if not isinstance(perm, list) or len(perm) < 2:
        return False
    rank = len(perm)
    return perm == [*range(rank - 2), rank - 1, rank - 2]


def _folded(op: Op, swaps: Mapping[str, tuple[str, bool]]) -> Op:
    """`op` on what the transposes in `swaps` start from; an odd number of them flips the flag."""
    inputs, attrs = list(op.inputs), dict[str, Attr](op.attrs)
    for index, flag in enumerate(_FLAGS):
        if inputs[index] in swaps:
            inputs[index], odd = swaps[inputs[index]]
            attrs[flag] = bool(attrs.get(flag, False)) != odd
    return replace(op, inputs=tuple(inputs), attrs=attrs) if tuple(inputs) != op.inputs else op


def drop_expands(graph: Graph, kept: Iterable[str] = ()) -> Graph:
    """`graph` with elementwise ops that read what an `expand` repeats, where another input gives them their shape.

    An expand that nobody reads any more is gone, unless its result is an output or in `kept`.
    """
    expands = {op.outputs[0]: op.inputs[0] for op in graph.ops if op.kind == "expand" and "in_shapes" not in op.attrs}
    if not expands:
        return graph
    read, ops, dead = {*graph.outputs, *kept}, list[Op](), set[str]()
    for op in reversed([_unexpanded(op, expands, graph) for op in graph.ops]):
        if op.outputs[0] in expands and op.outputs[0] not in read:
            dead.add(op.outputs[0])
        else:
            ops.append(op)
            read.update(op.inputs)
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in dead}
    return replace(graph, tensors=tensors, ops=tuple(reversed(ops)))


def _unexpanded(op: Op, expands: Mapping[str, str], graph: Graph) -> Op:
    """`op` on the inputs of expands, one after another as long as its result keeps its shape."""
    if op.kind not in _BROADCASTING or not any(name in expands for name in op.inputs):
        return op
    inputs = list(op.inputs)
    shapes = [graph.tensors[name].shape for name in inputs]
    for index in range(len(inputs)):
        while inputs[index] in expands and _others_suffice(shapes, index, graph.tensors[op.outputs[0]].shape):
            inputs[index] = expands[inputs[index]]
            shapes[index] = graph.tensors[inputs[index]].shape
    return replace(op, inputs=tuple(inputs))


def _others_suffice(shapes: Sequence[Shape], index: int, result: Shape) -> bool:
    """Whether some other input than `index` has the whole shape of the result."""
    return any(shape == result for other, shape in enumerate(shapes) if other != index)


def hoist_updates(graph: Graph) -> Graph:
    """`graph` with each op of phase update right after the last op that it reads from."""
    place: dict[str, int] = {}
    keys: list[tuple[int, int, int]] = []
    for index, op in enumerate(graph.ops):
        update = op.phase is Phase.UPDATE
        after = max((place.get(name, -1) for name in op.inputs), default=-1) if update else index
        keys.append((after, int(update), index))
        place.update(dict.fromkeys(op.outputs, after))
    order = sorted(range(len(graph.ops)), key=keys.__getitem__)
    return replace(graph, ops=tuple(graph.ops[index] for index in order))
