"""Numbers by position of which spans are changed and asked for their maximum, many times over.

Positions are in blocks, and each block has its maximum and an amount that is added to all of it. So a span costs about
as much as two blocks and one number for each block between them, however long it is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BITS = 9
BLOCK = 1 << BITS


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
        found = max(
            self._cells[start : (first + 1) << BITS].max() + self._added[first],
            self._cells[last << BITS : stop].max() + self._added[last],
        )
        if last - first > 1:
            found = max(found, self._top[first + 1 : last].max())
        return int(found)

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
