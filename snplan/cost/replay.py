"""The simulator's loop, over plain arrays: fast enough for a planner to call it again and again.

Only copies make events here: between two of them the compute stream is drained as far as it goes, since its actions'
times do not depend on anything that is yet to happen once all they wait for has ended. What stays blocked waits for a
copy that is under way, hence for a later event; so events are met in the order of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from snplan.cost.pools import Link

INSTANT, COMPUTE, H2D, D2H = -1, 0, 1, 2
_SCALE = 10**6  # a rate of 1 B/s moves one scaled byte a microsecond
_FAR = 1 << 62

Numbers = Sequence[int] | np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Actions as arrays, indexed by action: stream (-1: takes no time), microseconds on the compute stream or bytes on
    the others, and the actions to wait for as rows of a compressed matrix (`after[after_start[i]:after_start[i + 1]]`).

    `links` gives for actions that copy over another link than the device's own its number in `replay`'s `pools`.
    """

    streams: list[int]
    amounts: list[int]
    after_start: list[int]
    after: list[int]
    links: dict[int, int] = field(default_factory=dict)

    def waits(self, action: int) -> list[int]:
        """The actions that `action` waits for beside those of its own stream."""
        return self.after[self.after_start[action] : self.after_start[action + 1]]


def step_time(
    streams: Numbers,
    amounts: Numbers,
    after_start: Numbers,
    after: Numbers,
    device: Link,
    release: Numbers | None = None,
) -> int:
    """Microseconds until the last action ends; arguments as the fields of `Work`, `release` as for `replay`."""
    work = Work(streams=_ints(streams), amounts=_ints(amounts), after_start=_ints(after_start), after=_ints(after))
    return max((0, *replay(work, device, None if release is None else _ints(release))[1]))


def replay(
    work: Work, device: Link, release: Sequence[int] | None = None, pools: Sequence[Link] = ()
) -> tuple[list[int], list[int]]:
    """Start and end of each action in microseconds (-1 where it takes no time).

    `release` gives times before which actions cannot start, `pools` the links that `work.links` names; copies share
    what a link has only with copies over the same link. Raises ValueError when actions wait for each other.
    """
    count = len(work.streams)
    end = [-1 if stream != INSTANT else 0 for stream in work.streams]
    start = [-1] * count
    release = release if release is not None else [0] * count
    kernels = _Kernels(work, start, end, release)
    over = (device, *pools)
    links = (_Queued(work, H2D, over, start, end, release), _Queued(work, D2H, over, start, end, release))
    now = 0
    while True:
        kernels.drain()
        for link in links:
            link.load()
        event = min(links[0].event(now, links[1]), links[1].event(now, links[0]))
        if event == _FAR:
            break
        rates = [link.rate(now, other) for link, other in (links, links[::-1])]
        for link, rate in zip(links, rates, strict=True):
            link.move(now, event, rate)
        now = event
    if any(queue.next < len(queue.order) for queue in (kernels, *links)):
        raise ValueError("actions wait for each other")
    for i, stream in enumerate(work.streams):
        if stream == INSTANT:
            end[i] = -1
    return start, end


class _Queue:
    """Actions of one stream in order; `free` is when the stream is done with those before `next`."""

    __slots__ = ("after", "after_start", "amounts", "end", "free", "next", "order", "release", "start")

    def __init__(self, work: Work, stream: int, start: list[int], end: list[int], release: Sequence[int]) -> None:
        self.order = [i for i, s in enumerate(work.streams) if s == stream]
        self.amounts, self.after_start, self.after = work.amounts, work.after_start, work.after
        self.start, self.end, self.release = start, end, release
        self.next = self.free = 0


class _Kernels(_Queue):
    """The compute stream."""

    __slots__ = ()

    def __init__(self, work: Work, start: list[int], end: list[int], release: Sequence[int]) -> None:
        super().__init__(work, COMPUTE, start, end, release)

    def drain(self) -> None:
        """Time actions until one waits for something that has not ended yet."""
        end, after, after_start, amounts, release = self.end, self.after, self.after_start, self.amounts, self.release
        free = self.free
        for at in range(self.next, len(self.order)):
            i = self.order[at]
            time = free if free > release[i] else release[i]
            for j in after[after_start[i] : after_start[i + 1]]:
                if end[j] > time:
                    time = end[j]
                elif end[j] < 0:
                    self.next, self.free = at, free
                    return
            self.start[i] = time
            end[i] = free = time + amounts[i]
        self.next, self.free = len(self.order), free


class _Queued(_Queue):
    """One direction of copies: `begin` is when the loaded copy's bytes begin to move, `left` the scaled bytes to go.

    `link` is the number of the link that it runs over, 0 for the device's own; `rates` has those of each link.
    """

    __slots__ = ("begin", "left", "link", "links", "loaded", "rates")

    def __init__(
        self,
        work: Work,
        stream: int,
        over: Sequence[Link],
        start: list[int],
        end: list[int],
        release: Sequence[int],
    ) -> None:
        super().__init__(work, stream, start, end, release)
        self.rates = [_rates(link, stream) for link in over]
        self.links = work.links
        self.link = 0
        self.loaded = False
        self.begin = _FAR
        self.left = 0

    def load(self) -> None:
        """Take up the next copy if none is loaded and all that it waits for has ended."""
        if self.loaded or self.next == len(self.order):
            return
        i = self.order[self.next]
        time = max(self.free, self.release[i])
        for j in self.after[self.after_start[i] : self.after_start[i + 1]]:
            if self.end[j] < 0:
                return
            time = max(time, self.end[j])
        self.loaded = True
        self.start[i] = time
        self.link = self.links[i] + 1 if self.links else 0
        self.begin = time + self.rates[self.link][2]
        self.left = self.amounts[i] * _SCALE

    def rate(self, now: int, other: _Queued) -> int:
        """Scaled bytes a microsecond at this moment."""
        alone, both, _ = self.rates[self.link]
        return both if other.loaded and other.begin <= now and other.link == self.link else alone

    def event(self, now: int, other: _Queued) -> int:
        """When the loaded copy begins to move bytes or, if it does, ends at the present rates."""
        if not self.loaded:
            return _FAR
        return self.begin if self.begin > now else now - (-self.left // self.rate(now, other))

    def move(self, now: int, to: int, rate: int) -> None:
        """Move bytes from `now` to `to`; at the last of them the copy ends."""
        if not self.loaded or self.begin > now:
            return
        self.left -= rate * (to - now)
        if self.left > 0:
            return
        self.end[self.order[self.next]] = self.free = to
        self.next += 1
        self.loaded = False


def _rates(link: Link, stream: int) -> tuple[int, int, int]:
    """Bytes a second alone and while both directions run, and the latency in microseconds."""
    if stream == H2D:
        return link.h2d_bytes_per_s, link.h2d_both_bytes_per_s, link.copy_latency_us
    return link.d2h_bytes_per_s, link.d2h_both_bytes_per_s, link.copy_latency_us


def _ints(values: Numbers) -> list[int]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)
