"""Small models of the zoo, planned, with their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from snplan import models
from snplan.compiler import CompileOptions, compile_model
from snplan.frontend import load_model, read_weights
from snplan.plan.index import index_plan
from snplan.plan.model import StepPlan
from snplan.runtime.numpy import Array
from snplan.runtime.values import sources

TINY: dict[str, dict[str, Any]] = {
    "alexnet": {"image": 67, "width": 0.1, "classes": 7},
    "densenet121": {"image": 32, "growth": 4, "classes": 7},
    "gpt2": {"layers": 2, "heads": 2, "embed": 8, "context": 10, "vocab": 31},
    "inception_v4": {"image": 75, "width": 0.1, "classes": 7, "blocks": (1, 1, 1)},
    "mobilenet_v2": {"image": 32, "width": 0.1, "classes": 7},
    "resnet": {"blocks": (1, 2, 1, 1), "image": 32, "width": 0.1, "classes": 7},
    "unet": {"image": 16, "width": 0.1, "levels": 2, "classes": 7},
    "vgg16": {"image": 32, "width": 0.05, "classes": 7},
    "vit_b16": {"image": 32, "layers": 2, "heads": 2, "embed": 8, "classes": 7},
}


def planned(
    name: str, folder: Path, *, given: dict[str, Any] | None = None, share: float = 1.0, **options: Any
) -> tuple[StepPlan, dict[str, Array]]:
    """A model's plan and its weights. `share` between 0 (the floor) and 1 (keep-all) sets the budget."""
    key = repr((name, given, share, sorted(options.items())))
    if key not in _PLANNED:
        _PLANNED[key] = _planned(name, folder / f"{name}.onnx", given or {}, share, options)
    return _PLANNED[key]


_PLANNED: dict[str, tuple[StepPlan, dict[str, Array]]] = {}


def _planned(
    name: str, path: Path, given: dict[str, Any], share: float, options: dict[str, Any]
) -> tuple[StepPlan, dict[str, Array]]:
    models.save(models.build(name, **{**TINY.get(name, {}), "batch": 2, **given}), path)
    result = compile_model(path, CompileOptions(budget_bytes=64 << 30, reserve_bytes=0, **options))
    if share < 1:
        report = result.report
        budget = int(report["floor_bytes"] + share * (report["keep_all_bytes"] - report["floor_bytes"]))
        result = compile_model(path, CompileOptions(budget_bytes=budget, reserve_bytes=0, **options))
    held = sources(index_plan(result.plan), inputs=False)
    return result.plan, read_weights(load_model(path), [row.name for row in held if row.role != "optimizer"])
