"""Where the readers of one tensor run while groups of ops merge: first and last place, at the cost of a heap."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Collection, Iterable

NOWHERE = sys.maxsize
"""Past every place."""


class Places:
    """Places of the readers of one tensor.

    `root` leads a place to that of the group which took it in: itself, until then. Places that were taken in leave the
    heaps when they come to the top, so that a look costs log n on average however many readers merge.
    """

    def __init__(self, places: Iterable[int], root: Callable[[int], int]) -> None:
        self._root = root
        self._ascending = sorted({*places})
        self._descending = [-place for place in reversed(self._ascending)]

    def add(self, place: int) -> None:
        """Note that a group which reads the tensor runs at `place` from now on."""
        heapq.heappush(self._ascending, place)
        heapq.heappush(self._descending, -place)

    def last(self) -> int:
        """The last place; raises IndexError where there is none."""
        while self._root(-self._descending[0]) != -self._descending[0]:
            heapq.heappop(self._descending)
        return -self._descending[0]

    def first(self, *, besides: Collection[int]) -> int:
        """The first place that is not one of `besides`; NOWHERE where there is none."""
        passed: set[int] = set()
        while self._ascending:
            place = self._ascending[0]
            if place not in besides and self._root(place) == place:
                break
            if self._root(place) == place:
                passed.add(place)
            heapq.heappop(self._ascending)
        found = self._ascending[0] if self._ascending else NOWHERE
        for place in passed:
            heapq.heappush(self._ascending, place)
        return found
