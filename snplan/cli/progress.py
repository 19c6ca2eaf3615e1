"""Progress on standard error, and what Ctrl-C means while a command works."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from snplan.cli import output

if TYPE_CHECKING:
    from rich.status import Status

INTERVAL_S = 5.0
PATIENCE_S = 20.0
_ASKED = b"snplan: interrupted: ending with the best plan so far; Ctrl-C again stops at once\n"


class Progress:
    """A callable that takes what is being done and how much of it is done (0 to 1, or None where nobody knows).

    On a terminal it is a line that changes; elsewhere a line is written every five seconds, also when nothing new was
    told, so that a log shows that the command is alive.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._text = "starting"
        self._started = time.monotonic()
        self._done = threading.Event()
        self._status: Status | None = None
        self._thread: threading.Thread | None = None

    def __call__(self, what: str, fraction: float | None = None) -> None:
        """Takes note of what is being done."""
        self._text = what if fraction is None else f"{what} ({fraction:.0%})"
        if self._status is not None:
            from rich.text import Text

            self._status.update(Text(self._text))

    def __enter__(self) -> Self:
        if self._quiet:
            return self
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status("starting")
            self._status.start()
            return self
        self._thread = threading.Thread(target=self._repeat, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._status is not None:
            self._status.stop()
        if self._thread is not None:
            self._thread.join()

    def _repeat(self) -> None:
        while not self._done.wait(INTERVAL_S):
            output.note(f"snplan: {time.monotonic() - self._started:.0f} s: {self._text}")


class Interruption:
    """Ctrl-C in two strengths: the first asks the work to end with the best it has, what follows stops it.

    A second Ctrl-C, or some seconds in which the work did not answer the first, raise KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self._asked = False

    def asked(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._asked

    def __enter__(self) -> Self:
        self._interrupt = signal.signal(signal.SIGINT, self._take)
        self._alarm = signal.signal(signal.SIGALRM, self._stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._alarm)
        signal.signal(signal.SIGINT, self._interrupt)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        with contextlib.suppress(OSError):
            os.write(2, _ASKED)  # a buffered stream may be in use by what was interrupted
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt
