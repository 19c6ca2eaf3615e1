"""How many nodes a model has once its functions are walked in place of their calls, counted before the walk begins.

Functions that call others twice each double at every level: a file of a few kilobytes may stand for 2^40 nodes. Each
body is counted once, callees first, so counting takes time that grows with the file alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx import FunctionProto, NodeProto

from snplan.frontend.order import subgraphs

Key = tuple[str, str, str]
"""Domain, name and overload of a function."""

COUNTED = 10**18
"""Counts stop here."""

NAMES = 16
"""Names that one node reads and writes; one of more counts as several."""

CHARACTERS = 1000
"""Characters of the names that one node reads and writes; one of more counts as several."""


def normal_domain(domain: str) -> str:
    """ "" for ai.onnx, the domain itself otherwise."""
    return "" if domain == "ai.onnx" else domain


def called(node: NodeProto) -> Key:
    """The function that a node calls, if there is one of that key."""
    return normal_domain(node.domain), node.op_type, getattr(node, "overload", "")


def function_sizes(functions: Mapping[Key, FunctionProto]) -> dict[Key, int]:
    """The nodes of each function with those of the functions it calls, at least; at most COUNTED.

    A call from inside the function itself, which is an error, counts as one node.
    """
    sizes: dict[Key, int] = {}
    opened: set[Key] = set()
    for first in functions:
        waiting = [first]
        while waiting:
            key = waiting[-1]
            if key not in opened:
                opened.add(key)
                waiting += [
                    other for other in _calls(functions[key].node) if other in functions and other not in opened
                ]
                continue
            waiting.pop()
            if key not in sizes:
                sizes[key] = walked(functions[key].node, sizes)
    return sizes


def walked(nodes: Sequence[NodeProto], sizes: Mapping[Key, int]) -> int:
    """Nodes that are walked for `nodes` at least, calls and subgraphs included; at most COUNTED.

    Of an If one branch, of a Scan one trip; a Loop may make none.
    """
    return min(COUNTED, sum([weight(node) + sizes.get(called(node), 0) + _inside(node, sizes) for node in nodes]))


def weight(node: NodeProto) -> int:
    """What the node counts without what it expands to: 1, or more where its names are very many or very long."""
    names = [*node.input, *node.output]
    return max(1, len(names) // NAMES, sum(map(len, names)) // CHARACTERS)


def _inside(node: NodeProto, sizes: Mapping[Key, int]) -> int:
    if node.op_type not in ("If", "Scan") or not node.attribute:
        return 0
    return min((walked(graph.node, sizes) for graph in subgraphs(node)), default=0)


def _calls(nodes: Sequence[NodeProto]) -> Iterator[Key]:
    for node in nodes:
        yield called(node)
        for graph in subgraphs(node) if node.attribute else ():
            yield from _calls(graph.node)
