"""What the GPU benchmarks share: models, plans, tables, and the line that says where numbers come from."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from snplan import models
from snplan.compiler import CompileOptions, compile_model
from snplan.frontend import load_model, read_weights
from snplan.plan.index import index_plan
from snplan.plan.model import StepPlan
from snplan.runtime.values import sources

FOLDER = Path(tempfile.gettempdir()) / "snplan-gpu"


def model_file(name: str, **options: Any) -> Path:
    """The file of a zoo model, built once."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = "-".join(f"{key}{value}" for key, value in sorted(options.items())).translate(str.maketrans(",() ", "_   "))
    path = FOLDER / f"{name}-{text.replace(' ', '')}.onnx"
    if not path.exists():
        models.save(models.build(name, **options), path)
    return path


def plan_of(path: Path, **options: Any) -> StepPlan:
    """A plan of a model file."""
    return compile_model(path, CompileOptions(**options)).plan


def weights_of(path: Path, plan: StepPlan) -> dict[str, Any]:
    """The weights that a plan's session starts from."""
    held = sources(index_plan(plan), inputs=False)
    return dict(read_weights(load_model(path), [row.name for row in held if row.role != "optimizer"]))


def quick_data(plan: StepPlan) -> dict[str, Any]:
    """Inputs of a plan for which the numbers do not matter: a few samples repeated, images channels-last in memory."""
    dice = np.random.default_rng(0)
    feed: dict[str, Any] = {}
    for row in sources(index_plan(plan), inputs=True):
        few = (min(row.shape[0], 8), *row.shape[1:])
        values = dice.standard_normal(few, np.float32) if row.dtype == "float32" else dice.integers(0, 2, few)
        values = np.moveaxis(values, 1, -1) if values.ndim == 4 else values
        whole = np.resize(values, (row.shape[0], *values.shape[1:])).astype(row.dtype, copy=False)
        feed[row.name] = np.moveaxis(whole, -1, 1) if whole.ndim == 4 else whole
    return feed


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def provenance() -> str:
    """The device and the versions that numbers hold for."""
    from snplan.runtime.cuda.packages import cudnn, versions

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    device = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"{device}; cuDNN {cudnn().backend_version()}; {found}"
