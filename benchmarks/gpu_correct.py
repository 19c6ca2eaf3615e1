"""Loss and all gradients of the zoo against PyTorch in float64: python benchmarks/gpu_correct.py [MODEL ...]

Relative L2 over all gradients: at most 1e-5 in fp32 and 2e-3 in tf32. Exits 1 where one is above. The columns of
PyTorch's own fp32 and tf32 say how far a step of the same arithmetic is from float64 without any planning.
"""

from __future__ import annotations

import math
import sys
import time
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


def planned_step(path: Any, precision: str) -> tuple[float, dict[str, Any], Any, float]:
    """Loss, gradients, what was fed, and the budget in GiB: halfway between the floor and keep-all."""
    wide = plan_of(path, budget_bytes=1 << 37, reserve_bytes=0, precision=precision)
    budget = (wide.floor_bytes + wide.arena_bytes) // 2
    plan = plan_of(path, budget_bytes=budget, reserve_bytes=0, precision=precision)
    with TrainingSession(plan, weights_of(path, plan), backend=CudaBackend()) as session:
        feed = random_data(session.index, seed=1).step(1)
        loss = session.step(feed)
        return loss, session.gradients(), feed, plan.arena_bytes / 2**30


def torch_step(
    path: Any, feed: dict[str, Any], dtype: torch.dtype, *, tf32: bool = False
) -> tuple[float, dict[str, Any]]:
    """The same by PyTorch."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    inputs = {name: value for name, value in feed.items() if name != "target"}
    result = gradients_of(onnx.load(path), inputs, feed["target"], dtype)
    torch.cuda.empty_cache()
    return result


def main(names: list[str]) -> int:
    """Print the table; 1 where a bar is missed."""
    rows, missed = [], 0
    for name in names or list(MODELS):
        start = time.perf_counter()
        path = model_file(name, **MODELS[name])
        right = None
        for precision, bar in BARS.items():
            loss, gradients, feed, arena = planned_step(path, precision)
            if right is None:
                right = torch_step(path, feed, torch.float64)
            own = distance(torch_step(path, feed, torch.float32, tf32=precision == "tf32")[1], right[1])
            error = distance(gradients, {key: right[1][key] for key in gradients})
            complete = gradients.keys() == right[1].keys() - {"target"}
            fine = error <= bar and complete
            missed += not fine
            rows.append(
                [
                    name,
                    precision,
                    f"{arena:.2f} GiB",
                    f"{abs(loss - right[0]) / right[0]:.1e}",
                    f"{error:.1e}",
                    f"{own:.1e}",
                    f"{len(gradients)}/{len(right[1])}",
                    "yes" if fine else "NO",
                ]
            )
            print(rows[-1], f"{time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    header = ["model", "mode", "arena", "loss", "gradients", "PyTorch's own", "parameters", "within"]
    print(table(header, rows))
    print(provenance())
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
