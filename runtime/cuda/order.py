"""Which actions record an event and which events they wait for: the plan's `after` edges, less what order implies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from snplan.plan.model import Action, Offload, Prefetch, Recompute, Run

STREAMS = ("compute", "d2h", "h2d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """`waits[action]` are actions whose events the action's stream waits for; `records` are those that record one.

    `last` is the last action of each stream that has any: all is done when these are.
    """

    waits: Mapping[int, tuple[int, ...]]
    records: frozenset[int]
    last: Mapping[str, int]


def plan_edges(actions: Sequence[Action]) -> Edges:
    """The edges of a plan's actions.

    A stream waits only for the latest action of another stream among those listed, and not again for what it has
    waited for already: streams run in order, so nothing else is new to it.
    """
    known: dict[str, dict[str, int]] = {stream: dict.fromkeys(STREAMS, -1) for stream in STREAMS}
    waits: dict[int, tuple[int, ...]] = {}
    last: dict[str, int] = {}
    for number, action in enumerate(actions):
        if not isinstance(action, (Run, Recompute, Offload, Prefetch)):
            continue
        latest = _latest(action, actions)
        fresh = {stream: other for stream, other in latest.items() if other > known[action.stream][stream]}
        known[action.stream].update(fresh)
        if fresh:
            waits[number] = tuple(fresh.values())
        last[action.stream] = number
    return Edges(waits=waits, records=frozenset(other for found in waits.values() for other in found), last=last)


def _latest(action: Run | Recompute | Offload | Prefetch, actions: Sequence[Action]) -> dict[str, int]:
    """The latest action that `after` lists on each other stream."""
    latest: dict[str, int] = {}
    for other in action.after:
        earlier = actions[other]
        if isinstance(earlier, (Run, Recompute, Offload, Prefetch)) and earlier.stream != action.stream:
            latest[earlier.stream] = max(other, latest.get(earlier.stream, -1))
    return dict(sorted(latest.items()))
