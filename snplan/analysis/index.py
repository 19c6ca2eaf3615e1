"""The training step as integers: what planning passes work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from snplan.ir import Op, Phase, Role, Step
from snplan.ir.signature import by_class
from snplan.ops import inplace_pairs
from snplan.units import GRANULE, round_up


class Choice(NamedTuple):
    """An engine of an op: its id, workspace bytes (rounded to the granule) and microseconds."""

    id: int
    workspace: int
    us: int


@dataclass(frozen=True, kw_only=True)
class IndexedStep:
    """A `Step` over tensor and op indices (positions in `names` and in `step.graph.ops`).

    size        buffer bytes of each tensor: rounded to the granule, at least one granule
    reads       distinct tensors that each op reads, in order of first appearance
    writes      tensors that each op writes
    overwrites  (written, read) pairs of each op that may share a buffer: the in-place rules whose sizes match
    cost        microseconds of one execution of each op
    producer    op that writes each tensor, -1 for sources
    engines     engines of each op that has a choice or a workspace, by workspace upwards, each faster than those before
                it; () for other ops. `cost` is the time of the fastest
    becomes     tensor -> the tensor that holds its value for the next step (persistent tensors only)
    backward    index of the first op that is not part of the forward pass (number of ops when there is none)
    """

    step: Step
    names: tuple[str, ...]
    size: list[int]
    reads: list[tuple[int, ...]]
    writes: list[tuple[int, ...]]
    overwrites: list[tuple[tuple[int, int], ...]]
    cost: list[int]
    engines: list[tuple[Choice, ...]]
    producer: list[int]
    becomes: dict[int, int]
    sources: tuple[int, ...]
    outputs: tuple[int, ...]
    backward: int

    @property
    def ops(self) -> tuple[Op, ...]:
        """The step's ops."""
        return self.step.graph.ops

    def role(self, tensor: int) -> Role:
        """Role of a tensor by index."""
        return self.step.graph.tensors[self.names[tensor]].role

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """Role of each tensor."""
        return tuple(tensor.role for tensor in self.step.graph.tensors.values())

    @cached_property
    def overwriting(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each op its `overwrites` as pairs of an index of `writes` and one of `reads`."""
        return tuple(
            tuple((writes.index(written), reads.index(read)) for written, read in pairs)
            for pairs, writes, reads in zip(self.overwrites, self.writes, self.reads, strict=True)
        )

    @cached_property
    def working_sets(self) -> tuple[int, ...]:
        """Bytes that must be on the device while each op runs (`floor.working_set`)."""
        return tuple(self._working_set(op) for op in range(len(self.reads)))

    def _working_set(self, op: int) -> int:
        size, engines = self.size, self.engines[op]
        total = sum(size[t] for t in self.reads[op]) + sum(size[t] for t in self.writes[op])
        in_place = sum(size[written] for written, _ in match_in_place(self.overwrites[op]))
        return total - in_place + (engines[0].workspace if engines else 0)


def match_in_place(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The (written, read) pairs that go in place together: each tensor at most once, first rule first."""
    chosen: list[tuple[int, int]] = []
    taken: set[int] = set()
    for written, read in pairs:
        if written in taken or read in taken:
            continue
        taken.update((written, read))
        chosen.append((written, read))
    return chosen


def _overwrites(op: Op, allowed: Sequence[tuple[int, int]], ids: dict[str, int]) -> tuple[tuple[int, int], ...]:
    """(written, read) tensor pairs of `op` that may share a buffer, from (output, input) pairs."""
    if not allowed:
        return ()
    return tuple(dict.fromkeys((ids[op.outputs[output]], ids[op.inputs[source]]) for output, source in allowed))


def index_step(step: Step, cost: Sequence[int], engines: Mapping[int, Sequence[Choice]] | None = None) -> IndexedStep:
    """The indexed form of `step`, with `cost` microseconds for each op of `step.graph.ops` and engines by op index."""
    graph = step.graph
    names = tuple(graph.tensors)
    ids = {name: i for i, name in enumerate(names)}
    size = [max(GRANULE, round_up(tensor.bytes)) for tensor in graph.tensors.values()]
    producer = [-1] * len(names)
    for i, op in enumerate(graph.ops):
        for name in op.outputs:
            producer[ids[name]] = i
    backward = next((i for i, op in enumerate(graph.ops) if op.phase is Phase.BACKWARD), len(graph.ops))
    in_place = by_class(graph.classes, lambda index: inplace_pairs(graph.ops[index], graph.tensors))
    return IndexedStep(
        step=step,
        names=names,
        size=size,
        reads=[tuple(dict.fromkeys(ids[name] for name in op.inputs)) for op in graph.ops],
        writes=[tuple(ids[name] for name in op.outputs) for op in graph.ops],
        overwrites=[_overwrites(op, pairs, ids) for op, pairs in zip(graph.ops, in_place, strict=True)],
        cost=list(cost),
        engines=[tuple((engines or {}).get(i, ())) for i in range(len(graph.ops))],
        producer=producer,
        becomes={ids[a]: ids[b] for a, b in step.becomes.items()},
        sources=tuple(ids[name] for name in graph.sources),
        outputs=tuple(dict.fromkeys(ids[name] for name in graph.outputs)),
        backward=backward,
    )


def forward_readers(step: IndexedStep) -> list[list[int]]:
    """Forward ops that read each tensor."""
    readers: list[list[int]] = [[] for _ in step.names]
    for op in range(step.backward):
        if step.ops[op].phase is Phase.FORWARD:
            for tensor in step.reads[op]:
                readers[tensor].append(op)
    return readers
