"""What the planner benchmarks share: zoo models without weights, prepared once, and tables."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from snplan import models
from snplan.compiler import CompileOptions, CompileResult, Prepared, plan_prepared, prepare
from snplan.frontend import load_model
from snplan.plan.file import encode_plan

# Every network of the zoo at a size that a planner is asked for.
ZOO: dict[str, dict[str, Any]] = {
    "alexnet": {"batch": 128},
    "densenet121": {"batch": 32},
    "googlenet": {"batch": 64},
    "gpt2": {"batch": 4},
    "inception_v4": {"batch": 32},
    "mlp": {"batch": 64},
    "mobilenet_v2": {"batch": 64},
    "resnet18": {"batch": 64},
    "resnet50": {"batch": 32},
    "resnet152": {"batch": 32},
    "unet": {"batch": 8},
    "vgg16": {"batch": 32},
    "vit_b16": {"batch": 32},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A section's verdict: whether every bar was reached, and its lines for people."""

    reached: bool
    lines: tuple[str, ...] = ()


Section = Callable[[Sequence[str]], Outcome]


def prepared(
    name: str, *, device: str = "h200", optimizer: str = "sgd", conv_pieces: int = 1, **build: Any
) -> Prepared:
    """A zoo model's training step with its costs; `build` are the model's options."""
    model = models.build(name, light=True, **build)
    options = CompileOptions(
        budget_bytes=0, reserve_bytes=0, device=device, optimizer=optimizer, conv_pieces=conv_pieces
    )
    return prepare(load_model(model.SerializeToString(deterministic=True)), options)


def planned(step: Prepared, budget: int, **options: Any) -> tuple[CompileResult, float]:
    """The plan of a budget, and the seconds of this process that it took."""
    begin = time.process_time()
    result = plan_prepared(step, replace(step.options, budget_bytes=budget, **options))
    return result, time.process_time() - begin


def judged(result: CompileResult, judge: Path | None) -> str | None:
    """What an outside checker of plans finds first; None when the plan is sound, or there is no checker."""
    if judge is None:
        return None
    with tempfile.NamedTemporaryFile(suffix=".plan.json") as file:
        file.write(encode_plan(result.plan))
        file.flush()
        done = subprocess.run([sys.executable, judge, file.name], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else (done.stdout or done.stderr).splitlines()[0]


def row(cells: Sequence[object], widths: Sequence[int]) -> str:
    """Cells in columns: the first to the left, the others to the right."""
    return f"{cells[0]!s:<{widths[0]}}" + "".join(
        f"{cell!s:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=False)
    )


def gib(size: float) -> str:
    """Bytes in GiB."""
    return f"{size / 2**30:.2f}"
