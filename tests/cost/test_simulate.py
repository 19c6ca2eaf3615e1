"""Timelines worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from snplan.cost.device import Device, load_device
from snplan.cost.simulate import issue_times, simulate
from snplan.plan.model import Action, Algorithm, Alloc, Free, Offload, Prefetch, Recompute, Run

# 1000 B/us one way, 500 B/us each way when both run: a link with 1 GB/s in total; no latency.
LINK = replace(
    load_device("h200"),
    h2d_bytes_per_s=10**9,
    d2h_bytes_per_s=10**9,
    h2d_both_bytes_per_s=500 * 10**6,
    d2h_both_bytes_per_s=500 * 10**6,
    copy_latency_us=0,
    launch_us=7,
    copy_launch_us=2,
)
US = {"a": 100, "b": 30, "c": 5}
BYTES = {"x": 100_000, "y": 50_000, "z": 50_000}


def run(op: str, *after: int) -> Run:
    return Run(op=op, reads=[], writes=[], after=list(after))


def recompute(op: str, *after: int) -> Recompute:
    return Recompute(op=op, reads=[], writes=[], after=list(after))


def offload(tensor: str, *after: int) -> Offload:
    return Offload(tensor=tensor, buffer=0, slot=0, after=list(after))


def prefetch(tensor: str, *after: int) -> Prefetch:
    return Prefetch(tensor=tensor, slot=0, buffer=0, after=list(after))


def spans(actions: Sequence[Action], device: Device = LINK) -> list[tuple[int, int]]:
    timeline = simulate(actions, US, BYTES, device)
    return list(zip(timeline.start, timeline.end, strict=True))


def test_nothing() -> None:
    timeline = simulate([], US, BYTES, LINK)
    assert (timeline.start, timeline.end, timeline.step_time_us, timeline.stall_us) == ((), (), 0, 0)
    assert timeline.busy_us == {"compute": 0, "h2d": 0, "d2h": 0}


def test_a_chain_on_one_stream() -> None:
    timeline = simulate([run("a"), run("b"), recompute("c")], US, BYTES, LINK)
    assert timeline.start == (0, 100, 130)
    assert timeline.end == (100, 130, 135)
    assert timeline.step_time_us == 135
    assert timeline.stall_us == 0
    assert timeline.busy_us == {"compute": 135, "h2d": 0, "d2h": 0}


def test_actions_that_take_no_time() -> None:
    actions: list[Action] = [
        Alloc(buffer=0),
        run("a"),
        Free(buffer=0),
        Algorithm(op="b", engine=1, workspace=None),
        run("b"),
    ]
    assert spans(actions) == [(-1, -1), (0, 100), (-1, -1), (-1, -1), (100, 130)]


def test_only_instant_actions() -> None:
    assert simulate([Alloc(buffer=0), Free(buffer=0)], US, BYTES, LINK).step_time_us == 0


def test_an_offload_runs_beside_the_next_op() -> None:
    # x is written at 100; its 100,000 B take 100 us while b and c run.
    assert spans([run("a"), offload("x", 0), run("b"), run("c")]) == [(0, 100), (100, 200), (100, 130), (130, 135)]


def test_compute_stalls_for_a_prefetch() -> None:
    timeline = simulate([prefetch("x"), run("c"), run("b", 0), run("c")], US, BYTES, LINK)
    assert timeline.start == (0, 0, 100, 130)
    assert timeline.end == (100, 5, 130, 135)
    assert timeline.stall_us == 95
    assert timeline.busy_us == {"compute": 40, "h2d": 100, "d2h": 0}


def test_a_trailing_copy_counts_for_the_step_and_is_no_stall() -> None:
    timeline = simulate([run("c"), offload("x", 0)], US, BYTES, LINK)
    assert timeline.step_time_us == 105
    assert timeline.stall_us == 0


def test_copies_of_one_direction_queue() -> None:
    assert spans([offload("y"), offload("z"), offload("x")]) == [(0, 50), (50, 100), (100, 200)]


def test_both_directions_share_the_link() -> None:
    # Both run at 500 B/us until y's 50,000 B are done at 100; x has 50,000 B left and takes 50 us more alone.
    assert spans([offload("x"), prefetch("y")]) == [(0, 150), (0, 100)]


def test_a_copy_that_comes_later_slows_the_one_under_way() -> None:
    # c ends at 5. Until then x moved 5,000 B; then both at 500: y needs 100 us, until 105; x has 95,000 - 50,000 left.
    assert spans([run("c"), offload("x"), prefetch("y", 0)]) == [(0, 5), (0, 150), (5, 105)]


def test_link_with_full_duplex() -> None:
    duplex = replace(LINK, h2d_both_bytes_per_s=10**9, d2h_both_bytes_per_s=10**9)
    assert spans([offload("x"), prefetch("y")], duplex) == [(0, 100), (0, 50)]


def test_latency_delays_the_bytes_and_frees_the_link_for_the_other_direction() -> None:
    # x: bytes from 10. y waits for c, until 5, and its bytes begin at 15. 10..15 x alone: 5,000 B; then 50,000 B of y
    # take 100 us, until 115, x moves as much; 45,000 B of x remain.
    late = replace(LINK, copy_latency_us=10)
    assert spans([run("c"), offload("x"), prefetch("y", 0)], late) == [(0, 5), (0, 160), (5, 115)]


def test_a_256_mib_copy_at_12_gb_a_second_takes_22_4_ms() -> None:
    titan = replace(load_device("titan-xp"), copy_latency_us=0)
    timeline = simulate([offload("t")], {}, {"t": 256 << 20}, titan)
    assert timeline.step_time_us == 22_370  # 268,435,456 B / 12,000 B/us = 22,369.6 us


def test_contended_copies_of_256_mib() -> None:
    # Each way 10 GB/s when both run: 26,843.5 us for both.
    titan = replace(load_device("titan-xp"), copy_latency_us=0)
    timeline = simulate([offload("t"), prefetch("t")], {}, {"t": 256 << 20}, titan)
    assert timeline.end == (26_844, 26_844)


def test_ends_round_up_to_whole_microseconds() -> None:
    assert simulate([offload("t")], {}, {"t": 1}, LINK).end == (1,)
    assert simulate([offload("t")], {}, {"t": 1001}, LINK).end == (2,)
    assert simulate([offload("t")], {}, {"t": 0}, LINK).end == (0,)


def test_engines_decide_the_next_execution_only() -> None:
    def time(op: str, engine: int | None) -> int:
        return {None: 40, 1: 10, 2: 20}[engine]

    actions: list[Action] = [
        Algorithm(op="a", engine=1, workspace=None),
        run("a"),
        Algorithm(op="a", engine=2, workspace=None),
        run("b"),
        recompute("a"),
        recompute("a"),
    ]
    timeline = simulate(actions, time, {}, LINK)
    assert [timeline.end[i] - timeline.start[i] for i in (1, 3, 4, 5)] == [10, 40, 20, 40]


def test_eager_mode_waits_for_the_host() -> None:
    # Issued at 7 (c), 9 (offload), 16 (c), 23 (b): short ops run no faster than they are issued.
    actions: list[Action] = [run("c"), offload("y", 0), run("c"), run("b")]
    assert issue_times([0, 2, -1, 0, 1], LINK) == [7, 9, 9, 16, 18]
    eager = simulate(actions, US, BYTES, LINK, launch="eager")
    assert eager.start == (7, 12, 16, 23)
    assert eager.step_time_us == 62
    assert eager.stall_us == 7 + 4 + 2
    graph = simulate(actions, US, BYTES, LINK, launch="graph")
    assert graph.start == (0, 5, 5, 10)


def test_long_ops_hide_the_host() -> None:
    actions = [run("a"), run("a"), run("a")]
    assert simulate(actions, US, BYTES, LINK, launch="eager").step_time_us == 307


def test_edges_to_instant_actions_hold_nothing_up() -> None:
    assert spans([Alloc(buffer=0), run("c", 0), offload("y", 0)]) == [(-1, -1), (0, 5), (0, 50)]


def test_a_wait_for_ever_is_an_error() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        simulate([run("a", 1), offload("x", 0)], US, BYTES, LINK)


def test_a_stream_that_an_action_cannot_run_on() -> None:
    wrong = Offload(tensor="x", buffer=0, slot=0, after=[], stream="compute")
    with pytest.raises(ValueError, match="offload cannot run on stream 'compute'"):
        simulate([wrong], US, BYTES, LINK)
