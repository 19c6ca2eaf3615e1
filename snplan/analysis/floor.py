"""Working sets and the floor: the lowest budget that any plan of a step can meet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from snplan.analysis.index import IndexedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The largest working set of one op, in bytes, and the index of that op (-1 when the step has no op)."""

    bytes: int
    op: int


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


def working_set(step: IndexedStep, op: int) -> int:
    """Bytes that must be on the device while `op` runs: inputs, outputs, smallest workspace; in place counted once."""
    size = step.size
    total = sum(size[t] for t in step.reads[op]) + sum(size[t] for t in step.writes[op])
    in_place = sum(size[written] for written, _ in match_in_place(step.overwrites[op]))
    workspace = step.engines[op][0].workspace if step.engines[op] else 0
    return total - in_place + workspace


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
