"""The index of known faults: complete, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)

COVERED = (
    *(1, 2, 4, *range(6, 14), *range(15, 24)),
    *(24, 25, 26, 28, 29, 30, 32, 33, 37, 39, 40),
    *(41, *range(45, 53), 54),
    *(58, 59, 60, 61, *range(63, 68), 69, 70, 71),
    *(73, *range(75, 82)),
    *range(82, 89),
    *(90, 91, 93, 94, 95, *range(97, 103)),
    *range(103, 108),
)


@cache
def functions(path: Path) -> frozenset[str]:
    """Names of the tests in a file."""
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def rows(checkout: Path) -> list[tuple[int, str, list[str]]]:
    """Entries with their fault and test ids."""
    text = (checkout / "tests" / "faults" / "README.md").read_text()
    return [(int(number), fault, re.findall(r"`([^`]+)`", tests)) for number, fault, tests in ROW.findall(text)]


def test_every_entry_has_tests_once(checkout: Path) -> None:
    found = rows(checkout)
    assert [number for number, _, _ in found] == list(COVERED)
    assert all(tests for _, _, tests in found)


def test_every_test_that_is_named_exists(checkout: Path) -> None:
    named = [test for _, _, tests in rows(checkout) for test in tests]
    missing = []
    for test in named:
        path, _, name = test.partition("::")
        if not (checkout / path).is_file() or name not in functions(checkout / path):
            missing.append(test)
    assert missing == []


def test_every_test_of_this_folder_is_in_the_index(checkout: Path) -> None:
    named = {test.partition("::")[2] for _, _, tests in rows(checkout) for test in tests}
    here = {
        name
        for path in sorted((checkout / "tests" / "faults").glob("test_*_faults.py"))
        for name in functions(path)
        if name.startswith("test_")
    }
    assert sorted(here - named) == []
