"""The simulator against a plain event loop that shares no shortcut with it, and what must hold of every timeline."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snplan.cost.device import Device, load_device
from snplan.cost.replay import COMPUTE, D2H, H2D, INSTANT, Work, replay, step_time
from snplan.cost.simulate import LaunchMode, simulate
from snplan.plan.model import Action, Alloc, Offload, Prefetch, Run

H200 = load_device("h200")
LINKS = (
    H200,
    replace(H200, copy_latency_us=0),
    replace(H200, h2d_both_bytes_per_s=7_500_000_000, d2h_both_bytes_per_s=7_500_000_000),
    replace(
        H200, h2d_bytes_per_s=7, h2d_both_bytes_per_s=3, d2h_bytes_per_s=5, d2h_both_bytes_per_s=2, copy_latency_us=3
    ),
)


SCALE = 10**6


class EventLoop:
    """The oracle. Time moves from one event to the next on any stream; between two events no rate changes."""

    def __init__(self, work: Work, device: Device, release: Sequence[int]) -> None:
        self.work, self.device, self.release = work, device, release
        self.now = 0
        self.queues = {s: deque(i for i, stream in enumerate(work.streams) if stream == s) for s in (COMPUTE, H2D, D2H)}
        self.running: dict[int, int] = {}  # stream -> action
        self.left: dict[int, int] = {}  # stream -> scaled bytes that remain, or microseconds
        self.begin: dict[int, int] = {}  # stream -> when its action's bytes begin to move
        self.start = [-1] * len(work.streams)
        self.end = [-1] * len(work.streams)

    def run(self) -> tuple[list[int], list[int]]:
        """Start and end of each action."""
        while any(self.queues.values()) or self.running:
            self._start_ready()
            self._advance(self._next_event())
        return self.start, self.end

    def _start_ready(self) -> None:
        for stream, queue in self.queues.items():
            if stream in self.running or not queue or not self._ready(queue[0]) or self.release[queue[0]] > self.now:
                continue
            action = queue.popleft()
            self.running[stream] = action
            self.start[action] = self.now
            self.begin[stream] = self.now + (0 if stream == COMPUTE else self.device.copy_latency_us)
            self.left[stream] = self.work.amounts[action] * (1 if stream == COMPUTE else SCALE)

    def _ready(self, action: int) -> bool:
        return all(self.work.streams[i] == INSTANT or self.end[i] >= 0 for i in self.work.waits(action))

    def _rate(self, stream: int) -> int:
        """Scaled bytes (or, on the compute stream, microseconds) a microsecond."""
        if stream == COMPUTE:
            return 1
        other = D2H if stream == H2D else H2D
        both = other in self.running and self.begin[other] <= self.now
        way = self.device
        if stream == H2D:
            return way.h2d_both_bytes_per_s if both else way.h2d_bytes_per_s
        return way.d2h_both_bytes_per_s if both else way.d2h_bytes_per_s

    def _next_event(self) -> int:
        times = []
        for stream in self.running:
            waiting = self.begin[stream] > self.now
            times.append(self.begin[stream] if waiting else self.now - (-self.left[stream] // self._rate(stream)))
        for stream, queue in self.queues.items():
            if queue and stream not in self.running and self._ready(queue[0]):
                times.append(self.release[queue[0]])
        if not times:
            stuck = [queue[0] for queue in self.queues.values() if queue]
            raise ValueError(f"actions {stuck} wait for each other")
        return min(times)

    def _advance(self, to: int) -> None:
        moving = [stream for stream in self.running if self.begin[stream] <= self.now]
        moved = {stream: self._rate(stream) * (to - self.now) for stream in moving}
        self.now = to
        for stream in moving:
            self.left[stream] -= moved[stream]
            if self.left[stream] <= 0:
                self.end[self.running.pop(stream)] = to


@st.composite
def works(draw: st.DrawFn, largest: int = 24) -> Work:
    """Random actions whose edges point backward."""
    work = Work(streams=[], amounts=[], after_start=[0], after=[])
    for i in range(draw(st.integers(0, largest))):
        stream = draw(st.sampled_from((COMPUTE, COMPUTE, H2D, D2H, INSTANT)))
        amounts = (0, 1, 7, 100, 1000) if stream == COMPUTE else (0, 1, 55_500, 10**6, 10**7)
        work.streams.append(stream)
        work.amounts.append(0 if stream == INSTANT else draw(st.sampled_from(amounts)))
        if i and stream != INSTANT:
            work.after.extend(draw(st.lists(st.integers(max(0, i - 6), i - 1), max_size=3, unique=True)))
        work.after_start.append(len(work.after))
    return work


def as_actions(work: Work) -> tuple[list[Action], dict[str, int], dict[str, int]]:
    """The same work as plan records: actions, microseconds by op, bytes by tensor."""
    actions: list[Action] = []
    for i, stream in enumerate(work.streams):
        after = work.waits(i)
        if stream == COMPUTE:
            actions.append(Run(op=str(i), reads=[], writes=[], after=after))
        elif stream == D2H:
            actions.append(Offload(tensor=str(i), buffer=0, slot=0, after=after))
        elif stream == H2D:
            actions.append(Prefetch(tensor=str(i), slot=0, buffer=0, after=after))
        else:
            actions.append(Alloc(buffer=0))
    amounts = {str(i): amount for i, amount in enumerate(work.amounts)}
    return actions, amounts, amounts


def step(work: Work, device: Device) -> int:
    return step_time(work.streams, work.amounts, work.after_start, work.after, device)


@given(works(), st.sampled_from(LINKS))
@settings(max_examples=300, deadline=None)
def test_timelines_are_those_of_the_event_loop(work: Work, device: Device) -> None:
    expected = EventLoop(work, device, [0] * len(work.streams)).run()
    assert replay(work, device) == expected
    assert step(work, device) == max((0, *expected[1]))


@given(works(), st.sampled_from(LINKS), st.data())
@settings(max_examples=150, deadline=None)
def test_timelines_with_release_times_are_those_of_the_event_loop(
    work: Work, device: Device, data: st.DataObject
) -> None:
    count = len(work.streams)
    release = data.draw(st.lists(st.integers(0, 500), min_size=count, max_size=count))
    assert replay(work, device, release) == EventLoop(work, device, release).run()


@given(works(), st.sampled_from(LINKS), st.sampled_from(("graph", "eager")))
@settings(max_examples=100, deadline=None)
def test_plan_records_and_arrays_agree(work: Work, device: Device, launch: LaunchMode) -> None:
    actions, op_us, tensor_bytes = as_actions(work)
    timeline = simulate(actions, op_us, tensor_bytes, device, launch=launch)
    cost = {INSTANT: 0, COMPUTE: device.launch_us, H2D: device.copy_launch_us, D2H: device.copy_launch_us}
    issued = np.cumsum([cost[stream] for stream in work.streams], dtype=np.int64)
    start, end = replay(work, device, issued.tolist() if launch == "eager" else None)
    assert (timeline.start, timeline.end) == (tuple(start), tuple(end))
    release = issued if launch == "eager" else None
    total = step_time(work.streams, work.amounts, work.after_start, work.after, device, release=release)
    assert timeline.step_time_us == total


@given(works(), st.sampled_from(LINKS))
@settings(max_examples=100, deadline=None)
def test_timelines_keep_order_and_edges(work: Work, device: Device) -> None:
    start, end = replay(work, device)
    last = {COMPUTE: 0, H2D: 0, D2H: 0}
    for i, stream in enumerate(work.streams):
        if stream == INSTANT:
            assert (start[i], end[i]) == (-1, -1)
            continue
        waits = [end[j] for j in work.waits(i)]
        assert start[i] == max([last[stream], *waits, 0])
        last[stream] = end[i]
        if stream == COMPUTE:
            assert end[i] - start[i] == work.amounts[i]
            continue
        alone = device.h2d_bytes_per_s if stream == H2D else device.d2h_bytes_per_s
        both = device.h2d_both_bytes_per_s if stream == H2D else device.d2h_both_bytes_per_s
        took = end[i] - start[i] - device.copy_latency_us
        assert -(-work.amounts[i] * 10**6 // alone) <= took <= -(-work.amounts[i] * 10**6 // both)


@given(works())
@settings(max_examples=100, deadline=None)
def test_the_step_takes_at_least_each_streams_work(work: Work) -> None:
    total = step(work, H200)
    assert total >= sum(amount for stream, amount in zip(work.streams, work.amounts, strict=True) if stream == COMPUTE)
    moved = sum(amount for stream, amount in zip(work.streams, work.amounts, strict=True) if stream == D2H)
    assert total * H200.d2h_bytes_per_s >= moved * 10**6


@given(works(), st.integers(2, 50))
@settings(max_examples=100, deadline=None)
def test_without_contention_a_faster_link_is_never_slower(work: Work, factor: int) -> None:
    slow = replace(H200, h2d_both_bytes_per_s=H200.h2d_bytes_per_s, d2h_both_bytes_per_s=H200.d2h_bytes_per_s)
    fast = replace(
        slow,
        **{
            f"{way}{both}_bytes_per_s": getattr(slow, f"{way}_bytes_per_s") * factor
            for way in ("h2d", "d2h")
            for both in ("", "_both")
        },
    )
    assert step(work, fast) <= step(work, slow)


@given(works(), st.data())
@settings(max_examples=100, deadline=None)
def test_without_contention_a_shorter_op_is_never_slower(work: Work, data: st.DataObject) -> None:
    link = replace(H200, h2d_both_bytes_per_s=H200.h2d_bytes_per_s, d2h_both_bytes_per_s=H200.d2h_bytes_per_s)
    shorter = replace(work, amounts=[data.draw(st.integers(0, amount)) for amount in work.amounts])
    assert step(shorter, link) <= step(work, link)


@given(st.lists(st.integers(0, 10**8), max_size=12), st.lists(st.integers(0, 10**8), max_size=12))
@settings(max_examples=50, deadline=None)
def test_contention_never_helps_independent_copies(down: list[int], up: list[int]) -> None:
    streams = [D2H] * len(down) + [H2D] * len(up)
    work = Work(streams=streams, amounts=down + up, after_start=[0] * (len(streams) + 1), after=[])
    free = replace(H200, h2d_both_bytes_per_s=H200.h2d_bytes_per_s, d2h_both_bytes_per_s=H200.d2h_bytes_per_s)
    assert step(work, free) <= step(work, H200)


def test_arrays_are_taken_as_well_as_lists() -> None:
    streams, amounts = np.array([COMPUTE, D2H, COMPUTE]), np.array([10, 55_300, 10])
    device = replace(H200, copy_latency_us=0)
    assert step_time(streams, amounts, np.array([0, 0, 1, 2]), np.array([0, 1]), device) == 21


def test_nothing_takes_no_time() -> None:
    assert step_time([], [], [0], [], H200) == 0


def test_release_times_hold_actions_back() -> None:
    assert step_time([COMPUTE, COMPUTE], [10, 10], [0, 0, 0], [], H200, release=[0, 50]) == 60


def test_a_circle_is_an_error() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        step_time([COMPUTE, D2H], [1, 1], [0, 1, 2], [1, 0], H200)


def test_a_hundred_thousand_actions_in_blocks() -> None:
    # 20,000 blocks of op, op, offload, op, prefetch. Both directions run at 48,500 B/us: 10 us a copy each way, beside
    # 15 us of ops a block: the compute stream never waits, and the last copies end before its last op.
    count = 20_000
    streams = [COMPUTE, COMPUTE, D2H, COMPUTE, H2D] * count
    amounts = [5, 5, 485_000, 5, 485_000] * count
    after_start = [0]
    after: list[int] = []
    for block in range(count):
        base = 5 * block
        for edges in ([], [], [base], [], [base]):
            after.extend(edges)
            after_start.append(len(after))
    device = replace(H200, copy_latency_us=0)
    assert step_time(streams, amounts, after_start, after, device) == 15 * count
