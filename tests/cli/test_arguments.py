"""What option values mean, and which command lines are refused before any work."""

from __future__ import annotations

import pytest

from snplan.cli import arguments
from snplan.errors import UsageError


@pytest.mark.parametrize(
    "words",
    [
        ["compile", "--batch", "1", "--batch", "2"],
        ["compile", "--batch=1", "--batch", "2"],
        ["compile", "-o", "a", "--output", "b"],
        ["compile", "--json", "--json"],
        ["compile", "--fuse", "--no-fuse"],
    ],
)
def test_options_given_twice_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        arguments.refuse_repeated(words)
    assert caught.value.code == "SNP-U002"


@pytest.mark.parametrize(
    "words",
    [
        ["compile", "--dim", "a=1", "--dim", "b=2", "--freeze", "x", "--freeze", "y"],
        ["run", "a", "a", "--steps", "2"],
        ["model", "--", "--batch", "--batch"],
        [],
    ],
)
def test_options_given_once_pass(words: list[str]) -> None:
    arguments.refuse_repeated(words)


def test_one_of_names_the_choices() -> None:
    assert arguments.one_of("--mode", "train", ("train", "infer")) == "train"
    with pytest.raises(UsageError, match="--mode 'both' is not known; choose one of train, infer"):
        arguments.one_of("--mode", "both", ("train", "infer"))


def test_sizes_note_decimal_units() -> None:
    notes: list[str] = []
    assert arguments.size("--gpu-mem", "12G", notes) == 12 << 30
    assert notes == []
    assert arguments.size("--gpu-mem", "12GB", notes) == 12 * 10**9
    assert len(notes) == 1
    assert notes[0].startswith("--gpu-mem 12GB is decimal")
    assert arguments.size("--reserve", None, notes) is None
    assert arguments.size("--reserve", "0", notes, allow_zero=True) == 0
    with pytest.raises(UsageError, match="--reserve"):
        arguments.size("--reserve", "0", notes)


def test_dimensions() -> None:
    assert arguments.dimensions(["N=8", "seq len=128", "a=b=2"]) == {"N": 8, "seq len": 128, "a=b": 2}
    assert arguments.dimensions([]) == {}


@pytest.mark.parametrize("text", ["N", "N=", "=3", "N=0", "N=-1", "N=1.5", "N=x", "N=1e3", ""])
def test_broken_dimensions_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--dim N=32"):
        arguments.dimensions([text])


def test_a_dimension_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="N twice: 8 and 9"):
        arguments.dimensions(["N=8", "N=9"])


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_numbers_under_the_smallest_are_refused(value: float) -> None:
    arguments.at_least("--batch", None, 1)
    arguments.at_least("--batch", 1, 1)
    with pytest.raises(UsageError, match="--batch is"):
        arguments.at_least("--batch", value, 1)


def test_options_without_effect_are_refused() -> None:
    arguments.refuse_together("--mode infer", {"--loss": False})
    with pytest.raises(UsageError, match="--loss and --freeze would have no effect with --mode infer"):
        arguments.refuse_together("--mode infer", {"--loss": True, "--optimizer": False, "--freeze": True})


def test_a_number_has_to_be_finite() -> None:
    for value in (float("inf"), float("nan")):
        with pytest.raises(UsageError) as caught:
            arguments.at_least("--time-limit", value, 0.001)
        assert caught.value.code == "SNP-U005"
