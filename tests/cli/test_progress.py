"""Signs of life, and what Ctrl-C means."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from snplan.cli import progress
from snplan.cli.progress import Interruption, Progress


def wait_for(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What was written on standard error until `text` was in it."""
    seen = ""
    for _ in range(1000):
        seen += capsys.readouterr().err
        if text in seen:
            break
        time.sleep(0.005)
    return seen


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL_S", 0.01)
    with Progress(quiet=False) as report:
        report("import")
        assert "s: import\n" in wait_for("import", capsys)
        report("addresses", 0.4)
        assert "s: addresses (40%)\n" in wait_for("addresses", capsys)


def test_nothing_for_short_work(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(quiet=False) as report:
        report("import", 0.5)
    assert capsys.readouterr().err == ""


def test_nothing_with_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL_S", 0.001)
    with Progress(quiet=True) as report:
        report("import")
        time.sleep(0.02)
    assert capsys.readouterr().err == ""


def test_the_first_interrupt_only_asks() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as stop:
        assert not stop.asked()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked()
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def interrupt_and(then: Callable[[], object]) -> None:
    """Presses Ctrl-C inside an Interruption, then does something else."""
    with Interruption():
        os.kill(os.getpid(), signal.SIGINT)
        then()


def test_the_second_interrupt_stops() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupt_and(lambda: os.kill(os.getpid(), signal.SIGINT))


def test_work_that_does_not_answer_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.01)
    with pytest.raises(KeyboardInterrupt):
        interrupt_and(lambda: time.sleep(5))
