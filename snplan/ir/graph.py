"""Graphs of ops over tensors, and the training step built from one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from snplan.ir.op import Op
from snplan.ir.signature import classes_of
from snplan.ir.tensor import Tensor

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Ops in a topological order, over tensors by name.

    `sources` are the tensors that exist when the step starts (inputs, parameters, state, constants); `outputs` are
    the results. Every other tensor is written by exactly one op.
    """

    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    sources: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def producer(self) -> dict[str, int]:
        """Index of the op that writes a tensor; sources are absent."""
        return {name: i for i, op in enumerate(self.ops) for name in op.outputs}

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """Indices of the ops that read a tensor, ascending, each once; every tensor is present."""
        readers: dict[str, list[int]] = {name: [] for name in self.tensors}
        for i, op in enumerate(self.ops):
            for name in dict.fromkeys(op.inputs):
                readers[name].append(i)
        return readers

    @cached_property
    def classes(self) -> list[int]:
        """For each op the index of the first op with its signature (`snplan.ir.signature`)."""
        return classes_of(self.ops, self.tensors)

    def digraph(self) -> nx.DiGraph:
        """The ops as a networkx digraph: nodes are op indices, an edge carries the tensors that flow along it."""
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(self.ops)))
        for name, readers in self.readers.items():
            source = self.producer.get(name)
            if source is None:
                continue
            for reader in readers:
                tensors = graph.edges[source, reader]["tensors"] if graph.has_edge(source, reader) else ()
                graph.add_edge(source, reader, tensors=(*tensors, name))
        return graph


def problems(graph: Graph) -> list[str]:
    """What is wrong with `graph`, in words; empty when it is well formed.

    Checked: every name is known, every tensor has one writer or is a source, ops come after what they read, op names
    are unique, outputs exist.
    """
    found: list[str] = []
    written = set(graph.sources)
    found += [f"source {name} is not a tensor" for name in graph.sources if name not in graph.tensors]
    names: set[str] = set()
    for op in graph.ops:
        if op.name in names:
            found.append(f"two ops are called {op.name}")
        names.add(op.name)
        early = [name for name in op.inputs if name not in written]
        found += [f"{op.name} reads {name}, which is not written before it" for name in early]
        found += [f"{op.name} writes {name}, which has another writer" for name in op.outputs if name in written]
        found += [f"{op.name} writes {name}, which is not a tensor" for name in op.outputs if name not in graph.tensors]
        written.update(op.outputs)
    found += [f"tensor {name} has no writer" for name in graph.tensors if name not in written]
    found += [f"output {name} is not a tensor" for name in graph.outputs if name not in graph.tensors]
    return found


@dataclass(frozen=True, kw_only=True)
class Forward:
    """An imported model before differentiation, pruned to what its `graph.outputs` need.

    `graph.ops` may hold ops of kind "view", and `batch_norm_update` ops of phase update. `inputs` are the sources that
    a user feeds; `initializers` those whose values are in the model (float ones may turn out to be parameters).
    `state_updates` maps a running statistic to the tensor that holds its value after the step.
    """

    graph: Graph
    inputs: tuple[str, ...]
    initializers: tuple[str, ...]
    state_updates: Mapping[str, str]
    loss: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Step:
    """A whole training step: views resolved, ops of all phases, and what must be where when it ends.

    `becomes` maps every tensor that persists from step to step (parameters, state, optimizer state, constants) to its
    value at the end of the step: itself when nothing updates it. `gradients` maps a trained parameter to its gradient.
    """

    graph: Graph
    loss: str | None
    inputs: tuple[str, ...]
    gradients: Mapping[str, str]
    becomes: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def fresh_name(base: str, taken: Iterable[str] | Mapping[str, object]) -> str:
    """`base`, or `base` with the first free numeric suffix, such that it is not in `taken`."""
    if base not in taken:
        return base
    names = taken if isinstance(taken, (set, frozenset, Mapping)) else set(taken)
    number = 1
    while f"{base}.{number}" in names:
        number += 1
    return f"{base}.{number}"
