"""Address assignment on problem files: how close to the lower bound, and how fast.

    python benchmarks/addresses.py FILE.csv ... [--time-limit S] [--seed N] [--json]

A file has the header `id,lower,upper,size`: half-open live intervals and bytes. A number before `.csv` in its name
(`A.1048576.csv`) is the capacity that the problem must fit; other files have a bar as a multiple of their lower bound.
Exits with 1 when a file misses its bar, with 2 when a file cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from snplan.arena.problem import Problem, validate
from snplan.arena.solve import assign

BARS = {"resnet50": 1.0, "pangu_2.6B": 1.004}  # of the lower bound; any other file without a capacity: BAR
BAR = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    name: str
    buffers: int
    bound: int
    height: int
    ratio: float
    seconds: float
    bar: int
    reached: bool


def load(path: Path) -> Problem:
    """Return the problem in a CSV file. Raises ValueError, naming the file, when it is no such file."""
    lines = path.read_text().splitlines()
    if not lines or [name.strip() for name in lines[0].split(",")[:4]] != ["id", "lower", "upper", "size"]:
        raise ValueError(f"{path}: the first line must be id,lower,upper,size")
    try:
        rows = [[int(value) for value in line.split(",")[1:4]] for line in lines[1:] if line.strip()]
        table = np.array(rows, np.int64).reshape(-1, 3)
        return Problem(start=table[:, 0], end=table[:, 1], size=table[:, 2])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def capacity_of(path: Path) -> int | None:
    """Return the capacity in bytes that the file's name gives, if any."""
    last = path.stem.rpartition(".")[2]
    return int(last) if "." in path.stem and last.isdigit() else None


def measure(path: Path, time_limit: float, seed: int) -> Row:
    """Return the row of one file; the offsets are validated. Loading the compiled kernels is part of the time."""
    problem, capacity = load(path), capacity_of(path)
    begin = time.perf_counter()
    solution = assign(problem, capacity=capacity, time_limit=time_limit, seed=seed, clock=time.perf_counter)
    seconds = time.perf_counter() - begin
    fault = validate(problem, solution.offsets)
    bar = int(solution.bound * BARS.get(path.stem, BAR)) if capacity is None else capacity
    return Row(
        name=path.stem,
        buffers=len(problem),
        bound=solution.bound,
        height=solution.height,
        ratio=round(solution.height / max(solution.bound, 1), 6),
        seconds=round(seconds, 2),
        bar=bar,
        reached=fault is None and solution.height <= bar,
    )


def text(row: Row) -> str:
    """Return the row as a line of the table."""
    verdict = "ok" if row.reached else f"MISSED {row.bar}"
    return (
        f"{row.name:<24}{row.buffers:>8}{row.bound:>14}{row.height:>14}{row.ratio:>10.6f}{row.seconds:>9.2f}  {verdict}"
    )


def main() -> int:
    """Measure the files of the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Address assignment on problem files.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.csv")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of work for one file (default 60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    rows: list[Row] = []
    if not arguments.json:
        print(f"{'name':<24}{'buffers':>8}{'bound':>14}{'height':>14}{'ratio':>10}{'seconds':>9}")
    for path in arguments.files:
        try:
            rows.append(measure(path, arguments.time_limit, arguments.seed))
        except (OSError, ValueError) as error:
            print(error, file=sys.stderr)
            return 2
        if not arguments.json:
            print(text(rows[-1]), flush=True)
    if arguments.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "reached": all(row.reached for row in rows)}))
    return 0 if all(row.reached for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
