"""Every exception becomes an exit code and one message."""

from __future__ import annotations

import json

import pytest
import typer

from snplan.cli import failure
from snplan.errors import (
    InfeasibleError,
    ModelError,
    NoPlanError,
    PlanError,
    RunError,
    SnplanError,
    UsageError,
)


@pytest.mark.parametrize(
    ("kind", "exit_code", "status"),
    [
        (UsageError, 2, "rejected"),
        (ModelError, 3, "rejected"),
        (InfeasibleError, 4, "infeasible"),
        (NoPlanError, 5, "unknown"),
        (PlanError, 6, "rejected"),
        (RunError, 7, "rejected"),
    ],
)
def test_errors_of_snplan(
    kind: type[SnplanError], exit_code: int, status: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind("SNP-T001", "what, where", {"floor_bytes": 1024})
    assert failure.report(error, as_json=True) == exit_code
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "status": status,
        "code": "SNP-T001",
        "message": "what, where",
        "floor_bytes": 1024,
    }
    assert captured.err.startswith("snplan: SNP-T001: what, where\n")


def test_without_json_standard_output_stays_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure.report(UsageError("SNP-U001", "no"), as_json=False) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "snplan: SNP-U001: no\n"


def test_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure.report(KeyboardInterrupt(), as_json=True) == 130
    assert json.loads(capsys.readouterr().out)["code"] == failure.INTERRUPTED


def test_wrong_usage_that_typer_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure.report(typer.BadParameter("too small."), as_json=False) == 2
    assert capsys.readouterr().err.endswith("too small; see --help\n")


def test_a_bug_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure.report(ZeroDivisionError("division by zero"), as_json=False) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "SNP-X001" in err
    assert "ZeroDivisionError: division by zero" in err
    assert "SNPLAN_DEBUG=1" in err


def test_a_traceback_on_request(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNPLAN_DEBUG", "1")
    failure.report(UsageError("SNP-U001", "no"), as_json=True)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out
    assert "UsageError" in captured.err


def test_errors_do_not_share_their_exit_code() -> None:
    failure.explained(KeyboardInterrupt())
    assert SnplanError("SNP-T001", "no").exit_code == 1


def test_a_refused_budget_says_what_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    live = [{"tensor": f"t{i}", "bytes": 1024 * (9 - i)} for i in range(7)]
    details = {
        "budget_bytes": 2048,
        "floor_bytes": 4096,
        "reserve_bytes": 1024,
        "binding": "conv1",
        "live_at_binding": live,
    }
    assert failure.report(InfeasibleError("SNP-P001", "too small", details), as_json=False) == 4
    err = capsys.readouterr().err
    for expected in (
        "2.00 KiB (2,048 B)",
        "4.00 KiB (4,096 B)",
        "conv1",
        "t0: 9.00 KiB",
        "t4: 5.00 KiB",
        "--gpu-mem of 5.00 KiB",
    ):
        assert expected in err
    assert "t5" not in err


def test_a_message_of_millions_keeps_both_ends(capsys: pytest.CaptureFixture[str]) -> None:
    error = UsageError("SNP-U001", "what is wrong: " + "0, " * 10**6 + "what to change")
    assert failure.report(error, as_json=True) == 2
    captured = capsys.readouterr()
    for text in (json.loads(captured.out)["message"], captured.err.removeprefix("snplan: SNP-U001: ").strip()):
        assert 7000 < len(text) < 9000
        assert text.startswith("what is wrong: 0, 0")
        assert text.endswith("0, what to change")
