"""Loss and all gradients of the zoo against PyTorch in float64: python benchmarks/gpu_correct.py [MODEL ...]

Relative L2 over all gradients: at most 1e-5 in fp32 and 2e-3 in tf32. Exits 1 where a row misses that bar.

What PyTorch's own step in that mode is away from float64 stands beside it: in networks with kinks one rounding that
takes a number across the kink of a ReLU or the tie of a max pool changes a gradient by as much as it is, in any
arithmetic. "own" marks a miss of at most twice that distance, which is still a miss. For such networks the smooth twin
(Softplus for ReLU, average for max pool) is measured too.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from gpu_common import model_file, plan_of, provenance, table, weights_of
from torch_model import gradients_of

from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.data import random_data
from snplan.runtime.session import TrainingSession

MODELS: dict[str, dict[str, Any]] = {
    "alexnet": {"batch": 16, "dropout": 0.0},
    "vgg16": {"batch": 8, "dropout": 0.0},
    "resnet50": {"batch": 16},
    "inception_v4": {"batch": 8, "dropout": 0.0},
    "densenet121": {"batch": 16},
    "unet": {"batch": 2},
    "vit_b16": {"batch": 4},
    "gpt2": {"batch": 2, "context": 256, "dropout": 0.0},
}
BARS = {"fp32": 1e-5, "tf32": 2e-3}


def distance(found: dict[str, Any], right: dict[str, Any]) -> float:
    """Relative L2 over all gradients."""
    error = sum(float(np.square(found[name].astype(np.float64) - right[name]).sum()) for name in right)
    return math.sqrt(error / sum(float(np.square(right[name]).sum()) for name in right))


def smooth_twin(path: Path) -> Path | None:
    """The same network without kinks; None where it has none."""
    target = path.with_name(f"{path.stem}-smooth.onnx")
    model = onnx.load(path)
    replaced = {"Relu": "Softplus", "MaxPool": "AveragePool"}
    nodes = [node for node in model.graph.node if node.op_type in replaced]
    for node in nodes:
        node.op_type = replaced[node.op_type]
    if nodes:
        onnx.save(model, target)
    return target if nodes else None


def planned_step(path: Path, precision: str) -> tuple[float, dict[str, Any], Any, float]:
    """Loss, gradients, what was fed, and the budget in GiB: halfway between the floor and keep-all."""
    wide = plan_of(path, budget_bytes=1 << 37, reserve_bytes=0, precision=precision)
    budget = (wide.floor_bytes + wide.arena_bytes) // 2
    plan = plan_of(path, budget_bytes=budget, reserve_bytes=0, precision=precision)
    with TrainingSession(plan, weights_of(path, plan), backend=CudaBackend()) as session:
        feed = random_data(session.index, seed=1).step(1)
        loss = session.step(feed)
        return loss, session.gradients(), feed, plan.arena_bytes / 2**30


def torch_step(
    path: Path, feed: dict[str, Any], dtype: torch.dtype, *, tf32: bool = False
) -> tuple[float, dict[str, Any]]:
    """The same by PyTorch."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    inputs = {name: value for name, value in feed.items() if name != "target"}
    result = gradients_of(onnx.load(path), inputs, feed["target"], dtype)
    torch.cuda.empty_cache()
    return result


def compared(name: str, path: Path) -> tuple[list[list[str]], bool]:
    """A line of the table for each mode, and whether all are within the bars."""
    right: tuple[float, dict[str, Any]] | None = None
    rows, fine = [], True
    for precision, bar in BARS.items():
        start = time.perf_counter()
        loss, gradients, feed, arena = planned_step(path, precision)
        middle = time.perf_counter()
        if right is None:
            right = torch_step(path, feed, torch.float64)
        own = distance(torch_step(path, feed, torch.float32, tf32=precision == "tf32")[1], right[1])
        error = distance(gradients, right[1])
        within = "bar" if error <= bar else "own" if error <= 2 * own else "NO"
        fine = fine and error <= bar
        cells = [name, precision, f"{arena:.2f}", f"{abs(loss - right[0]) / right[0]:.1e}", f"{error:.1e}"]
        rows.append([*cells, f"{own:.1e}", f"{len(gradients)}", within])
        times = f"{middle - start:.0f} + {time.perf_counter() - middle:.0f} s"
        print(rows[-1], times, file=sys.stderr, flush=True)
    return rows, fine


def main(names: list[str]) -> int:
    """Print the table; 1 where a bar is missed."""
    rows, fine = [], True
    for name in names or list(MODELS):
        path = model_file(name, **MODELS[name])
        for label, file in ((name, path), (f"{name}, smooth", smooth_twin(path))):
            if file is not None:
                found, good = compared(label, file)
                rows += found
                fine = fine and good
    header = ["model", "mode", "arena GiB", "loss", "gradients", "PyTorch's own", "parameters", "within"]
    print(table(header, rows))
    print(provenance())
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
