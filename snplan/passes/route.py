"""The order of forward ops: Algorithm 1 of SuperNeurons (section 3.1), a depth-first walk that waits at joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snplan.ir import Graph, Op, Phase


def route(graph: Graph) -> Graph:
    """`graph` with its ops in route order: an op runs when all it reads is there, the branch just opened goes on first.

    Ops without inputs (constants, random numbers) are placed right before their first reader; updates run at once.
    """
    successors, waiting = _edges(graph)
    order: list[int] = []
    done = [False] * len(graph.ops)
    stack = [i for i in reversed(range(len(graph.ops))) if waiting[i] == 0 and not _is_origin(graph.ops[i])]
    while stack:
        op = stack.pop()
        order.extend(_new_origins(graph, op, done))
        order.append(op)
        ready = []
        for successor in successors[op]:
            waiting[successor] -= 1
            if waiting[successor] == 0:
                ready.append(successor)
        ready.sort(key=lambda i: (graph.ops[i].phase is not Phase.UPDATE, i), reverse=True)
        stack.extend(ready)
    order.extend(i for i, op in enumerate(graph.ops) if _is_origin(op) and not done[i])
    return replace(graph, ops=tuple(graph.ops[i] for i in order))


def _is_origin(op: Op) -> bool:
    return not op.inputs


def _edges(graph: Graph) -> tuple[list[list[int]], list[int]]:
    """Successors of each op, and how many predecessors it waits for; origins are not waited for."""
    successors: list[list[int]] = [[] for _ in graph.ops]
    waiting = [0] * len(graph.ops)
    for i, op in enumerate(graph.ops):
        before = dict.fromkeys(graph.producer[name] for name in op.inputs if name in graph.producer)
        for j in before:
            if not _is_origin(graph.ops[j]):
                successors[j].append(i)
                waiting[i] += 1
    return successors, waiting


def _new_origins(graph: Graph, op: int, done: list[bool]) -> Sequence[int]:
    """Origins that `op` is the first to read."""
    found = []
    for name in graph.ops[op].inputs:
        producer = graph.producer.get(name)
        if producer is not None and _is_origin(graph.ops[producer]) and not done[producer]:
            done[producer] = True
            found.append(producer)
    return found
