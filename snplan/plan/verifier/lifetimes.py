"""Live intervals of buffers: rule L's overlaps and double allocations, rule P's peak."""

from __future__ import annotations

from collections.abc import Mapping

from snplan.plan.model import Extent


class LiveBuffers:
    """The buffers that are live at one time of the issue order, and the most bytes that were.

    As long as live buffers are disjoint, one that overlaps a new buffer is the last to start at or before it, or the
    first to start inside it; ends of extents are numbered so that both are one search in a byte array.
    """

    def __init__(self, buffers: Mapping[int, Extent], span: Mapping[int, tuple[int, int]]) -> None:
        """Nothing is live; `span` numbers both ends of each buffer, in the order of their offsets."""
        self.bytes = 0
        self.peak = 0
        self._size = {id: extent.bytes for id, extent in buffers.items()}
        self._span = span
        ends = 1 + max((high for _, high in span.values()), default=-1)
        self._starts = bytearray(ends)
        self._at = [0] * ends
        self._live: dict[int, None] = {}

    def __contains__(self, buffer: int) -> bool:
        return buffer in self._live

    @property
    def ids(self) -> list[int]:
        """Live buffers in the order in which they were born."""
        return list(self._live)

    def birth(self, buffer: int) -> int | None:
        """A live buffer that the new one overlaps, or None; the interval begins either way."""
        low, high = self._span[buffer]
        other = self._overlapped(low, high)
        self._live[buffer] = None
        self._starts[low] = 1
        self._at[low] = buffer
        self.bytes += self._size[buffer]
        self.peak = max(self.peak, self.bytes)
        return other

    def death(self, buffer: int) -> None:
        """The live buffer's interval ends."""
        del self._live[buffer]
        self._starts[self._span[buffer][0]] = 0
        self.bytes -= self._size[buffer]

    def _overlapped(self, low: int, high: int) -> int | None:
        at = self._starts.rfind(1, 0, low + 1)
        if at >= 0 and self._span[self._at[at]][1] > low:
            return self._at[at]
        at = self._starts.find(1, low + 1, high)
        return self._at[at] if at >= 0 else None
