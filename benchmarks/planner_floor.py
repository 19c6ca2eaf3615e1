"""Floor: plans at exactly the floor are sound and use it to the byte; fragmentation at keep-all and in the middle.

`floor` has the zoo, and then models that other tools exported: of a corpus of ONNX files the 40 with the most ops of
those that can be prepared as they are (without sizes for dynamic dims) and are no longer than a few thousand ops.
`floor:corpus` has those alone, `floor:corpus=FOLDER` those of a folder.

The corpus (`corpus/open.tar.xz`) and an outside checker of plans (`accept/judge.py`) are looked for in the setting
SNPLAN_SHARED, or else in the folder `shared` beside the checkout.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from planner_common import ZOO, Outcome, gib, judged, planned, prepared, row

from snplan.compiler import CompileOptions, Prepared, prepare
from snplan.errors import SnplanError

HEADER = ("network", "ops", "floor", "keep-all", "arena/floor", "frag keep-all", "frag middle", "s", "")
WIDTHS = (46, 7, 9, 10, 13, 15, 13, 8, 30)
MIDDLE = 0.005  # of the budget
MODELS = 40  # of the corpus


def section(words: Sequence[str]) -> Outcome:
    """One line for each network of the zoo and each model of the corpus (those named in `words`, if there are any)."""
    judge = _judge()
    print(row(HEADER, WIDTHS))
    reached = True
    for network, build in ZOO.items():
        if not words or network in words:
            reached = _line(network, prepared(network, **build), judge) and reached
    lines = () if judge else ("no outside checker was found",)
    corpus = [word.partition("=")[2] for word in words if word.partition("=")[0] == "corpus"]
    if words and not corpus:
        return Outcome(reached=reached, lines=lines)
    with _corpus(*corpus) as folder:
        if folder is None:
            return Outcome(reached=reached, lines=(*lines, "no corpus was found: its models are left out"))
        for name, step in largest(folder, MODELS):
            reached = _line(name, step, judge) and reached
    return Outcome(reached=reached, lines=lines)


def _line(name: str, step: Prepared, judge: Path | None) -> bool:
    """Print the line of a step; whether its plans reach the bars."""
    lowest, everything = step.lowest.bytes, step.everything.body
    kept = everything.arena_bytes - everything.peak_live_bytes
    plan, seconds = planned(step, lowest)
    middle, more = planned(step, (lowest + everything.arena_bytes) // 2)
    lost = (middle.plan.arena_bytes - middle.plan.peak_live_bytes) / max(1, middle.plan.budget_bytes)
    finding = judged(plan, judge) or judged(middle, judge)
    good = plan.plan.arena_bytes == lowest and kept == 0 and lost <= MIDDLE and finding is None
    facts = [name, len(step.indexed.ops), gib(lowest), gib(everything.arena_bytes)]
    facts += [f"{plan.plan.arena_bytes / max(1, lowest):.4f}", kept, f"{lost:.2%}", f"{seconds + more:.1f}"]
    print(row([*facts, "  ok" if good else f"  MISSED {finding or ''}"], WIDTHS), flush=True)
    return good


def largest(folder: Path, count: int) -> list[tuple[str, Prepared]]:
    """The `count` models of a folder with the most ops that can be prepared, by name without the suffix."""
    found: list[tuple[str, Prepared]] = []
    for file in sorted(folder.rglob("*.onnx")):
        try:
            step = prepare(file, CompileOptions(budget_bytes=0, reserve_bytes=0))
        except SnplanError:
            continue
        found.append((file.stem, step))
        found.sort(key=lambda item: (-len(item[1].indexed.ops), item[0]))
        del found[count:]
    return found


@contextmanager
def _corpus(given: str = "") -> Iterator[Path | None]:
    """The folder of the corpus: the one that is given, or the archive unpacked; None where there is neither."""
    archive = _shared() / "corpus" / "open.tar.xz"
    if given or not archive.exists():
        yield Path(given) if given and Path(given).is_dir() else None
        return
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        yield Path(folder)


def _shared() -> Path:
    return Path(os.environ.get("SNPLAN_SHARED") or Path(__file__).resolve().parents[2] / "shared")


def _judge() -> Path | None:
    file = _shared() / "accept" / "judge.py"
    return file if file.exists() else None
