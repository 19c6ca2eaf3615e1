"""Dependencies between streams: which actions an action must wait for because they touch the same bytes.

Each stream runs its own actions in order, so of all earlier accesses to some bytes only the latest one on each stream
matters. Vector clocks leave out edges that others imply (Fidge 1988, Mattern 1989).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

COMPUTE, D2H, H2D = 0, 1, 2
_OTHERS = ((D2H, H2D), (COMPUTE, H2D), (COMPUTE, D2H))
NONE = (-1, -1, -1)
Marks = tuple[int, int, int]  # the latest action on each stream, -1 for none


def merge(a: Marks, b: Marks) -> Marks:
    """The later mark on each stream."""
    a0, a1, a2 = a
    b0, b1, b2 = b
    return (a0 if a0 > b0 else b0, a1 if a1 > b1 else b1, a2 if a2 > b2 else b2)


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
        """Record an access; actions come in ascending order, so it is the latest on its stream."""
        compute, d2h, h2d = self._any[key]
        if stream == COMPUTE:
            marks = (action, d2h, h2d)
        else:
            marks = (compute, action, h2d) if stream == D2H else (compute, d2h, action)
        self._any[key] = marks
        if write:
            self._write[key] = marks


class Clocks:
    """Vector clocks of the stream actions; turns what an action must wait for into the fewest `after` edges."""

    def __init__(self) -> None:
        self._tail = [NONE, NONE, NONE]
        self._clock: dict[int, Marks] = {}

    def order(self, action: int, stream: int, wait: Marks) -> list[int]:
        """The `after` list of `action` on `stream` that has to wait for `wait`; ascending."""
        known = self._tail[stream]
        after: list[int] = []
        unknown = [(wait[other], other) for other in _OTHERS[stream] if wait[other] > known[other]]
        for needed, other in sorted(unknown, reverse=True):
            if known[other] < needed:
                after.append(needed)
                known = merge(known, self._clock[needed])
        own = list(known)
        own[stream] = action
        self._tail[stream] = self._clock[action] = (own[0], own[1], own[2])
        return after[::-1]
