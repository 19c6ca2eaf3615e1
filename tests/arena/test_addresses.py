"""benchmarks/addresses.py as a command: its table, its JSON, its exit codes; and the bars that take no time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
HEADER = "id,lower,upper,size\n"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHECKOUT / "benchmarks" / "addresses.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT)


def write(path: Path, *rows: str) -> Path:
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


def test_the_table_has_a_line_for_each_file(tmp_path: Path) -> None:
    one = write(tmp_path / "one.12.csv", "0,0,4,8", "1,2,6,4", "2,5,7,8")
    two = write(tmp_path / "two.csv", "0,0,4,8", "1,4,6,4")
    done = run(one, two)
    assert done.returncode == 0, done.stderr
    title, first, second = (line.split() for line in done.stdout.splitlines())
    assert title == ["name", "buffers", "bound", "height", "ratio", "seconds"]
    assert first[:4] == ["one.12", "3", "12", "12"]
    assert second[:4] == ["two", "2", "8", "8"]
    assert first[-1] == second[-1] == "ok"


def test_json_is_one_object_on_stdout(tmp_path: Path) -> None:
    done = run(write(tmp_path / "one.12.csv", "0,0,4,8", "1,2,6,4"), "--json", "--time-limit", "1")
    found = json.loads(done.stdout)
    assert found["reached"] is True
    row = found["rows"][0]
    assert (row["name"], row["buffers"], row["bound"], row["height"], row["bar"]) == ("one.12", 2, 12, 12, 12)
    assert row["seconds"] >= 0


def test_a_capacity_that_is_missed_is_exit_code_1(tmp_path: Path) -> None:
    done = run(write(tmp_path / "one.11.csv", "0,0,4,8", "1,2,6,4"))
    assert done.returncode == 1
    assert "MISSED 11" in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line must be id,lower,upper,size"),
        ("id,start,end,size\n0,1,2,3\n", "the first line must be id,lower,upper,size"),
        (HEADER + "0,1,x,3\n", "invalid literal"),
        (HEADER + "0,4,4,3\n", "buffer 0 has an empty live interval [4, 4)"),
    ],
)
def test_a_file_that_is_no_problem_is_exit_code_2(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    done = run(path)
    assert (done.returncode, done.stdout.count("\n")) == (2, 1)
    assert str(path) in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_file_is_exit_code_2(tmp_path: Path) -> None:
    done = run(tmp_path / "none.csv")
    assert done.returncode == 2
    assert "none.csv" in done.stderr


@pytest.mark.slow
def test_the_published_problems_are_solved(shared: Path) -> None:
    files = [shared / "bench" / "minimalloc" / f"{name}.1048576.csv" for name in "ABCDEFGH"]
    files += [shared / "bench" / "somas" / f"{name}.csv" for name in ("resnet50", "pangu_2.6B")]
    if not all(file.is_file() for file in files):
        pytest.skip("no address problems in the folder of shared test data")
    done = run(*files, "--json")
    assert done.returncode == 0, done.stdout
    assert [row["name"] for row in json.loads(done.stdout)["rows"]] == [file.stem for file in files]
