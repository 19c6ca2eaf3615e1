"""Rewrites of a forward graph that change no bit of any result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from snplan.ir import Attr, Graph, Op, Phase

_FLAGS = ("trans_a", "trans_b")


def fold_transposes(graph: Graph) -> Graph:
    """`graph` with matmuls that read what transposes of the last two axes read, their flags flipped.

    The transposes stay; those that nobody reads any more are dead.
    """
    swaps = {op.outputs[0]: op.inputs[0] for op in graph.ops if op.kind == "transpose" and _swaps_last(op)}
    if not swaps:
        return graph
    return replace(graph, ops=tuple(_folded(op, swaps) if op.kind == "matmul" else op for op in graph.ops))


def _swaps_last(op: Op) -> bool:
    perm = op.attrs["perm"]
    if not isinstance(perm, list) or len(perm) < 2:
        return False
    rank = len(perm)
    return perm == [*range(rank - 2), rank - 1, rank - 2]


def _folded(op: Op, swaps: Mapping[str, str]) -> Op:
    inputs, attrs = list(op.inputs), dict[str, Attr](op.attrs)
    for index, flag in enumerate(_FLAGS):
        # A transpose of a transpose is folded as well: flags flip twice.
        while inputs[index] in swaps:
            inputs[index] = swaps[inputs[index]]
            attrs[flag] = not attrs.get(flag, False)
    return replace(op, inputs=tuple(inputs), attrs=attrs) if tuple(inputs) != op.inputs else op


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
