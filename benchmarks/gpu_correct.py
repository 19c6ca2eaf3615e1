"""Loss and all gradients of the zoo against PyTorch in float64: python benchmarks/gpu_correct.py [MODEL ...]

Relative L2 over all gradients: at most 1e-5 in fp32 and 2e-3 in tf32. Exits 1 where a row misses that bar.

Beside it stand two things about PyTorch's own step in that mode: how far it is from float64 itself, and how many of the
decisions of ReLUs (which elements pass) and max pools (which element is taken) it makes otherwise than float64 does. A
fraction f of decisions made otherwise changes gradients by about the root of f, whoever computes them. Where PyTorch
makes some otherwise, "own" marks a miss of at most twice its distance, which is still a miss; the smooth twin of such a
network (Softplus for ReLU, average for max pool) is measured too. So are, in fp32, small sizes with inputs whose kinks
lie clear: of seeds from 1 on the first is taken with which PyTorch's float32 makes every decision as float64 does (so
the choice knows nothing of what is measured). `--only plan` makes the plans alone.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from gpu_common import FOLDER, kept_plan, model_file, plan_of, provenance, table, weights_of

from snplan.plan.index import index_plan
from snplan.plan.model import StepPlan
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.data import random_data
from snplan.runtime.session import TrainingSession

MODELS: dict[str, list[dict[str, Any]]] = {
    "alexnet": [{"batch": 16, "dropout": 0.0}, {"batch": 1, "dropout": 0.0, "untied": 60}],
    "vgg16": [{"batch": 8, "dropout": 0.0}, {"batch": 1, "image": 64, "dropout": 0.0, "untied": 60}],
    "resnet50": [{"batch": 16}, {"batch": 4, "image": 32, "untied": 60}],
    "inception_v4": [
        {"batch": 8, "dropout": 0.0},
        {"batch": 4, "image": 75, "width": 0.25, "dropout": 0.0, "untied": 60},
    ],
    "densenet121": [{"batch": 16}, {"batch": 4, "image": 32, "untied": 60}],
    "unet": [{"batch": 2}, {"batch": 1, "image": 64, "untied": 60}],
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


def planned_step(path: Path, plan: StepPlan, feed: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Loss and gradients."""
    with TrainingSession(plan, weights_of(path, plan), backend=CudaBackend()) as session:
        return session.step(feed), session.gradients()


def inputs_of(plan: StepPlan, seed: int) -> dict[str, Any]:
    """Random inputs."""
    return random_data(index_plan(plan), seed=seed).step(1)


class Torch:
    """The same steps by PyTorch."""

    def __init__(self, path: Path, feed: dict[str, Any], seed: int) -> None:
        import torch
        from torch_model import gradients_of

        self._torch, self._step = torch, gradients_of
        self.feed, self.seed = feed, seed
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


def compared(case: Case, plans: Path) -> tuple[list[list[str]], bool]:
    """A line of the table for each mode, and whether all are within the bars."""
    rows, fine = [], True
    torch: Torch | None = None
    for precision in ("fp32",) if case.untied else BARS:
        start = time.perf_counter()
        plan = planned(case.path, precision, plans)
        if torch is None:
            torch = clear_of_ties(case, plan) if case.untied else Torch(case.path, inputs_of(plan, 1), 1)
        own, count, differ = torch.own(precision)
        loss, gradients = planned_step(case.path, plan, torch.feed)
        error, theirs = distance(gradients, torch.gradients), distance(own, torch.gradients)
        within = "bar" if error <= BARS[precision] else "own" if differ and error <= 2 * theirs else "NO"
        fine = fine and within == "bar"
        cells = [case.name, case.batch, case.image, torch.seed, precision, f"{plan.arena_bytes / 2**30:.2f}"]
        cells += [f"{abs(loss - torch.loss) / torch.loss:.1e}", f"{error:.1e}", f"{theirs:.1e}"]
        cells += [f"{count:,}", f"{differ:,}", worst(gradients, own, torch.gradients), within]
        rows.append([str(cell) for cell in cells])
        print(rows[-1], f"{time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return rows, fine


def clear_of_ties(case: Case, plan: StepPlan) -> Torch:
    """PyTorch's steps on the first inputs with which float32 decides everything as float64; else on the last tried."""
    for seed in range(1, case.untied + 1):
        torch = Torch(case.path, inputs_of(plan, seed), seed)
        if torch.own("fp32")[2] == 0:
            break
    return torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model file, how it is called in the table, and how many seeds may be tried for inputs clear of ties."""

    name: str
    path: Path
    batch: int
    image: str
    untied: int


def cases(names: list[str]) -> Iterator[Case]:
    """What is measured: each model, and its smooth twin where it has kinks."""
    for name in names:
        for options in MODELS[name]:
            size = {key: value for key, value in options.items() if key != "untied"}
            untied = options.get("untied", 0)
            path = model_file(name, **size)
            shown = " ".join(
                f"{options[key]}{'' if key == 'image' else ' wide'}" for key in ("image", "width") if key in size
            )
            fields: dict[str, Any] = {"batch": options["batch"], "image": shown}
            yield Case(name=name, path=path, untied=untied, **fields)
            twin = None if untied else smooth_twin(path)
            if twin is not None:
                yield Case(name=f"{name}, smooth", path=twin, untied=0, **fields)


def main() -> int:
    """Print the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--plans", type=Path, default=FOLDER / "correct-plans")
    parser.add_argument("--only", choices=("plan",))
    given = parser.parse_args()
    rows, fine = [], True
    for case in cases(given.models or list(MODELS)):
        if given.only == "plan":
            for precision in ("fp32",) if case.untied else BARS:
                planned(case.path, precision, given.plans)
            continue
        found, good = compared(case, given.plans)
        rows += found
        fine = fine and good
    if given.only == "plan":
        return 0
    print(table([*HEADER, "worst against PyTorch", "within"], rows))
    print(provenance())
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
