"""Bytes of one arena over time: who wrote them, who used them last, and what they hold.

Streams run in order, so of all earlier accesses to a byte only the last write and, of the reads after it, the last of
each stream can still be in the way of a new access: everything older is ordered before those or was reported when they
were met. A cell is a range of bytes with one such history. The ends of all extents are known beforehand, so cells are
kept by the number of the end that they start at: a byte array marks starts, and its `find` and `rfind` are the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from snplan.plan.model import Extent
from snplan.plan.verifier.order import Clock

NOBODY = -1


@dataclass(slots=True)
class Cell:
    """A byte range's history: its last write, the last read since then on each stream (action ids; -1: none).

    `owner` is the extent that the bytes were written through while they are intact, and `value` the tensor they hold
    (None: nothing of use). A cell that is not intact never changes again, so its parts may share it.
    """

    owner: int = NOBODY
    value: str | None = None
    write: int = -1
    stream: int = 0
    reads: list[int] = field(default_factory=lambda: [-1, -1, -1])

    def unordered(self, clock: Clock) -> int:
        """An action of the history that an action with `clock` does not come after; -1: none."""
        unordered = self.unordered_write(clock)
        if unordered >= 0:
            return unordered
        for read, seen in zip(self.reads, clock, strict=True):
            if read > seen:
                return read
        return -1

    def unordered_write(self, clock: Clock) -> int:
        """The last write where an action with `clock` does not come after it; -1 where it does, or there is none."""
        return self.write if self.write > clock[self.stream] else -1


class Memory:
    """The cells of an arena, addressed by extents."""

    def __init__(self, extents: Iterable[Extent]) -> None:
        """All bytes unused. Extents that no action can use (no bytes, negative id) are left out, as if unknown."""
        rows = [extent for extent in extents if extent.bytes > 0 and extent.id >= 0]
        ends = sorted({end for row in rows for end in (row.offset, row.offset + row.bytes)})
        number = {end: i for i, end in enumerate(ends)}
        self.span = {row.id: (number[row.offset], number[row.offset + row.bytes]) for row in rows}
        self._starts = bytearray(len(ends))
        self._cells = [Cell()] * len(ends)
        if ends:
            self._starts[0] = 1

    def cell(self, extent: int) -> Cell | None:
        """The extent's cell where its bytes are intact since a write through it, else None."""
        cell = self._cells[self.span[extent][0]]
        return cell if cell.owner == extent else None

    def history(self, extent: int) -> Iterator[Cell]:
        """All cells that the extent's bytes are in."""
        low, high = self.span[extent]
        at = self._starts.rfind(1, 0, low + 1)
        while at >= 0:
            yield self._cells[at]
            at = self._starts.find(1, at + 1, high)

    def forget(self, extent: int) -> None:
        """The extent's value is gone; who used its bytes is remembered."""
        cell = self.cell(extent)
        if cell is not None:
            cell.owner, cell.value = NOBODY, None

    def write(self, extent: int, value: str | None, action: int, clock: Clock, stream: int) -> int:
        """Writes the extent's bytes; the action that it should have waited for and did not, or -1."""
        cell = self.cell(extent)
        if cell is not None:
            unordered = cell.unordered(clock)
            cell.value, cell.write, cell.stream = value, action, stream
            cell.reads[0] = cell.reads[1] = cell.reads[2] = -1
            return unordered
        unordered = max((old.unordered(clock) for old in self.history(extent)), default=-1)
        self.place(extent, Cell(owner=extent, value=value, write=action, stream=stream))
        return unordered

    def place(self, extent: int, cell: Cell) -> None:
        """Makes `cell` the one cell of the extent's bytes; cells that stick out are cut and no longer intact."""
        low, high = self.span[extent]
        self._cut(low)
        self._cut(high)
        for at in self._inside(low, high):
            self._cells[at].owner = NOBODY
        self._starts[low + 1 : high] = bytes(high - low - 1)
        self._cells[low] = cell

    def _cut(self, at: int) -> None:
        if self._starts[at]:
            return
        cell = self._cells[self._starts.rfind(1, 0, at)]
        cell.owner, cell.value = NOBODY, None
        self._cells[at] = cell
        self._starts[at] = 1

    def _inside(self, low: int, high: int) -> Iterator[int]:
        at = low
        while at >= 0:
            yield at
            at = self._starts.find(1, at + 1, high)
