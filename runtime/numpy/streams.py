"""Streams as threads: each executes its actions in order and waits for what they say they come after.

Used to show that a plan's order, and nothing about timing, makes its results: random delays before actions, and a
deadlock is found (no stream can go on) and named, not waited for.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from snplan.errors import RunError
from snplan.runtime.numpy.bind import Bound, BoundRun

STREAMS = ("compute", "d2h", "h2d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Random waits of up to `seconds` before actions on `streams`, the same ones for the same `seed`."""

    seed: int = 0
    seconds: float = 0.002
    streams: tuple[str, ...] = STREAMS


def describe(bound: Bound) -> str:
    """One action for messages: its id, what it does, and on which stream."""
    what = f"op {bound.call.op.name}" if isinstance(bound, BoundRun) else bound.what
    return f"action {bound.action} ({what}, stream {bound.stream})"


class StreamPool:
    """One thread a stream. `issue` queues actions; `drain` waits until all are done and raises what failed."""

    def __init__(
        self, actions: Mapping[int, Bound], execute: Callable[[Bound], None], *, delays: Delays | None, timeout: float
    ) -> None:
        self._actions = actions
        self._execute = execute
        self._timeout = timeout
        self._delays = delays
        self._change = threading.Condition()
        self._queues: dict[str, deque[int]] = {stream: deque() for stream in STREAMS}
        self._done: set[int] = set()
        self._waiting: dict[str, int] = {}
        self._issuing = True
        self._closed = False
        self._failure: BaseException | None = None
        self._threads = [threading.Thread(target=self._work, args=(stream,), daemon=True) for stream in STREAMS]
        for thread in self._threads:
            thread.start()

    def begin(self) -> None:
        """A step starts: nothing is done yet."""
        with self._change:
            self._done.clear()
            self._issuing = True

    def issue(self, action: int) -> None:
        """Queue an action on its stream."""
        with self._change:
            self._queues[self._actions[action].stream].append(action)
            self._change.notify_all()

    def drain(self) -> None:
        """Wait for all queued actions. Raises what one raised, or RunError (SNP-R005) naming one that cannot start."""
        with self._change:
            self._issuing = False
            self._find_deadlock()
            self._change.notify_all()
            while self._failure is None and self._left():
                before = self._left()
                if not self._change.wait_for(partial(self._moved_on, before), self._timeout):
                    self._failure = self._stuck("does not go on", f"no action ended in {self._timeout:g} s")
            failure = self._failure
        if failure is not None:
            self.close()
            raise failure

    def _left(self) -> int:
        return sum(map(len, self._queues.values()))

    def _moved_on(self, before: int) -> bool:
        return self._failure is not None or self._left() < before

    def close(self) -> None:
        """End the threads; an action in progress ends first."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(self._timeout)

    def _work(self, stream: str) -> None:
        queue = self._queues[stream]
        # Seeds by stream, so that how threads take turns does not change the waits.
        dice = random.Random(f"{self._delays.seed if self._delays else 0} {stream}")
        while True:
            with self._change:
                self._change.wait_for(lambda: queue or self._closed)
                if self._closed:
                    return
                bound = self._actions[queue[0]]
                if not self._ready(stream, bound):
                    return
            try:
                if self._delays is not None and stream in self._delays.streams:
                    time.sleep(dice.random() * self._delays.seconds)
                self._execute(bound)
            except BaseException as error:
                self._fail(error)
                return
            with self._change:
                self._done.add(queue.popleft())
                self._change.notify_all()
                self._find_deadlock()

    def _ready(self, stream: str, bound: Bound) -> bool:
        """Wait until all that `bound` comes after is done; False where the pool ends instead. The lock is held."""

        def ready() -> bool:
            return self._closed or self._failure is not None or self._done.issuperset(bound.after)

        self._waiting[stream] = bound.action
        self._find_deadlock()
        self._change.wait_for(ready)
        del self._waiting[stream]
        return not self._closed and self._failure is None

    def _find_deadlock(self) -> None:
        """Fail where every stream that has work waits for what is not done and nothing else can finish it."""
        if self._issuing or self._failure is not None:
            return
        busy = [stream for stream, queue in self._queues.items() if queue]
        if not busy or any(stream not in self._waiting for stream in busy):
            return
        if not any(self._done.issuperset(self._actions[self._queues[s][0]].after) for s in busy):
            self._failure = self._stuck("can never start", "a deadlock")
            self._change.notify_all()

    def _stuck(self, what: str, why: str) -> RunError:
        lines = []
        for queue in self._queues.values():
            if queue:
                bound = self._actions[queue[0]]
                missing = [action for action in bound.after if action not in self._done]
                waits = f" waits for {', '.join(map(str, missing))}" if missing else ""
                lines.append(describe(bound) + waits)
        return RunError(
            "SNP-R005", f"the replay {what} ({why}): {'; '.join(lines)}; verify the plan", {"actions": lines}
        )

    def _fail(self, error: BaseException) -> None:
        with self._change:
            if self._failure is None:
                self._failure = error
            self._change.notify_all()
