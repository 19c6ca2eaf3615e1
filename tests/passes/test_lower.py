"""Candidates placed lower: as fast as before, in the intervals in which memory is really held."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from passes.test_random_plans import DEVICE, RELAXED, indexed
from property.graphs import forwards
from tests_support import Line, indexed_of

from snplan.analysis.floor import floor
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import build_schedule
from snplan.arena.problem import make_problem, validate
from snplan.ir import Forward, Phase, Role
from snplan.passes.layout import Layout, make_layout
from snplan.passes.lower import held, lowered
from snplan.passes.realise import Candidate, finish, place, step_costs
from snplan.passes.search import Search, keep_all_candidate

GRANULE = 512
BACKWARD = Phase.BACKWARD
LINK = replace(
    DEVICE,
    copy_latency_us=2,
    d2h_bytes_per_s=512_000_000,
    d2h_both_bytes_per_s=512_000_000,
    h2d_bytes_per_s=512_000_000,
    h2d_both_bytes_per_s=512_000_000,
)


def one_evicted() -> Candidate:
    """a (one granule) leaves after op 0 and is back for op 4; ops take 1 us, copies 2 + 1 us: to the end of op 3."""
    lines = [
        Line(name="fa", reads=("x",), writes=("a",), us=1),
        Line(name="fb", reads=("x",), writes=("b",), us=1),
        Line(name="fc", reads=("b",), writes=("c",), us=1),
        Line(name="gc", reads=("c",), writes=("dc",), phase=BACKWARD, us=1),
        Line(name="ga", reads=("a", "dc"), writes=("dx",), phase=BACKWARD, us=1),
    ]
    names = ("x", "a", "b", "c", "dc", "dx")
    step = indexed_of(lines, granules=dict.fromkeys(names, 1), sources={"x": Role.INPUT}, outputs=("dx",))
    residency = Residency(build_schedule(step))
    a = next(v for v, value in enumerate(residency.schedule.values) if step.names[value.tensor] == "a")
    residency.evict(a, 0)
    layout = make_layout(residency, 8 * GRANULE, lambda size: 0)
    return finish(layout, [GRANULE * i for i in range(len(layout.buffers))], step_costs(step, LINK))


def test_memory_is_held_until_the_copy_out_of_it_is_done() -> None:
    candidate = one_evicted()  # compute 0 1 2 3 and 7 to 8 us, offload 1 to 4 us, prefetch 4 to 7 us
    (out,), (back,) = candidate.layout.offloads, candidate.layout.prefetches
    assert candidate.step_us == 8
    intervals = held(candidate)
    assert intervals[out.buffer] == (0, 4)
    assert intervals[back.buffer] == (4, 8)
    at, until = (0, 1, 2, 3, 7), (1, 2, 3, 4, 8)
    others = [i for i in range(len(intervals)) if i not in (out.buffer, back.buffer)]
    buffers = candidate.layout.buffers
    assert [intervals[i] for i in others] == [(at[buffers[i].start], until[buffers[i].stop - 1]) for i in others]


@given(forward=forwards(), share=st.sampled_from((0.1, 0.3, 0.5, 0.8)))
@RELAXED
def test_a_candidate_placed_lower_is_lower_and_no_slower(forward: Forward, share: float) -> None:
    step = indexed(forward)
    costs, lowest = step_costs(step, DEVICE), floor(step)
    everything = keep_all_candidate(step, costs)
    budget = int(lowest.bytes + share * (everything.arena_bytes - lowest.bytes))
    candidate = Search(step=step, costs=costs, budget=budget, floor=lowest).run(everything)
    assert candidate is not None
    layout = candidate.layout
    high = finish(layout, place_apart(layout), costs)
    lower = lowered(high, costs)
    assert lower.step_us <= high.step_us
    assert lower.arena_bytes <= high.arena_bytes
    positions = make_problem([(b.start, b.stop) for b in layout.buffers], [b.size for b in layout.buffers])
    assert validate(positions, np.array(lower.offsets)) is None
    offsets = place(layout, None, 0.0, held(high))
    assert (offsets is None) == bool(layout.tied())
    assert offsets is None or validate(positions, np.array(offsets)) is None


def place_apart(layout: Layout) -> list[int]:
    """An address of its own for each buffer."""
    return list(accumulate((buffer.size for buffer in layout.buffers[:-1]), initial=0))
