"""What the GPU benchmarks share: models, plans, tables, and the line that says where numbers come from."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from snplan import models
from snplan.compiler import CompileOptions, compile_model
from snplan.frontend import load_model, read_weights
from snplan.plan.file import read_plan, write_plan
from snplan.plan.index import index_plan
from snplan.plan.model import StepPlan
from snplan.runtime.session import TrainingSession
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


def kept_plan(file: Path, make: Callable[[], StepPlan]) -> StepPlan:
    """The plan in a file, made where there is none: planning and running may be two machines'."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_plan(make(), file)
    return read_plan(file)


def weights_of(path: Path, plan: StepPlan) -> dict[str, Any]:
    """The weights that a plan's session starts from."""
    held = sources(index_plan(plan), inputs=False)
    return dict(read_weights(load_model(path), [row.name for row in held if row.role != "optimizer"]))


def filled_blocks(session: TrainingSession) -> list[dict[str, Any]]:
    """Inputs for which the numbers do not matter, a few samples repeated, in the session's pinned blocks.

    Steps take them in turn and copy nothing on the host: what is measured is the device.
    """
    dice = np.random.default_rng(0)
    blocks = list(session.input_blocks())
    for name in blocks[0]:
        array = blocks[0][name]
        few = (min(array.shape[0], 8), *array.shape[1:])
        sample = dice.standard_normal(few, np.float32) if array.dtype.kind == "f" else dice.integers(0, 2, few)
        for block in blocks:
            for start in range(0, array.shape[0], few[0]):
                part = block[name][start : start + few[0]]
                part[...] = sample[: len(part)]
    return blocks


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
