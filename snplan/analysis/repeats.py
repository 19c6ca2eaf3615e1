"""Repeated blocks of the forward pass: runs of ops that do the same work on each other's results, again and again.

An op's *word* is its class (`Graph.classes`) and how far before it what it reads was written. Words of 1, 2, 4, ... ops
on end are numbered by pairs of shorter ones (prefix doubling, as for suffix arrays: Karp, Miller and Rosenberg 1972).
In a block that repeats, the same long word was last seen one block before; so runs of ops at one distance from their
like are the repeats. All of it takes about n log n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from snplan.analysis.index import IndexedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """`count` blocks of `length` ops each, one after another from op `start`."""

    start: int
    length: int
    count: int

    @property
    def stop(self) -> int:
        """The op after the last block."""
        return self.start + self.length * self.count


def repeats(step: IndexedStep) -> list[Repeat]:
    """The repeated blocks of the forward pass, those that cover most first taken; disjoint, in order."""
    found: set[tuple[int, int, int]] = set()
    names, width = _words(step), 1
    while width <= len(names) and len(set(names)) > 1:
        found.update(_runs(names, width))
        names, width = _doubled(names, width), 2 * width
    chosen: list[Repeat] = []
    taken = bytearray(step.backward)
    for covered, length, start in sorted(found):
        repeat = Repeat(start=start, length=length, count=-covered // length)
        if not any(taken[start : repeat.stop]):
            taken[start : repeat.stop] = b"\1" * (repeat.stop - start)
            chosen.append(repeat)
    return sorted(chosen, key=lambda repeat: repeat.start)


def strands(step: IndexedStep) -> list[list[int]]:
    """Tensors that twin ops of repeated blocks write: one list for each output of each op of a block."""
    found = []
    for repeat in repeats(step):
        for op in range(repeat.start, repeat.start + repeat.length):
            twins = range(op, repeat.stop, repeat.length)
            found += [[*tensors] for tensors in zip(*(step.writes[twin] for twin in twins), strict=True)]
    return found


def _words(step: IndexedStep) -> list[int]:
    """A number for the word of each op of the forward pass."""
    known: dict[tuple[int, ...], int] = {}
    classes, producer = step.step.graph.classes, step.producer
    words = []
    for op in range(step.backward):
        back = (op - producer[t] if producer[t] >= 0 else 0 for t in step.reads[op])
        words.append(known.setdefault((classes[op], *back), len(known)))
    return words


def _doubled(names: Sequence[int], width: int) -> list[int]:
    """Numbers of words of twice the width."""
    known: dict[tuple[int, int], int] = {}
    pairs = zip(names, names[width:], strict=False)
    return [known.setdefault(pair, len(known)) for pair in pairs]


def _runs(names: Sequence[int], width: int) -> Iterator[tuple[int, int, int]]:
    """(minus the ops covered, length of a block, start) of repeats that words of this width show."""
    last: dict[int, int] = {}
    begin, distance = 0, 0
    for at, name in enumerate([*names, -1]):
        now = at - last.get(name, at)
        last[name] = at
        if now != distance:
            count = (at - begin + width - 1 + distance) // distance if distance else 0
            if count > 1:
                yield -count * distance, distance, begin - distance
            begin, distance = at, now
