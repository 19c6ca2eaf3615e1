"""Dependencies between streams: which actions an action must wait for because they touch the same bytes.

Each stream runs its own actions in order, so of all earlier accesses to some bytes only the latest one on each stream
matters. Vector clocks leave out edges that others imply (Fidge 1988, Mattern 1989).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

COMPUTE, D2H, H2D = 0, 1, 2
NONE = (-1, -1, -1)
Marks = tuple[int, int, int]  # the latest action on each stream, -1 for none


def merge(a: Marks, b: Marks) -> Marks:
    """The later mark on each stream."""
    return (max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]))


class ByteMap:
    """Latest accesses by byte range: disjoint ranges, sorted; bytes never touched are absent."""

    def __init__(self) -> None:
        self._start: list[int] = []
        self._stop: list[int] = []
        self._marks: list[Marks] = []

    def get(self, start: int, stop: int) -> Marks:
        """The latest access on each stream to any byte of [start, stop)."""
        found = NONE
        for index in range(bisect_right(self._stop, start), bisect_left(self._start, stop)):
            found = merge(found, self._marks[index])
        return found

    def put(self, start: int, stop: int, marks: Marks) -> None:
        """Set [start, stop) to `marks`, which must include what was known of these bytes."""
        low, high = bisect_right(self._stop, start), bisect_left(self._start, stop)
        pieces: list[tuple[int, int, Marks]] = []
        if low < high and self._start[low] < start:
            pieces.append((self._start[low], start, self._marks[low]))
        pieces.append((start, stop, marks))
        if low < high and self._stop[high - 1] > stop:
            pieces.append((stop, self._stop[high - 1], self._marks[high - 1]))
        self._start[low:high] = [piece[0] for piece in pieces]
        self._stop[low:high] = [piece[1] for piece in pieces]
        self._marks[low:high] = [piece[2] for piece in pieces]


class Memory:
    """Accesses to the buffers of one arena (or slots of the host arena), by id, with reuse of bytes."""

    def __init__(self) -> None:
        self._bytes = ByteMap()
        self._any: dict[int, Marks] = {}
        self._write: dict[int, Marks] = {}

    def begin(self, key: int, start: int, stop: int) -> None:
        """The buffer's live interval begins: its first access waits for all that touched these bytes."""
        self._any[key] = self._write[key] = self._bytes.get(start, stop)

    def end(self, key: int, start: int, stop: int) -> None:
        """The buffer's live interval ends."""
        self._bytes.put(start, stop, self._any.pop(key))
        del self._write[key]

    def read(self, key: int) -> Marks:
        """What a read of the buffer must wait for."""
        return self._write[key]

    def write(self, key: int) -> Marks:
        """What a write of the buffer must wait for."""
        return self._any[key]

    def note(self, key: int, stream: int, action: int, *, write: bool) -> None:
        """Record an access."""
        mark = (action if stream == 0 else -1, action if stream == 1 else -1, action if stream == 2 else -1)
        self._any[key] = merge(self._any[key], mark)
        if write:
            self._write[key] = self._any[key]


class Clocks:
    """Vector clocks of the stream actions; turns what an action must wait for into the fewest `after` edges."""

    def __init__(self) -> None:
        self._tail = [NONE, NONE, NONE]
        self._clock: dict[int, Marks] = {}

    def order(self, action: int, stream: int, wait: Marks) -> list[int]:
        """The `after` list of `action` on `stream` that has to wait for `wait`; ascending."""
        known = self._tail[stream]
        after: list[int] = []
        for needed in sorted((w for s, w in enumerate(wait) if s != stream and w >= 0), reverse=True):
            other = wait.index(needed)
            if known[other] >= needed:
                continue
            after.append(needed)
            known = merge(known, self._clock[needed])
        own = list(known)
        own[stream] = action
        self._tail[stream] = self._clock[action] = (own[0], own[1], own[2])
        return after[::-1]
