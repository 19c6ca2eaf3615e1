"""The order of stream actions: stream order and `after` edges as vector clocks (rule F for what makes no sense)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from snplan.plan.model import Action, Offload, Prefetch, Recompute, Run
from snplan.plan.verifier.findings import Findings

STREAMS = ("compute", "d2h", "h2d")
Clock: TypeAlias = tuple[int, int, int]
"""For each stream the last action that is finished before an action starts, or is it; -1: none."""

_STREAM_OF: dict[type[Action], int] = {Run: 0, Recompute: 0, Offload: 1, Prefetch: 2}


def stream_of(action: Action) -> int | None:
    """Index in STREAMS of the stream that an action runs on; None for those that only the issue order orders."""
    return _STREAM_OF.get(type(action))


def clocks(actions: Sequence[Action], found: Findings) -> list[Clock | None]:
    """The clock of each stream action, None for the others (after Fidge and Mattern's vector clocks).

    As every edge points back and each stream runs in issue order, one pass suffices and no cycle, hence no deadlock,
    can be written down. Reports edges that point elsewhere and actions on a stream that is not theirs.
    """
    result: list[Clock | None] = []
    last: list[Clock] = [(-1, -1, -1)] * len(STREAMS)
    for i, action in enumerate(actions):
        if not isinstance(action, Run | Recompute | Offload | Prefetch):
            result.append(None)
            continue
        stream = _STREAM_OF[type(action)]
        if action.stream != STREAMS[stream]:
            found.at(i, "F", f"runs on stream {action.stream!r} instead of {STREAMS[stream]!r}")
        clock = last[stream]
        for edge in action.after:
            seen = result[edge] if 0 <= edge < i else None
            if seen is None:
                found.at(i, "F", f"waits for action {edge}, which is not an earlier action of a stream")
                continue
            clock = (max(clock[0], seen[0]), max(clock[1], seen[1]), max(clock[2], seen[2]))
        clock = (i if stream == 0 else clock[0], i if stream == 1 else clock[1], i if stream == 2 else clock[2])
        last[stream] = clock
        result.append(clock)
    return result
