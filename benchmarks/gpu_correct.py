"""Loss and all gradients of the zoo against PyTorch in float64: python benchmarks/gpu_correct.py [MODEL ...]

Relative L2 over all gradients: at most 1e-5 in fp32 and 2e-3 in tf32. Exits 1 where a row misses that bar.

Beside it stand two things about PyTorch's own step in that mode: how far it is from float64 itself, and how many of the
decisions of ReLUs (which elements pass) and max pools (which element is taken) it makes otherwise than float64 does. A
fraction f of decisions made otherwise changes gradients by about the root of f, whoever computes them. Where PyTorch
makes some otherwise, "own" marks a miss of at most twice its distance, which is still a miss; the smooth twin of such a
network (Softplus for ReLU, average for max pool) is measured too. `--only plan` makes the plans alone.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from gpu_common import FOLDER, kept_plan, model_file, plan_of, provenance, table, weights_of

from snplan.plan.model import StepPlan
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.data import random_data
from snplan.runtime.session import TrainingSession

MODELS: dict[str, list[dict[str, Any]]] = {
    "alexnet": [{"batch": 16, "dropout": 0.0}, {"batch": 1, "dropout": 0.0}],
    "vgg16": [{"batch": 8, "dropout": 0.0}, {"batch": 1, "image": 64, "dropout": 0.0}],
    "resnet50": [{"batch": 16}],
    "inception_v4": [{"batch": 8, "dropout": 0.0}],
    "densenet121": [{"batch": 16}],
    "unet": [{"batch": 2}],
    "vit_b16": [{"batch": 4}],
    "gpt2": [{"batch": 2, "context": 256, "dropout": 0.0}],
}
BARS = {"fp32": 1e-5, "tf32": 2e-3}
HEADER = [
    "model",
    "batch",
    "image",
    "mode",
    "arena GiB",
    "loss",
    "gradients",
    "PyTorch's own",
    "decisions",
    "otherwise",
]


def distance(found: dict[str, Any], right: dict[str, Any]) -> float:
    """Relative L2 over all gradients."""
    error = sum(float(np.square(found[name].astype(np.float64) - right[name]).sum()) for name in right)
    return math.sqrt(error / sum(float(np.square(right[name]).sum()) for name in right))


def worst(found: dict[str, Any], other: dict[str, Any], right: dict[str, Any]) -> str:
    """The parameter whose gradient is farthest from float64 against `other`'s distance there, and that ratio."""
    ratios = {}
    for name, value in right.items():
        ours, theirs = (np.linalg.norm((x[name].astype(np.float64) - value).reshape(-1)) for x in (found, other))
        ratios[name] = float(ours / theirs) if theirs else 1.0
    name = max(ratios, key=lambda name: ratios[name])
    return f"{ratios[name]:.1f} x ({name})"


def smooth_twin(path: Path) -> Path | None:
    """The same network without kinks; None where it has none."""
    target = path.with_name(f"{path.stem}-smooth.onnx")
    model = onnx.load(path)
    replaced = {"Relu": "Softplus", "MaxPool": "AveragePool"}
    nodes = [node for node in model.graph.node if node.op_type in replaced]
    for node in nodes:
        node.op_type = replaced[node.op_type]
    if nodes and not target.exists():
        onnx.save(model, target)
    return target if nodes else None


def planned(path: Path, precision: str, plans: Path) -> StepPlan:
    """A plan whose budget is halfway between the floor and keep-all."""

    def make() -> StepPlan:
        wide = plan_of(path, budget_bytes=1 << 37, reserve_bytes=0, precision=precision)
        budget = (wide.floor_bytes + wide.arena_bytes) // 2
        return plan_of(path, budget_bytes=budget, reserve_bytes=0, precision=precision)

    return kept_plan(plans / f"{path.stem}-{precision}-half.plan.json.gz", make)


def planned_step(path: Path, plan: StepPlan) -> tuple[float, dict[str, Any], Any]:
    """Loss, gradients, and what was fed."""
    with TrainingSession(plan, weights_of(path, plan), backend=CudaBackend()) as session:
        feed = random_data(session.index, seed=1).step(1)
        return session.step(feed), session.gradients(), feed


class Torch:
    """The same steps by PyTorch."""

    def __init__(self, path: Path, feed: dict[str, Any]) -> None:
        import torch
        from torch_model import gradients_of

        self._torch, self._step = torch, gradients_of
        self._model = onnx.load(path)
        self._inputs = {name: value for name, value in feed.items() if name != "target"}
        self._target = feed["target"]
        self._right: list[Any] = []
        self.loss, self.gradients = self._run(torch.float64, self._right)

    def own(self, precision: str) -> tuple[dict[str, Any], int, int]:
        """Gradients in float32, decisions in all, and those that float64 makes otherwise."""
        torch = self._torch
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        made: list[Any] = []
        _, gradients = self._run(torch.float32, made)
        differ = sum(int((a != b).sum()) for a, b in zip(made, self._right, strict=True))
        return gradients, sum(a.numel() for a in made), differ

    def _run(self, dtype: Any, decisions: list[Any]) -> tuple[float, dict[str, Any]]:
        result = self._step(self._model, self._inputs, self._target, dtype, decisions=decisions)
        self._torch.cuda.empty_cache()
        return result


def compared(path: Path, plans: Path, label: Callable[[str], list[str]]) -> tuple[list[list[str]], bool]:
    """A line of the table for each mode, and whether all are within the bars."""
    torch: Torch | None = None
    rows, fine = [], True
    for precision, bar in BARS.items():
        start = time.perf_counter()
        plan = planned(path, precision, plans)
        loss, gradients, feed = planned_step(path, plan)
        middle = time.perf_counter()
        torch = Torch(path, feed) if torch is None else torch
        own, count, differ = torch.own(precision)
        error, theirs = distance(gradients, torch.gradients), distance(own, torch.gradients)
        within = "bar" if error <= bar else "own" if differ and error <= 2 * theirs else "NO"
        fine = fine and error <= bar
        cells = [f"{plan.arena_bytes / 2**30:.2f}", f"{abs(loss - torch.loss) / torch.loss:.1e}", f"{error:.1e}"]
        cells += [f"{theirs:.1e}", f"{count:,}", f"{differ:,}", worst(gradients, own, torch.gradients), within]
        rows.append([*label(precision), *cells])
        times = f"{middle - start:.0f} + {time.perf_counter() - middle:.0f} s"
        print(rows[-1], times, file=sys.stderr, flush=True)
    return rows, fine


def label(name: str, options: dict[str, Any]) -> Callable[[str], list[str]]:
    """The first cells of a line."""
    return lambda precision: [name, str(options["batch"]), str(options.get("image", "")), precision]


def main() -> int:
    """Print the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--plans", type=Path, default=FOLDER / "correct-plans")
    parser.add_argument("--only", choices=("plan",))
    given = parser.parse_args()
    rows, fine = [], True
    for name in given.models or list(MODELS):
        for options in MODELS[name]:
            path = model_file(name, **options)
            for title, file in ((name, path), (f"{name}, smooth", smooth_twin(path))):
                if file is not None and given.only == "plan":
                    for precision in BARS:
                        planned(file, precision, given.plans)
                elif file is not None:
                    found, good = compared(file, given.plans, label(title, options))
                    rows += found
                    fine = fine and good
    if given.only == "plan":
        return 0
    print(table([*HEADER, "worst against PyTorch", "within"], rows))
    print(provenance())
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
