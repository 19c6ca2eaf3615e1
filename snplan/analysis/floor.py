"""Working sets and the floor: the lowest budget that any plan of a step can meet."""

from __future__ import annotations

from dataclasses import dataclass

from snplan.analysis.index import IndexedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The largest working set of one op, in bytes, and the index of that op (-1 when the step has no op)."""

    bytes: int
    op: int


def working_set(step: IndexedStep, op: int) -> int:
    """Bytes that must be on the device while `op` runs: inputs, outputs, smallest workspace; in place counted once."""
    return step.working_sets[op]


def floor(step: IndexedStep) -> Floor:
    """The floor (docs/design.md): no plan runs the binding op in less, and packing each op afresh meets it."""
    best = Floor(bytes=0, op=-1)
    for op in range(len(step.ops)):
        need = working_set(step, op)
        if need > best.bytes:
            best = Floor(bytes=need, op=op)
    return best


def baseline_bytes(step: IndexedStep) -> int:
    """Bytes when every tensor has a buffer of its own for the whole step."""
    return sum(step.size)
