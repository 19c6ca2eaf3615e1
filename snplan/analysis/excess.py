"""Numbers by position of which spans are changed and asked for their maximum, many times over.

Positions are in blocks, and each block has its maximum and an amount that is added to all of it. So a span costs about
as much as two blocks and one number for each block between them, however long it is. Where numbers only fall and all
that is asked is whether one of a span is above zero, `Over` is quicker.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BITS = 9
BLOCK = 1 << BITS
NEVER = 1 << 62


class Excess:
    """Bytes over a limit at each position."""

    def __init__(self, values: npt.NDArray[np.int64]) -> None:
        blocks = (values.size >> BITS) + 1
        self._cells = np.full(blocks << BITS, np.iinfo(np.int64).min // 2, np.int64)
        self._cells[: values.size] = values
        self._top = self._cells.reshape(blocks, BLOCK).max(axis=1)
        self._added = np.zeros(blocks, np.int64)

    def most(self, start: int, stop: int) -> int:
        """The maximum in [start, stop), which must not be empty."""
        first, last = start >> BITS, (stop - 1) >> BITS
        if first == last:
            return int(self._cells[start:stop].max() + self._added[first])
        left = self._cells[start : (first + 1) << BITS].max() + self._added[first]
        right = self._cells[last << BITS : stop].max() + self._added[last]
        middle = self._top[first + 1 : last].max() if last - first > 1 else left
        return max(int(left), int(right), int(middle))

    def has_room(self, start: int, stop: int, amount: int) -> bool:
        """Whether `amount` more at all of [start, stop), which must not be empty, leaves no position over its limit."""
        first, last = start >> BITS, (stop - 1) >> BITS
        if last - first > 1 and self._top[first + 1 : last].max() > -amount:
            return False
        middle = min(stop, (first + 1) << BITS)
        if self._cells[start:middle].max() + self._added[first] > -amount:
            return False
        return first == last or bool(self._cells[last << BITS : stop].max() + self._added[last] <= -amount)

    def add(self, start: int, stop: int, amount: int) -> None:
        """Add `amount` to all of [start, stop)."""
        if start >= stop:
            return
        first, last = start >> BITS, (stop - 1) >> BITS
        if first == last:
            self._part(first, start, stop, amount)
            return
        self._part(first, start, (first + 1) << BITS, amount)
        self._part(last, last << BITS, stop, amount)
        self._added[first + 1 : last] += amount
        self._top[first + 1 : last] += amount

    def _part(self, block: int, start: int, stop: int, amount: int) -> None:
        """Add to positions inside one block."""
        self._cells[start:stop] += amount
        self._top[block] = self._cells[block << BITS : (block + 1) << BITS].max() + self._added[block]


class Over:
    """Positions over their limit, while the bytes at them fall.

    Each position points to the next one that is over, with shortcuts that are made while they are followed (as in
    union-find). A block is looked through when bytes have fallen by as much as the least that one of it was over.
    """

    def __init__(self, excess: npt.NDArray[np.int64]) -> None:
        count, blocks = excess.size, (excess.size >> BITS) + 1
        self._cells = np.zeros(blocks << BITS, np.int64)
        self._cells[:count] = excess
        self._fallen = np.zeros(blocks, np.int64)
        self._over = self._cells > 0
        self._least = np.where(self._over, self._cells, NEVER).reshape(blocks, BLOCK).min(axis=1)
        self._next = (np.arange(count + 1) + np.append(excess <= 0, False)).tolist()

    def any(self, start: int, stop: int) -> bool:
        """Whether a position of [start, stop) is over its limit."""
        following = self._next
        while following[start] != start:
            following[start] = start = following[following[start]]
        return start < stop

    def fall(self, start: int, stop: int, amount: int) -> None:
        """Take `amount` from all of [start, stop)."""
        if start >= stop:
            return
        first, last = start >> BITS, (stop - 1) >> BITS
        if first == last:
            self._part(first, start, stop, amount)
            return
        self._part(first, start, (first + 1) << BITS, amount)
        self._part(last, last << BITS, stop, amount)
        self._fallen[first + 1 : last] += amount
        least = self._least[first + 1 : last]
        least -= amount
        if last - first > 1 and least.min() <= 0:
            for block in np.flatnonzero(least <= 0).tolist():
                self._look(first + 1 + block)

    def _part(self, block: int, start: int, stop: int, amount: int) -> None:
        """Take from positions inside one block."""
        self._cells[start:stop] -= amount
        self._least[block] -= amount
        if self._least[block] <= 0:
            self._look(block)

    def _look(self, block: int) -> None:
        """Find the positions of a block that are not over any more, and the least that the others are over."""
        start, stop = block << BITS, (block + 1) << BITS
        excess, over = self._cells[start:stop] - self._fallen[block], self._over[start:stop]
        for position in (start + np.flatnonzero(over & (excess <= 0))).tolist():
            self._next[position] = position + 1
        over &= excess > 0
        self._least[block] = excess[over].min(initial=NEVER)
