"""What reaches the two streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table

from snplan.cli import output


def test_json_has_plain_values_only(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_object(
        {"a": np.float32(1.5), "b": np.int64(7), "c": (1, Path("x")), "d": float("nan"), "e": {1: True}, "f": None}
    )
    text = capsys.readouterr().out
    assert json.loads(text) == {"a": 1.5, "b": 7, "c": [1, "x"], "d": None, "e": {"1": True}, "f": None}
    assert text.endswith("}\n")


def test_tables_go_to_standard_error_and_names_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("name")
    table.add_row("a")
    output.show(table)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "name" in captured.err
    assert "\x1b" not in captured.err


def test_a_reader_that_went_away_is_no_error() -> None:
    code = (
        "from snplan.cli import output\nfor _ in range(9999): output.write_text('x' * 99 + chr(10))\noutput.note('end')"
    )
    command = f'{sys.executable} -c "{code}" | head -n 1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[1:] == ["0"]
    assert done.stderr == "end\n"


def test_odd_characters_are_escaped() -> None:
    code = "from snplan.cli import output\noutput.tolerate_odd_characters()\noutput.note('a\\udc80\\u2713')"
    env = {"PYTHONIOENCODING": "ascii", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env, timeout=60)
    assert done.stderr == "a\\udc80\\u2713\n"


def test_a_line_stays_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Names in a message come from files; the lines of a list are the message's own."""
    output.note("op a\x1b[2J\nsnplan: fine\x07, tab\t:\n  first\n  second\u202e")
    assert capsys.readouterr().err == "op a\\x1b[2J\\nsnplan: fine\\x07, tab\\t:\n  first\n  second\\u202e\n"


def test_files_that_were_written(capsys: pytest.CaptureFixture[str]) -> None:
    output.written(None, Path("a b.svg"), None, "c\n.npz")
    assert capsys.readouterr().err == "a b.svg: written\nc\\n.npz: written\n"


def snplan(redirected: str) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} -m snplan {redirected}"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)


needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")


@needs_full
def test_standard_output_that_takes_no_more_is_one_message() -> None:
    done = snplan("doctor > /dev/full")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "snplan: SNP-U014: standard output cannot be written: no space left on device; send it elsewhere"
    ]


@needs_full
def test_the_first_error_counts_where_it_cannot_be_written_as_an_object() -> None:
    done = snplan("verify absent.plan.json --json > /dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("snplan: SNP-U030: ")
    assert "Traceback" not in done.stderr


@needs_full
def test_standard_error_that_takes_no_more_changes_nothing() -> None:
    done = snplan("verify absent.plan.json --json 2> /dev/full")
    assert done.returncode == 2
    assert json.loads(done.stdout)["code"] == "SNP-U030"


def test_closed_streams() -> None:
    assert snplan("doctor >&-").returncode == 0
    done = snplan("verify absent.plan.json --json 2>&-")
    assert done.returncode == 2
    assert json.loads(done.stdout)["code"] == "SNP-U030"


HELPS = ("--help", "--version", "compile --help", "model mlp --help")


@needs_full
@pytest.mark.parametrize("words", HELPS)
def test_help_on_a_full_disk(words: str) -> None:
    done = snplan(f"{words} > /dev/full")
    assert done.returncode == 2
    assert done.stderr == (
        "snplan: SNP-U014: standard output cannot be written: no space left on device; send it elsewhere\n"
    )
    assert snplan(f"{words} > /dev/full 2> /dev/full").returncode == 2
    assert snplan(f"{words} > /dev/null 2> /dev/full").returncode == 0


@needs_full
def test_tables_on_a_full_disk(plan_file: Path) -> None:
    done = snplan(f"inspect {plan_file} > /dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("snplan: SNP-U014: ")
    assert done.stderr.count("\n") == 1


def into_a_closed_pipe(*words: str) -> subprocess.CompletedProcess[str]:
    """A command whose reader has gone before it writes anything."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "snplan", *words]
        return subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    "words", [*HELPS, "doctor", "model", "inspect PLAN", "inspect PLAN --text", "verify PLAN --json"]
)
def test_a_pipe_that_nobody_reads(words: str, plan_file: Path) -> None:
    done = into_a_closed_pipe(*(str(plan_file) if word == "PLAN" else word for word in words.split()))
    assert done.returncode == 0, done.stderr
    assert "snplan:" not in done.stderr
