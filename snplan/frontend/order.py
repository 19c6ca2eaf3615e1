"""The order of a graph's nodes: every name written once, nodes after what they read, cycles reported."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from onnx import AttributeProto, GraphProto, NodeProto

from snplan.errors import ModelError
from snplan.frontend import codes

_SHOWN = 12


def node_name(node: NodeProto, index: int) -> str:
    """The node's name, or one made of its operator and its place."""
    return node.name or f"{node.op_type}_{index}"


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def outer_names(graph: GraphProto) -> set[str]:
    """Names that a subgraph reads from the graphs around it."""
    inside = {name for node in graph.node for name in node.output}
    inside.update(info.name for info in graph.input)
    inside.update(tensor.name for tensor in graph.initializer)
    read = {name for node in graph.node for name in reads(node)}
    read.update(info.name for info in graph.output)
    return read - inside


def reads(node: NodeProto) -> list[str]:
    """Names that a node reads, those that its subgraphs take from outside included."""
    names = [name for name in node.input if name]
    for graph in subgraphs(node):
        names += sorted(outer_names(graph))
    return names


def writers(nodes: Sequence[NodeProto], given: Iterable[str]) -> dict[str, int]:
    """The node that writes each name; raises ModelError (SNP-I010) where a name has two writers.

    `given` are the names that exist without a node: graph inputs and initializers.
    """
    writer: dict[str, int] = {}
    names = set(given)
    for index, node in enumerate(nodes):
        for name in node.output:
            if not name:
                continue
            if name in writer or name in names:
                first = (
                    f"node {node_name(nodes[writer[name]], writer[name])!r}" if name in writer else "the graph itself"
                )
                raise ModelError(
                    codes.DUPLICATE,
                    f"the name {name!r} is written twice: by {first} and by node {node_name(node, index)!r}; "
                    "every tensor needs a name of its own",
                )
            writer[name] = index
    return writer


def ordered(nodes: Sequence[NodeProto], given: Iterable[str]) -> tuple[list[int], bool]:
    """Indices of the nodes in a topological order (theirs where it is one), and whether they had to be sorted.

    Raises ModelError for a name with two writers (SNP-I010) and for a cycle, which it lists (SNP-I009).
    """
    writer = writers(nodes, given)
    sources = [_sources(node, writer) for node in nodes]
    if all(source < index for index, needed in enumerate(sources) for source in needed):
        return list(range(len(nodes))), False
    order = _sorted(sources)
    if len(order) < len(nodes):
        _raise_cycle(nodes, sources, set(order))
    return order, True


def _sources(node: NodeProto, writer: dict[str, int]) -> list[int]:
    return list(dict.fromkeys(writer[name] for name in reads(node) if name in writer))


def _sorted(sources: list[list[int]]) -> list[int]:
    """Kahn's algorithm; of the nodes that are ready, the one that comes first in the file."""
    readers: list[list[int]] = [[] for _ in sources]
    missing = [len(needed) for needed in sources]
    for index, needed in enumerate(sources):
        for source in needed:
            readers[source].append(index)
    ready = [index for index, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    return order


def _raise_cycle(nodes: Sequence[NodeProto], sources: list[list[int]], done: set[int]) -> None:
    index = next(index for index in range(len(nodes)) if index not in done)
    place: dict[int, int] = {}
    walk: list[int] = []
    while index not in place:
        place[index] = len(walk)
        walk.append(index)
        index = next(source for source in sources[index] if source not in done)
    cycle = walk[place[index] :][::-1]
    names = [node_name(nodes[index], index) for index in cycle]
    shown = names if len(names) <= _SHOWN else [*names[: _SHOWN - 1], f"... {len(names) - _SHOWN} more ...", names[-1]]
    raise ModelError(
        codes.CYCLE,
        f"the graph has a cycle of {len(names)} nodes: {' -> '.join([*shown, names[0]])}; a model may not have one",
    )
