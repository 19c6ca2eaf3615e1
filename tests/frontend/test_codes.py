"""Error codes: one meaning each, all of them in docs/errors.md."""

from __future__ import annotations

import re
from pathlib import Path

from snplan.frontend import codes


def documented(checkout: Path) -> list[str]:
    """Codes in the first column of the tables."""
    text = (checkout / "docs" / "errors.md").read_text()
    return re.findall(r"^\| (SNP-[A-Z]\d{3}) \|", text, re.MULTILINE)


def test_codes_of_the_front_end_are_unique_and_documented_once(checkout: Path) -> None:
    known = [value for name, value in vars(codes).items() if name.isupper() and isinstance(value, str)]
    assert len(set(known)) == len(known)
    listed = documented(checkout)
    assert len(set(listed)) == len(listed)
    assert set(known) <= set(listed)
    assert {code for code in listed if code.startswith("SNP-I")} == {code for code in known if "-I" in code}


def test_codes_are_written_down_in_one_place(checkout: Path) -> None:
    for path in sorted((checkout / "snplan" / "frontend").rglob("*.py")):
        if path.name != "codes.py":
            found = re.findall(r"Error\(\s*\"(SNP-[A-Z]\d{3})\"", path.read_text())
            assert not found, path
