"""Loss and all gradients of the zoo against PyTorch in float64: python benchmarks/gpu_correct.py [MODEL ...]

Relative L2 over all gradients: at most 1e-5 in fp32 and 2e-3 in tf32 ("within" says bar).

ReLUs decide which elements pass and max pools which element is taken, and rounding makes some of these decisions
otherwise than float64 does: a fraction f changes gradients by about the root of f, whoever computes them. So a second
distance stands beside the first, "decided": from the gradients in float64 of the network whose ReLUs and max pools take
the decisions that the measured step took, as it left them in memory. It is the error of the arithmetic alone, and has
the same bar ("within" says decided). Beside both are PyTorch's, of its own step in that mode. "otherwise" counts
decisions of the step that float64 makes otherwise, and PyTorch's.

Deep networks with random weights also magnify rounding by themselves, whoever computes them. So two twins of each are
measured too: smooth, with Softplus for ReLU and average for max pool, which decides nothing; and, where there are batch
normalisations, shifted: these start with a bias of 2 instead of 0, so that most elements pass.

So are, in fp32, small sizes on inputs that are clear of ties: those of the first 24 seeds with which no ReLU's input,
and no lead in a max pool, is within four times the error that PyTorch's float32 usually has there (so the choice knows
nothing of what is measured). The largest size with three such seeds is taken, and all three are shown; networks with
batch normalisations are shifted. `--only plan`
makes the plans alone, `--only clear` measures these alone; `--jobs N` runs so many networks at a time. Exits 1 where
a row is within neither.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from gpu_common import FOLDER, kept_plan, model_file, plan_of, provenance, table, weights_of
from onnx import numpy_helper

from snplan.plan.index import PlanIndex, index_plan
from snplan.plan.model import StepPlan
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.data import random_data
from snplan.runtime.session import TrainingSession, gradient_names

MODELS: dict[str, list[dict[str, Any]]] = {
    "alexnet": [{"batch": 16, "dropout": 0.0}],
    "vgg16": [{"batch": 8, "dropout": 0.0}],
    "resnet50": [{"batch": 16}],
    "inception_v4": [
        {"batch": 8, "dropout": 0.0},
        {"batch": 16, "blocks": (1, 1, 1), "dropout": 0.0},
    ],
    "densenet121": [{"batch": 16}],
    "unet": [{"batch": 2}],
    "vit_b16": [{"batch": 4}],
    "gpt2": [{"batch": 2, "context": 256, "dropout": 0.0}],
}
# Smaller and smaller sizes of networks with kinks, for inputs that are clear of ties.
SMALL: dict[str, list[dict[str, Any]]] = {
    "alexnet": [{"batch": 1, "width": width, "dropout": 0.0} for width in (1.0, 0.5, 0.25)],
    "vgg16": [{"batch": 1, "image": 64, "width": width, "dropout": 0.0} for width in (0.5, 0.25, 0.125)],
    "resnet50": [
        {"batch": 16, "image": 64, "width": 1 / 32},
        {"batch": 16, "image": 64, "width": 1 / 64},
        {"network": "resnet", "batch": 16, "image": 64, "width": 1 / 32, "blocks": (1, 1, 1, 1)},
    ],
    "inception_v4": [
        {"batch": 8, "image": 107, "width": width, "blocks": (1, 1, 1), "dropout": 0.0} for width in (1 / 16, 1 / 32)
    ],
    "densenet121": [{"batch": batch, "image": 64, "growth": 1} for batch in (16, 8)],
    "unet": [{"batch": 4, "image": 32, "width": width} for width in (1 / 8, 1 / 16)],
}
SEEDS, WANTED, REACH = 24, 3, 4.0
SHIFT = 2.0
BARS = {"fp32": 1e-5, "tf32": 2e-3}
HEADER = ["model", "batch", "size", "seed", "mode", "arena GiB", "loss", "gradients", "PyTorch's", "decided"]
HEADER += ["PyTorch's", "decisions", "otherwise", "PyTorch's", "worst against PyTorch", "within"]
Gradients: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Loss, gradients and decisions of one step."""

    loss: float
    gradients: Gradients
    decisions: list[Any]


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
    model = onnx.load(path)
    replaced = {"Relu": "Softplus", "MaxPool": "AveragePool"}
    nodes = [node for node in model.graph.node if node.op_type in replaced]
    for node in nodes:
        node.op_type = replaced[node.op_type]
    return _twin(model, path, "smooth") if nodes else None


def shifted_twin(path: Path) -> Path | None:
    """The same network whose batch normalisations add 2, so that most ReLUs pass; None where it has none."""
    model = onnx.load(path)
    biases = {node.input[2] for node in model.graph.node if node.op_type == "BatchNormalization"}
    for stored in model.graph.initializer:
        if stored.name in biases:
            value = numpy_helper.to_array(stored)
            stored.CopyFrom(numpy_helper.from_array(np.full_like(value, SHIFT), stored.name))
    return _twin(model, path, "shifted") if biases else None


def _twin(model: onnx.ModelProto, path: Path, word: str) -> Path:
    target = path.with_name(f"{path.stem}-{word}.onnx")
    if not target.exists():
        onnx.save(model, target)
    return target


def planned(path: Path, precision: str, plans: Path) -> StepPlan:
    """A plan whose budget is halfway between the floor and keep-all."""

    def make() -> StepPlan:
        wide = plan_of(path, budget_bytes=1 << 37, reserve_bytes=0, precision=precision)
        budget = (wide.floor_bytes + wide.arena_bytes) // 2
        return plan_of(path, budget_bytes=budget, reserve_bytes=0, precision=precision)

    return kept_plan(plans / f"{path.stem}-{precision}-half.plan.json.gz", make)


class Watched(CudaBackend):
    """A backend that also copies out what ReLUs and max pools decided."""

    watched: frozenset[str] = frozenset()

    def bind(self, index: PlanIndex, *, taps: Collection[str]) -> None:
        """As the backend does it."""
        super().bind(index, taps={*taps, *self.watched})


def planned_step(path: Path, plan: StepPlan, feed: dict[str, Any]) -> Step:
    """One step by the plan."""
    weights, backend, watched = weights_of(path, plan), Watched(), watched_names(path, plan)
    written = {name for op in plan.ops for name in op.outputs}
    backend.watched = frozenset(name for names in watched.values() for name in names if name in written)
    with TrainingSession(plan, weights, backend=backend) as session:
        loss, found, names = session.step(feed), dict(backend.tapped()), gradient_names(session.index)
    shapes = {tensor.name: tensor.shape for tensor in plan.tensors}
    return Step(
        loss=loss,
        gradients={name: found[grad].reshape(shapes[name]) for name, grad in names.items()},
        decisions=list(decisions_of(path, watched, {**weights, **found}, shapes)),
    )


def watched_names(path: Path, plan: StepPlan) -> dict[str, list[str]]:
    """For each ReLU and max pool, by its output, the tensors from which its decisions are seen.

    These are a ReLU's output, a max pool's positions, and, of a ReLU that only lives inside a fused op behind a batch
    normalisation, what that normalisation reads.
    """
    from torch_model import KINKS

    positions = {op.outputs[0]: op.outputs[1] for op in plan.ops if op.kind == "max_pool"}
    written = {name for op in plan.ops for name in op.outputs}
    norms = {
        node: op.inputs[:5]
        for op in plan.ops
        if op.kind == "fused" and [part[0] for part in op.attrs["parts"][:2]] == ["batch_norm_apply", "relu"]
        for node in op.nodes
    }
    kinks = [node for node in onnx.load(path, load_external_data=False).graph.node if node.op_type in KINKS]
    seen = {node.output[0]: positions.get(node.output[0], node.output[0]) for node in kinks}
    return {y: [seen[y]] if seen[y] in written else norms[node.name] for node in kinks for y in node.output[:1]}


def decisions_of(
    path: Path, watched: dict[str, list[str]], values: dict[str, Any], shapes: dict[str, Any]
) -> Iterator[Any]:
    """The decisions of ReLUs and max pools in order, as `torch_model.Decision.made` has them."""
    import torch
    from torch_model import places_of

    for node in (node for node in onnx.load(path).graph.node if node.output[0] in watched):
        x, *rest = (torch.as_tensor(values[name], device="cuda") for name in watched[node.output[0]])
        if node.op_type == "MaxPool":
            yield places_of(node, x, shapes[node.input[0]][-1])
        elif rest:
            mean, inverse, scale, bias = (vector.double().reshape(-1, 1, 1) for vector in rest)
            yield (x.double() - mean) * inverse * scale + bias > 0
        else:
            yield x > 0


def inputs_of(plan: StepPlan, seed: int) -> dict[str, Any]:
    """Random inputs."""
    return random_data(index_plan(plan), seed=seed).step(1)


class Torch:
    """The same steps by PyTorch."""

    def __init__(self, path: Path, feed: dict[str, Any]) -> None:
        import torch
        from torch_model import gradients_of

        self._torch, self._step = torch, gradients_of
        self.feed = feed
        self._model = onnx.load(path)
        self._inputs = {name: value for name, value in feed.items() if name != "target"}
        self._target = feed["target"]
        self._right: list[Any] = []
        self.loss, self.gradients = self._run(torch.float64, decisions=self._right)
        self._made = [decision.made() for decision in self._right]

    def own(self, precision: str) -> Step:
        """PyTorch's step in float32."""
        loss, gradients, found = self._own(precision)
        return Step(loss=loss, gradients=gradients, decisions=[decision.made() for decision in found])

    def decided(self, step: Step) -> Gradients:
        """Gradients in float64 with the decisions of a step."""
        return self._run(self._torch.float64, given=step.decisions)[1] if step.decisions else self.gradients

    def otherwise(self, step: Step) -> int:
        """Decisions of a step that float64 makes otherwise."""
        return sum(int((a != b).sum()) for a, b in zip(step.decisions, self._made, strict=True))

    def ties(self) -> int:
        """Decisions so close that float32 may make them otherwise."""
        *_, found = self._own("fp32")
        return sum(a.ties(b, REACH) for a, b in zip(self._right, found, strict=True))

    def _own(self, precision: str) -> tuple[float, Gradients, list[Any]]:
        torch = self._torch
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        found: list[Any] = []
        loss, gradients = self._run(torch.float32, decisions=found)
        return loss, gradients, found

    def _run(self, dtype: Any, **given: Any) -> tuple[float, Gradients]:
        result = self._step(self._model, self._inputs, self._target, dtype, **given)
        self._torch.cuda.empty_cache()
        return result


def row_of(torch: Torch, path: Path, plan: StepPlan, seed: int, precision: str) -> list[str]:
    """The cells of one step from its seed on, the last of them what it is within."""
    step, own = planned_step(path, plan, torch.feed), torch.own(precision)
    plain = [distance(each.gradients, torch.gradients) for each in (step, own)]
    decided = [distance(each.gradients, torch.decided(each)) for each in (step, own)]
    bar = BARS[precision]
    within = "bar" if plain[0] <= bar else "decided" if decided[0] <= bar else "NO"
    count = sum(decision.numel() for decision in step.decisions)
    cells = [seed, precision, f"{plan.arena_bytes / 2**30:.2f}", f"{abs(step.loss - torch.loss) / torch.loss:.1e}"]
    cells += [f"{value:.1e}" for value in (*plain, *decided)]
    cells += [f"{value:,}" for value in (count, torch.otherwise(step), torch.otherwise(own))]
    return [*map(str, cells), worst(step.gradients, own.gradients, torch.gradients), within]


def compared(label: str, path: Path, size: list[str], plans: Path) -> Iterator[list[str]]:
    """A line of the table for each mode."""
    torch: Torch | None = None
    for precision in BARS:
        plan = planned(path, precision, plans)
        torch = Torch(path, inputs_of(plan, 1)) if torch is None else torch
        yield [label, *size, *row_of(torch, path, plan, 1, precision)]


def clear(name: str, plans: Path) -> Iterator[list[str]]:
    """Lines of a network in small on inputs clear of ties."""
    for options in SMALL[name]:
        label, path = small_file(name, options)
        plan = planned(path, "fp32", plans)
        seeds = [seed for seed in range(1, SEEDS + 1) if Torch(path, inputs_of(plan, seed)).ties() == 0]
        print(f"{path.stem}: clear seeds {seeds}", file=sys.stderr, flush=True)
        if len(seeds) >= WANTED:
            for seed in seeds[:WANTED]:
                torch = Torch(path, inputs_of(plan, seed))
                yield [label, *shown(options), *row_of(torch, path, plan, seed, "fp32")]
            return
    yield [f"{name}, small", *["-"] * (len(HEADER) - 2), "no three clear seeds"]


def small_file(name: str, options: dict[str, Any]) -> tuple[str, Path]:
    """Label and file of a network in small, its batch normalisations shifted where it has some."""
    path = file_of(name, options)
    twin = shifted_twin(path)
    return (f"{name}, small", path) if twin is None else (f"{name}, shifted, small", twin)


def file_of(name: str, options: dict[str, Any]) -> Path:
    """The model's file; `network` among the options is another zoo model that it stands for."""
    rest = {key: value for key, value in options.items() if key != "network"}
    return model_file(options.get("network", name), **rest)


def shown(options: dict[str, Any]) -> list[str]:
    """Batch, the image's size where it is not the usual one, and what else makes the network smaller."""
    rest = [f"{key} {value}" for key, value in options.items() if key in ("width", "growth", "blocks")]
    return [str(options["batch"]), ", ".join([str(options["image"]), *rest] if "image" in options else rest)]


def files(name: str) -> Iterator[tuple[str, Path, list[str]]]:
    """Label, file and size of a network as it is and of its twins."""
    for options in MODELS[name]:
        path = file_of(name, options)
        twins = (("", path), (", smooth", smooth_twin(path)), (", shifted", shifted_twin(path)))
        for word, file in twins:
            if file is not None:
                yield name + word, file, shown(options)


def plan_all(name: str, plans: Path) -> None:
    """Make all plans of a network."""
    for _, file, _ in files(name):
        for precision in BARS:
            planned(file, precision, plans)
    for options in SMALL.get(name, []):
        planned(small_file(name, options)[1], "fp32", plans)


def measured(name: str, given: argparse.Namespace) -> list[list[str]]:
    """Lines of a network: as it is, its twins, and in small; an error is one too: the rest is still printed."""
    rows: list[list[str]] = []
    sources = [] if given.only == "clear" else [compared(*each, given.plans) for each in files(name)]
    for source in [*sources, *([clear(name, given.plans)] if name in SMALL else [])]:
        start = time.perf_counter()
        try:
            for row in source:
                rows.append(row)
                print(row, f"{time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        except Exception:
            traceback.print_exc()
            rows.append([name, *["-"] * (len(HEADER) - 2), "FAILED"])
    return rows


def main() -> int:
    """Print the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--plans", type=Path, default=FOLDER / "correct-plans")
    parser.add_argument("--only", choices=("plan", "clear"))
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    names = given.models or list(MODELS)
    if given.only == "plan":
        for name in names:
            plan_all(name, given.plans)
        return 0
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        rows = [row for lines in pool.map(measured, names, repeat(given)) for row in lines]
    print(table(HEADER, rows))
    print(provenance())
    return 0 if all(row[-1] in ("bar", "decided") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
