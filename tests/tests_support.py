"""Small graphs for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from property.graphs import GraphWriter

from snplan.analysis.index import IndexedStep, index_step
from snplan.ir import DType, Forward, Graph, Op, Phase, Role, Spec, Step, Tensor
from snplan.plan.model import StepPlan

MIB = 1 << 20
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One op of a hand-made step: what it reads and writes, its phase, microseconds, and in-place kind or not."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    phase: Phase = Phase.FORWARD
    us: int = 10
    kind: str = "concat"


def indexed_of(
    lines: Sequence[Line],
    *,
    granules: Mapping[str, int] | None = None,
    sources: Mapping[str, Role],
    outputs: Sequence[str] = (),
    becomes: Mapping[str, str] | None = None,
) -> IndexedStep:
    """A step of ops that are not in place unless their kind is ("relu", "sgd_update"), tensors of so many granules."""
    names = [*sources, *(name for line in lines for name in line.writes)]
    tensors = {
        name: Tensor(
            name=name,
            spec=Spec(DType.FLOAT32, (128 * (granules or {}).get(name, 1),)),
            role=sources.get(name, Role.ACTIVATION),
        )
        for name in names
    }
    ops = tuple(
        Op(name=line.name, kind=line.kind, inputs=line.reads, outputs=line.writes, phase=line.phase) for line in lines
    )
    graph = Graph(tensors=tensors, ops=ops, sources=tuple(sources), outputs=tuple(outputs))
    step = Step(graph=graph, loss=None, inputs=(), gradients={}, becomes=dict(becomes or {}))
    return index_step(step, [line.us for line in lines])


def training_chain() -> IndexedStep:
    """Three layers forward and backward: a, b, c saved for the backward pass; one granule each.

    positions: 0 fa, 1 fb, 2 fc, 3 top, 4 gc, 5 gb, 6 ga
    """
    backward = Phase.BACKWARD
    return indexed_of(
        [
            Line(name="fa", reads=("x",), writes=("a",)),
            Line(name="fb", reads=("a",), writes=("b",)),
            Line(name="fc", reads=("b",), writes=("c",)),
            Line(name="top", reads=("c",), writes=("dc",), phase=backward),
            Line(name="gc", reads=("c", "dc"), writes=("db",), phase=backward),
            Line(name="gb", reads=("b", "db"), writes=("da",), phase=backward),
            Line(name="ga", reads=("a", "da"), writes=("dx",), phase=backward),
        ],
        sources={"x": Role.INPUT},
        outputs=("dx",),
    )


def tall(layers: int, us: int = 100) -> IndexedStep:
    """A chain of layers that each save 1 MiB; every op takes `us` microseconds, copies of a layer about 30."""
    forward = [Line(name=f"f{i}", reads=(f"t{i}" if i else "x",), writes=(f"t{i + 1}",), us=us) for i in range(layers)]
    backward = [
        Line(
            name=f"g{i}",
            reads=(f"t{i}", f"d{i}") if i < layers else (f"t{i}",),
            writes=(f"d{i - 1}",),
            phase=Phase.BACKWARD,
            us=us,
        )
        for i in range(layers, 0, -1)
    ]
    sizes = {name: MIB // 512 for i in range(layers + 1) for name in (f"t{i}", f"d{i}")}
    return indexed_of([*forward, *backward], granules=sizes, sources={"x": Role.INPUT}, outputs=("d0",))


def random_weights(plan: StepPlan) -> dict[str, np.ndarray[Any, Any]]:
    """Random values of everything that persists."""
    rng = np.random.default_rng(3)
    stored = {entry.tensor for entry in plan.persistent}
    return {
        t.name: (rng.normal(size=t.shape) * 0.3 + (1.0 if t.name.endswith((".scale", ".var")) else 0.0)).astype(
            np.float32
        )
        for t in plan.tensors
        if t.name in stored and t.role != "optimizer"
    }
