"""The CSV of a sweep: one line a budget, written as the sweep goes on, so that an interrupted one can be continued."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from snplan.errors import UsageError, unwritten
from snplan.explore.sweep import FEASIBLE, INFEASIBLE, UNKNOWN, Figures, Point
from snplan.report.files import write_report

FIGURES = tuple(Figures.__slots__)
COLUMNS = ("budget_bytes", "status", "lower_bound_us", *FIGURES, "model_sha256", "options")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFile:
    """A CSV that belongs to one model (`model_sha256`) and one set of options (`options`, a fingerprint)."""

    path: Path
    model_sha256: str
    options: str

    def read(self) -> list[Point]:
        """The points of the file, none where it is not there; a last line that was cut off is left out.

        Raises UsageError: SNP-U070 where the file is no sweep, SNP-U071 where it is of another model or other options.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError("SNP-U070", f"{self.path} cannot be read as a sweep: {error}") from error
        header = ",".join(COLUMNS) + "\n"
        if not text.startswith(header[: len(text)]):
            raise self._no_sweep("its first line has other columns")
        rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
        return [self._point(number, row) for number, row in enumerate(rows, start=2)]

    def write(self, points: Iterable[Point]) -> None:
        """Writes the file anew, whole or not at all. Raises `snplan.errors.unwritten` where that fails."""
        lines = [",".join(COLUMNS), *map(self._line, points)]
        write_report(self.path, "".join(f"{line}\n" for line in lines), what="CSV")

    def append(self, point: Point) -> None:
        """Adds a line to the file. Raises `snplan.errors.unwritten` where that fails."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{self._line(point)}\n")
        except OSError as error:
            raise unwritten(f"the CSV {self.path}", error, code="SNP-U011") from error

    def _line(self, point: Point) -> str:
        figures = asdict(point.figures) if point.figures is not None else dict.fromkeys(FIGURES, "")
        row: dict[str, object] = {
            **figures,
            "budget_bytes": point.budget_bytes,
            "status": point.status,
            "lower_bound_us": "" if point.lower_bound_us is None else point.lower_bound_us,
            "model_sha256": self.model_sha256,
            "options": self.options,
        }
        return ",".join(str(row[name]) for name in COLUMNS)

    def _point(self, number: int, row: Mapping[str, str | None]) -> Point:
        if row["model_sha256"] != self.model_sha256:
            raise self._other(f"another model (sha256 {row['model_sha256']}, this one has {self.model_sha256})")
        if row["options"] != self.options:
            raise self._other("other options or by another version of snplan")
        try:
            return _point(row)
        except (ValueError, TypeError) as error:
            raise self._no_sweep(f"line {number}: {error}") from error

    def _other(self, what: str) -> UsageError:
        return UsageError("SNP-U071", f"{self.path} has a sweep of {what}; name another file or remove this one")

    def _no_sweep(self, why: str) -> UsageError:
        return UsageError("SNP-U070", f"{self.path} is no sweep that could be continued: {why}; name another file")


def _point(row: Mapping[str, str | None]) -> Point:
    status = row["status"]
    if status not in (FEASIBLE, INFEASIBLE, UNKNOWN):
        raise ValueError(f"status {status!r} is not known")
    given: Sequence[str | None] = [row[name] for name in FIGURES]
    bound = row["lower_bound_us"]
    return Point(
        budget_bytes=_number(row["budget_bytes"]),
        status=status,
        lower_bound_us=_number(bound) if bound else None,
        figures=Figures(**dict(zip(FIGURES, map(_number, given), strict=True))) if given[0] else None,
    )


def _number(text: str | None) -> int:
    if text is None or not text.isdecimal():
        raise ValueError(f"{text!r} is no number")
    return int(text)
