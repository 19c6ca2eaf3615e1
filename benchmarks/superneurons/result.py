"""What a figure or table gives back: rows beside the published numbers, checks against bars, notes, charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A bar: what must hold, and whether it does."""

    what: str
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One figure or table: `charts` are SVG texts by file name, `digits` those of fractions as printed."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    checks: Sequence[Check] = ()
    notes: Sequence[str] = ()
    charts: Mapping[str, str] = field(default_factory=dict)
    digits: int = 3

    @property
    def passed(self) -> bool:
        """Whether every check holds."""
        return all(check.passed for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The result without its charts; rows as objects by column."""
        return {
            "name": self.name,
            "title": self.title,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "checks": [{"what": check.what, "passed": check.passed} for check in self.checks],
            "notes": list(self.notes),
            "passed": self.passed,
        }

    def as_text(self) -> str:
        """The result as Markdown: title, table, checks, notes."""
        cells = [[_shown(cell, self.digits) for cell in row] for row in self.rows]
        widths = [max(len(row[i]) for row in [list(self.columns), *cells]) for i in range(len(self.columns))]
        lines = [_line(self.columns, widths), "|" + "|".join("-" * (width + 2) for width in widths) + "|"]
        lines += [_line(row, widths) for row in cells]
        checks = [f"- {'ok' if check.passed else 'MISSED'}: {check.what}" for check in self.checks]
        notes = [f"- {note}" for note in self.notes]
        blocks = [[f"## {self.name}: {self.title}"], lines, checks, notes]
        return "\n\n".join("\n".join(block) for block in blocks if block)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"


def _shown(cell: Cell, digits: int) -> str:
    if cell is None:
        return "-"
    return f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)
