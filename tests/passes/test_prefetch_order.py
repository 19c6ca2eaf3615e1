"""Prefetches that are issued together: what is used first is copied first."""

from __future__ import annotations

from snplan.analysis.index import IndexedStep, index_step
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import build_schedule
from snplan.ir import DType, Graph, Op, Role, Spec, Step, Tensor
from snplan.passes.layout import make_layout

ROOM = 1 << 20


def sums(count: int) -> IndexedStep:
    """Sources s0 ... sn, added up one after another; ops of 1 us."""
    spec = Spec(DType.UINT8, (512,))
    sources = tuple(f"s{i}" for i in range(count))
    results = tuple(f"r{i}" for i in range(count - 1))
    tensors = {name: Tensor(name=name, spec=spec, role=Role.INPUT) for name in sources}
    tensors |= {name: Tensor(name=name, spec=spec) for name in results}
    ops = tuple(
        Op(name=f"add{i}", kind="add", inputs=(results[i - 1] if i else "s0", f"s{i + 1}"), outputs=(results[i],))
        for i in range(count - 1)
    )
    graph = Graph(tensors=tensors, ops=ops, sources=sources, outputs=results[-1:])
    return index_step(Step(graph=graph, loss=None, inputs=sources, gradients={}, becomes={}), [1] * (count - 1))


def test_what_is_used_first_is_copied_first() -> None:
    residency = Residency(build_schedule(sums(5)))
    for value in range(5):
        residency.evict(value, 0)
    copies = make_layout(residency, ROOM, lambda size: 1000).prefetches
    assert {copy.position for copy in copies} == {0}
    used = [residency.events[copy.value][1] for copy in copies]
    assert used == sorted(used) == [0, 0, 1, 2, 3]
