"""A placed candidate lower in the arena, where that costs no time.

Live bytes count by position, and a buffer may be given up before the copy out of it is done: what takes its place waits
for the copy. So the same live intervals at other addresses can be slower. Where they are, buffers are placed by the
intervals in which the candidate's timeline really has them, and nothing waits that did not wait before.
"""

from __future__ import annotations

from snplan.passes.realise import Candidate, Costs, Intervals, finish, place
from snplan.plan.model import Offload, Prefetch, Recompute, Run

LOWER_EFFORT = 0.2
CLOSE_EFFORT, CLOSE = 3.0, 0.004  # where more of the arena than that is lost to fragmentation


def lowered(candidate: Candidate, costs: Costs) -> Candidate:
    """`candidate` placed lower where that is possible and costs no time: as low as can be, or else nearly so."""
    live = candidate.body.peak_live_bytes
    for goal, effort in ((None, LOWER_EFFORT), (live + int(live * CLOSE), CLOSE_EFFORT)):
        if candidate.arena_bytes <= (goal or live):
            break
        candidate = _placed_lower(candidate, costs, goal, effort)
    return candidate


def _placed_lower(candidate: Candidate, costs: Costs, goal: int | None, effort: float) -> Candidate:
    """`candidate` within `goal` bytes (None: as low as found), or as it is where that is no lower, or slower."""
    for intervals in (None, held(candidate)):
        offsets = place(candidate.layout, goal, effort, intervals)
        if offsets is None:
            break
        found = finish(candidate.layout, offsets, costs)
        if found.arena_bytes >= candidate.arena_bytes:
            break
        if found.step_us <= candidate.step_us:
            return found
    return candidate


def held(candidate: Candidate) -> Intervals:
    """Microseconds `[start, stop)` in which each buffer is live or a copy out of it or into it is under way.

    Buffers that are live at one position are so at one time.
    """
    timeline, actions = candidate.timeline, candidate.body.actions
    ran = [i for i, action in enumerate(actions) if isinstance(action, Run | Recompute)]
    found = [(timeline.start[ran[b.start]], timeline.end[ran[b.stop - 1]]) for b in candidate.layout.buffers]
    for i, action in enumerate(actions):
        if isinstance(action, Offload | Prefetch):
            start, stop = found[action.buffer]
            found[action.buffer] = min(start, timeline.start[i]), max(stop, timeline.end[i])
    return found
