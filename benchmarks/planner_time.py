"""Time and memory of planning: deep ResNets and their fitted exponent, GPT-2 XL and ResNet-50, each in its own process.

Seconds are of the process's CPU time, import of the model to encoded plan file, so that other load does not count.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from planner_common import Outcome, planned, prepared, row

from snplan.cli.entry import COLLECTIONS
from snplan.plan.file import encode_plan

STEEPEST = 1.2  # exponent of seconds over ops


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, its budget, and the bars: seconds of CPU time and GiB of resident memory (None: no bar)."""

    network: str
    layers: int
    budget: int
    build: dict[str, Any]
    seconds: float | None = None
    memory: float | None = None
    options: dict[str, Any] = field(default_factory=dict)


def _deep(layers: int, third: int, seconds: float | None = None, memory: float | None = None) -> Case:
    return Case(
        network="resnet",
        layers=layers,
        budget=12 << 30,
        build={"batch": 16, "blocks": (6, 32, third, 6), "optimizer": "momentum"},
        options={"reserve_bytes": 512 << 20, "host_bytes": 64 << 30},
        seconds=seconds,
        memory=memory,
    )


XL = {"layers": 48, "heads": 25, "embed": 1600}
CASES = {
    "resnet50": Case(network="resnet50", layers=50, budget=2 << 30, build={"batch": 32}, seconds=3),
    "gpt2-xl": Case(network="gpt2", layers=48, budget=12 << 30, build={"batch": 1, **XL}, seconds=20),
    "resnet-1000": _deep(1001, 289),
    "resnet-3000": _deep(2999, 955),
    "resnet-10000": _deep(10001, 3289, seconds=60, memory=2.0),
}
DEEP = ("resnet-1000", "resnet-3000", "resnet-10000")
STAGES = ("prepare", "keep-all", "plan", "bound", "verify", "encode", "s")
HEADER = ("network", "layers", "ops", "budget", *STAGES, "RSS GiB", "")
WIDTHS = (14, 8, 9, 8, 9, 10, 8, 8, 8, 8, 8, 9, 10)


def section(words: Sequence[str]) -> Outcome:
    """One line for each case (or those among `words`), and the exponent where all deep ResNets are among them."""
    print(row(HEADER, WIDTHS))
    reached, found = True, {}
    for name in words or CASES:
        measured = _apart(name)
        case = CASES[name]
        ok = measured is not None
        if measured is not None:
            found[name] = measured
            ok = (case.seconds is None or measured["s"] <= case.seconds) and (
                case.memory is None or measured["gib"] <= case.memory
            )
        reached = reached and ok
        print(_line(name, measured, "ok" if ok else "MISSED"), flush=True)
    if not all(name in found for name in DEEP):
        return Outcome(reached=reached)
    exponent = _exponent([(found[name]["ops"], found[name]["s"]) for name in DEEP])
    verdict = "ok" if exponent <= STEEPEST else "MISSED"
    line = f"fitted exponent of seconds over ops: {exponent:.2f} (bar {STEEPEST})  {verdict}"
    return Outcome(reached=reached and exponent <= STEEPEST, lines=(line,))


def _line(name: str, measured: dict[str, Any] | None, verdict: str) -> str:
    if measured is None:
        return row([name, CASES[name].layers, *[""] * 10, verdict], WIDTHS)
    cells = [measured["ops"], f"{measured['share']:.0%}", *(f"{measured[key]:.1f}" for key in STAGES)]
    return row([name, CASES[name].layers, *cells, f"{measured['gib']:.2f}", verdict], WIDTHS)


def _apart(name: str) -> dict[str, Any] | None:
    """What a process of its own measures of a case; None where there is no plan."""
    done = subprocess.run([sys.executable, __file__, name], stdout=subprocess.PIPE, text=True, check=False)
    return None if done.returncode else json.loads(done.stdout)


def _exponent(points: Sequence[tuple[float, float]]) -> float:
    """Slope of the least-squares line through the logarithms."""
    import numpy as np

    ops, seconds = np.log(np.array(points)).T
    return float(np.polyfit(ops, seconds, 1)[0])


def measure(case: Case) -> dict[str, Any]:
    """Seconds of CPU time of each stage from the start of the process, and the process's largest resident memory."""
    gc.set_threshold(*COLLECTIONS)  # as the command line does
    marks = [0.0]  # the process's start: imports count
    step = prepared(case.network, **case.build)
    marks.append(time.process_time())
    _ = step.everything
    marks.append(time.process_time())
    result, _ = planned(step, case.budget, **case.options)
    marks.append(time.process_time())
    encode_plan(result.plan)
    marks.append(time.process_time())
    wall = result.report["seconds"]
    part = (marks[3] - marks[2]) / max(1e-9, wall["plan"] + wall["bound"] + wall["verify"])
    return {
        "ops": len(step.indexed.ops),
        "prepare": marks[1] - marks[0],
        "keep-all": marks[2] - marks[1],
        **{key: wall[key] * part for key in ("plan", "bound", "verify")},  # wall seconds, scaled to CPU time
        "encode": marks[4] - marks[3],
        "share": case.budget / step.everything.arena_bytes,
        "s": marks[4],
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


if __name__ == "__main__":
    print(json.dumps(measure(CASES[sys.argv[1]])))
