"""A small sound plan, written by hand: y is moved to the host and back, a is dropped and recomputed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from snplan.cli import main
from snplan.plan.model import (
    FORMAT,
    Alloc,
    Extent,
    Free,
    ModelRef,
    Offload,
    Persistent,
    Place,
    PlanOp,
    PlanTensor,
    Prefetch,
    Recompute,
    Run,
    StepPlan,
)

SIZE = 4096  # bytes of every tensor but the loss: 1024 float32


def small_plan(**changes: Any) -> StepPlan:
    """a = x * w, y = relu(a), loss = sum(y), g = relu'(y) * a, w:grad = g * x, w:next = sgd(w, w:grad)."""
    fields: dict[str, Any] = {
        "format": FORMAT,
        "snplan_version": "0.1.0",
        "model": ModelRef(sha256="0" * 64, name="small.onnx"),
        "options": {"mode": "train", "optimizer": "sgd"},
        "device": {"name": "h200", "capacity_bytes": 1 << 37},
        "budget_bytes": 1 << 20,
        "reserve_bytes": 0,
        "arena_bytes": 7 * SIZE + 512,
        "peak_live_bytes": 5 * SIZE + 512,
        "host_arena_bytes": SIZE,
        "step_time_us": 120,
        "lower_bound_us": 100,
        "floor_bytes": 3 * SIZE,
        "tensors": _tensors(),
        "ops": _ops(),
        "buffers": [Extent(id=i, offset=i * SIZE, bytes=SIZE) for i in range(7)]
        + [Extent(id=7, offset=7 * SIZE, bytes=512)],
        "slots": [Extent(id=0, offset=0, bytes=SIZE)],
        "resident": [Place(tensor="x", buffer=0), Place(tensor="w", buffer=1)],
        "persistent": [
            Persistent(tensor="w", becomes="w:next", buffer=1),
        ],
        "outputs": [Place(tensor="loss", buffer=7)],
        "actions": _actions(),
    }
    return StepPlan(**{**fields, **changes})


def _tensors() -> list[PlanTensor]:
    roles = {
        "x": "input",
        "w": "parameter",
        "a": "activation",
        "y": "activation",
        "g": "gradient",
        "w:grad": "gradient",
        "w:next": "parameter",
    }
    rows = [PlanTensor(name=n, dtype="float32", shape=[1024], bytes=SIZE, role=role) for n, role in roles.items()]
    return [*rows, PlanTensor(name="loss", dtype="float32", shape=[], bytes=4, role="loss")]


def _op(kind: str, phase: str, inputs: str, output: str, **attrs: Any) -> PlanOp:
    return PlanOp(
        name=f"{kind} {output}",
        kind=kind,
        phase=phase,
        inputs=inputs.split(),
        outputs=[output],
        attrs=attrs,
        nodes=[],
        rng=None,
    )


def _ops() -> list[PlanOp]:
    return [
        _op("mul", "forward", "x w", "a"),
        _op("relu", "forward", "a", "y"),
        _op("reduce_sum", "forward", "y", "loss", axes=[0], keepdims=False),
        _op("relu_grad", "backward", "y a", "g"),
        _op("mul", "backward", "g x", "w:grad"),
        _op("sgd_update", "update", "w w:grad", "w:next", lr=0.01, weight_decay=0.0),
    ]


def _actions() -> list[Any]:
    return [
        Alloc(buffer=2),
        Run(op="mul a", reads=[("x", 0), ("w", 1)], writes=[("a", 2)], after=[]),
        Alloc(buffer=3),
        Run(op="relu y", reads=[("a", 2)], writes=[("y", 3)], after=[]),
        Free(buffer=2),
        Offload(tensor="y", buffer=3, slot=0, after=[3]),
        Alloc(buffer=7),
        Run(op="reduce_sum loss", reads=[("y", 3)], writes=[("loss", 7)], after=[]),
        Free(buffer=3),
        Alloc(buffer=4),
        Recompute(op="mul a", reads=[("x", 0), ("w", 1)], writes=[("a", 4)], after=[]),
        Alloc(buffer=5),
        Prefetch(tensor="y", slot=0, buffer=5, after=[5]),
        Alloc(buffer=6),
        Run(op="relu_grad g", reads=[("y", 5), ("a", 4)], writes=[("g", 6)], after=[12]),
        Free(buffer=4),
        Free(buffer=5),
        Alloc(buffer=2),
        Run(op="mul w:grad", reads=[("g", 6), ("x", 0)], writes=[("w:grad", 2)], after=[]),
        Free(buffer=6),
        Run(op="sgd_update w:next", reads=[("w", 1), ("w:grad", 2)], writes=[("w:next", 1)], after=[]),
        Free(buffer=2),
    ]


def answer(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    """The one JSON object of a command, which ends with `code`."""
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found
