"""What the shell is told when it asks how a line may go on."""

from __future__ import annotations

import pytest
from conftest import Snplan


def asked(snplan: Snplan, line: str, shell: str = "complete_bash") -> tuple[int, list[str]]:
    """Exit code and answers to a line that ends where the cursor is."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_SNPLAN_COMPLETE": shell}
    done = snplan(env=words)
    assert "Traceback" not in done.err
    return done.code, done.out.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("snplan com", ["compile", "compare"]),
        ("snplan max-", ["max-batch", "max-depth"]),
        ("snplan compile --gpu", ["--gpu-mem"]),
        ("snplan sweep --p", ["--points", "--precision", "--pinned-limit", "--pool"]),
    ],
)
def test_commands_and_options(line: str, expected: list[str], snplan: Snplan) -> None:
    code, found = asked(snplan, line)
    assert code == 0
    assert sorted(found) == sorted(expected)


def test_a_shell_that_is_not_known(snplan: Snplan) -> None:
    assert asked(snplan, "snplan com", "complete_tcsh")[0] == 2


def test_the_script_for_a_shell(snplan: Snplan) -> None:
    """typer looks for the shell among the parent processes, so the answer is the caller's: a script, or a refusal."""
    done = snplan("--show-completion")
    assert done.code in (0, 2)
    assert ("_SNPLAN_COMPLETE" in done.out) is (done.code == 0)
    assert "Traceback" not in done.err


def test_as_a_module(snplan: Snplan) -> None:
    assert snplan("--version").out.startswith("snplan ")
    assert snplan().code == 0
    assert "max-depth" in snplan().out


def test_doctor_without_a_gpu(snplan: Snplan) -> None:
    """What is missing is a fact and no failure."""
    done = snplan("doctor", "--json", env={"PATH": "", "CUDA_VISIBLE_DEVICES": ""})
    assert done.code == 0, done.err
    assert done.json["backends"] == ["numpy"]
    assert done.json["gpu"]["devices"] == []
    assert done.err == ""
