"""Every number and size of every command: what is no number of its kind is wrong usage, told before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.plans import answer
from hypothesis import given
from hypothesis import strategies as st

from snplan.cli import main
from snplan.errors import UsageError
from snplan.units import parse_bytes

NO_SIZE = (
    "-1",
    "nan",
    "inf",
    "-inf",
    "1e30",
    "",
    "  ",
    "१२",
    "१२G",
    "12 G iB",
    "12Gb",
    "0x10",
    "1_0",
    "1.5",
    "1.0",
    "1.5B",
)
NO_COUNT = ("-1", "0", "nan", "inf", "1e30", "", "  ", "१२", "12G", "1.5", "x", "0x10")
NO_NUMBER = ("-1", "0", "nan", "inf", "-inf", "", "  ", "12G", "x")
SIZES = {
    "compile": ("--gpu-mem", "--reserve", "--host-mem", "--pinned-limit"),
    "sweep": ("--budgets", "--reserve", "--host-mem"),
    "compare": ("--gpu-mem", "--reserve"),
    "max-batch": ("--gpu-mem", "--host-mem"),
    "max-depth": ("--gpu-mem", "--host-mem"),
    "profile": ("--gpu-mem",),
    "inspect": ("--fits", "--more"),
}
COUNTS = {
    "compile": ("--batch",),
    "sweep": ("--points", "--batch"),
    "max-batch": ("--step",),
    "max-depth": ("--batch", "--image", "--most"),
    "profile": ("--batch", "--engines"),
    "run": ("--steps",),
    "model": ("--batch",),
}
NUMBERS = {"compile": ("--time-limit",), "max-batch": ("--max-slowdown",), "max-depth": ("--max-slowdown",)}


def words(command: str, option: str, value: str, plan: Path) -> list[str]:
    """A command line that is fine but for one option."""
    subject = {"max-depth": [], "model": ["mlp"], "run": [str(plan)], "inspect": [str(plan)]}.get(command, ["mlp.onnx"])
    budget = ["--gpu-mem", "1G"] if command in ("compile", "compare", "max-batch", "max-depth") else []
    beside = {"--time-limit": ["--solver", "cp-sat"], "--more": ["--what-if"]}.get(option, [])
    rest = [] if option == "--gpu-mem" else budget
    return [command, *subject, *rest, *beside, f"{option}={value}"]


def refused(command: str, option: str, value: str, plan: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one message of a command that ends as wrong usage."""
    assert main(words(command, option, value, plan)) == 2, value
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(("command", "option"), [(c, o) for c, options in SIZES.items() for o in options])
def test_sizes(command: str, option: str, model: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.name for path in model.parent.iterdir())
    for value in NO_SIZE:
        if option == "--budgets" and not value.strip():
            assert "names no size" in refused(command, option, value, plan_file, capsys)
        else:
            assert refused(command, option, value, plan_file, capsys).startswith(f"snplan: SNP-U001: {option} ")
    assert sorted(path.name for path in model.parent.iterdir()) == before


@pytest.mark.parametrize(("command", "option"), [(c, o) for c, options in COUNTS.items() for o in options])
def test_counts(command: str, option: str, model: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for value in NO_COUNT:
        assert option in refused(command, option, value, plan_file, capsys)


@pytest.mark.parametrize(("command", "option"), [(c, o) for c, options in NUMBERS.items() for o in options])
def test_numbers(command: str, option: str, model: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for value in NO_NUMBER:
        assert option in refused(command, option, value, plan_file, capsys)


@pytest.mark.parametrize("value", ["-1", "nan", "1.5", "", "x"])
def test_seeds(value: str, model: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "model"):
        assert "--seed" in refused(command, "--seed", value, plan_file, capsys)


@pytest.mark.parametrize(
    ("command", "option", "most"),
    [("sweep", "--points", 10_000), ("max-depth", "--batch", 2**31 - 1), ("max-depth", "--image", 2**31 - 1)],
)
def test_more_than_makes_sense(
    command: str, option: str, most: int, model: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in (most + 1, 10**30):
        error = refused(command, option, str(value), plan_file, capsys)
        assert error.startswith(f"snplan: SNP-U005: {option} is ")
        assert "the largest value" in error


def test_a_batch_of_more_bytes_than_there_are(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("compile", "sweep", "compare"):
        budget = [] if command == "sweep" else ["--gpu-mem", "1G"]
        assert answer(capsys, command, model, *budget, "--batch", 10**30, code=3)["code"] == "SNP-I013"


def test_a_fraction_of_a_byte_names_a_unit() -> None:
    with pytest.raises(UsageError, match=r"--gpu-mem '1\.5' is no whole number of bytes; for a unit write 1\.5G"):
        parse_bytes("1.5", what="--gpu-mem")


@given(st.integers(1, 2**40), st.integers(0, 999), st.sampled_from("kKmMgGtT"), st.sampled_from(["", "i", "iB", "B"]))
def test_fractions_of_units(whole: int, thousandths: int, prefix: str, suffix: str) -> None:
    """Whole bytes, rounded down: less than a byte under the exact value, worked out in integers."""
    factor = (1000 if suffix == "B" else 1024) ** ("kmgt".index(prefix.lower()) + 1)
    exact = whole * 1000 + thousandths
    text = f"{whole}.{thousandths:03}{prefix}{suffix}"
    if exact * factor // 1000 >= 2**62:
        with pytest.raises(UsageError, match="out of range"):
            parse_bytes(text)
    else:
        assert parse_bytes(text) == exact * factor // 1000


@given(st.integers(1, 2**62 - 1), st.text("0123456789", min_size=1, max_size=3))
def test_no_fraction_goes_without_a_unit(whole: int, digits: str) -> None:
    assert parse_bytes(str(whole)) == whole
    for text in (f"{whole}.{digits}", f"{whole}.{digits} B"):
        with pytest.raises(UsageError):
            parse_bytes(text)


@pytest.mark.parametrize("command", ["max-batch", "max-depth"])
def test_a_reserve_that_takes_the_whole_budget(command: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subject = ["mlp.onnx"] if command == "max-batch" else []
    for budget, reserve in (("600M", "700M"), ("1M", "1M")):
        found = answer(capsys, command, *subject, "--gpu-mem", budget, "--reserve", reserve, code=4)
        assert found["code"] == "SNP-P006"
        assert f"the reserve of {reserve[:-1]}.00 MiB" in found["message"]
        assert f"takes all of the budget of {budget[:-1]}.00 MiB" in found["message"]
        assert "-" not in found["message"]
    found = answer(capsys, command, *subject, "--gpu-mem", "700.001M", "--reserve", "700M", code=4)
    assert "is above the budget less the reserve, 1.02 KiB (1,048 B)" in found["message"]
