"""Refinements of the order of a whole training step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from snplan.ir import Phase, Step


def persist_sources(step: Step) -> Step:
    """`step` with every source that is no input among what persists: itself where nothing updates it."""
    inputs = set(step.inputs)
    kept = {name: name for name in step.graph.sources if name not in inputs and name not in step.becomes}
    return replace(step, becomes={**step.becomes, **kept}) if kept else step


def sink_updates(step: Step) -> Step:
    """`step` with every update after the last reader of what it overwrites, so that it can go in place."""
    graph = step.graph
    readers = graph.readers
    later: defaultdict[int, list[int]] = defaultdict(list)
    moved = set()
    for i, op in enumerate(graph.ops):
        if op.phase is not Phase.UPDATE:
            continue
        overwritten = [name for name in op.inputs if name in step.becomes]
        last = max((r for name in overwritten for r in readers[name]), default=i)
        if last > i:
            later[last].append(i)
            moved.add(i)
    if not moved:
        return step
    order: list[int] = []
    for i in range(len(graph.ops)):
        if i not in moved:
            order.append(i)
        order.extend(later[i])
    return replace(step, graph=replace(graph, ops=tuple(graph.ops[i] for i in order)))
