"""Small graphs for tests."""

from __future__ import annotations

from collections.abc import Mapping

from property.graphs import GraphWriter

from snplan.ir import DType, Forward, Graph, Op, Role, Spec, Tensor

SPEC = Spec(DType.FLOAT32, (16, 32))


def forward_of(edges: Mapping[str, tuple[str, ...]]) -> Forward:
    """A graph of elementwise ops: op name -> names of what it reads ("x" is the input); the last is the result."""
    tensors = {name: Tensor(name=name, spec=SPEC) for name in edges}
    tensors["x"] = Tensor(name="x", spec=SPEC, role=Role.INPUT)
    ops = tuple(
        Op(name=name, kind="relu" if len(reads) == 1 else "add", inputs=reads, outputs=(name,))
        for name, reads in edges.items()
    )
    graph = Graph(tensors=tensors, ops=ops, sources=("x",), outputs=(ops[-1].name,))
    return Forward(graph=graph, inputs=("x",), initializers=(), state_updates={})


def chain_of(layers: int, width: int = 64) -> Forward:
    """matmul + relu layers of one width, and a scalar mean at the end."""
    writer = GraphWriter()
    value = writer.source("x", (16, width), Role.INPUT)
    for layer in range(layers):
        weight = writer.source(f"w{layer}", (width, width), Role.CONSTANT)
        (value,) = writer.op("matmul", (value, weight), trans_a=False, trans_b=False, alpha=1.0)
        (value,) = writer.op("relu", (value,))
    (loss,) = writer.op("reduce_mean", (value,), axes=[0, 1], keepdims=False)
    return writer.forward(loss)
