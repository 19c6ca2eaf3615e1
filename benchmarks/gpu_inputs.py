"""What inputs cost: python benchmarks/gpu_inputs.py [--plans FOLDER] [MODEL ...]

Step times at three budgets (plans and profiles are those of gpu_speed.py) with the inputs on the device already, with
the next step's inputs given while a step runs, and with each step's inputs given when it starts. "arrives" says where
the next inputs go meanwhile: beside the arena, or into bytes of it that the step is done with, and then which part of
the step's ops is still to come.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_speed
from gpu_common import FOLDER, filled_blocks, model_file, provenance, table, weights_of

from snplan.plan.model import Recompute, Run, StepPlan
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.session import TrainingSession

MODELS = ("alexnet", "resnet50", "vgg16", "unet")
STEPS = 12
HEADER = ["model", "batch", "of keep-all", "inputs MiB", "copy ms", "arrives", "on the device ms", "meanwhile ms"]


def arrives(backend: CudaBackend, plan: StepPlan) -> str:
    """Where the next step's inputs go."""
    ahead = backend._bound.ahead
    if not ahead.gates:
        return "beside" if ahead.addresses else "nowhere"
    runs = [number for number, action in enumerate(plan.actions) if isinstance(action, (Run, Recompute))]
    return f"inside, last {sum(number > max(ahead.gates) for number in runs) / len(runs):.0%}"


def median_ms(step: Callable[[int], object]) -> float:
    """Median milliseconds of `step`, which is called with a number; the first few are not counted."""
    times = []
    for number in range(STEPS):
        start = time.perf_counter_ns()
        step(number)
        times.append((time.perf_counter_ns() - start) / 1e6)
    return statistics.median(times[4:])


def row_of(name: str, path: Path, share: float, plan: StepPlan) -> list[str]:
    """A line of the table."""
    import torch

    backend = CudaBackend()
    with TrainingSession(plan, weights_of(path, plan), backend=backend, keep_gradients=False) as session:
        blocks: list[dict[str, Any]] = filled_blocks(session)
        there = {key: torch.as_tensor(value, device="cuda") for key, value in blocks[0].items()}
        size = sum(value.nbytes for value in blocks[0].values())
        place = arrives(backend, plan)

        def meanwhile(_: int) -> None:
            session.step(blocks[session.steps_done % 2], blocks[(session.steps_done + 1) % 2])

        times = [
            median_ms(lambda _: session.step(there)),
            median_ms(meanwhile),
            median_ms(lambda _: session.step(blocks[session.steps_done % 2])),
        ]
    copy = size / int(plan.device["h2d_bytes_per_s"]) * 1e3
    cells = [name, gpu_speed.MODELS[name]["batch"], f"{share:.0%}", f"{size / 2**20:.0f}", f"{copy:.2f}", place]
    return [str(cell) for cell in [*cells, *(f"{value:.2f}" for value in times), f"{times[1] / times[0] - 1:+.1%}"]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--profiles", type=Path, default=FOLDER / "profiles")
    parser.add_argument("--plans", type=Path, default=FOLDER / "speed-plans")
    given = parser.parse_args(namespace=argparse.Namespace(precision="tf32", engines=None))
    rows = []
    for name in given.models or MODELS:
        path = model_file(name, **gpu_speed.MODELS[name])
        profile = gpu_speed.profiled(path, given)
        for share in gpu_speed.SHARES:
            rows.append(row_of(name, path, share, gpu_speed.planned(path, share, str(profile), given)))
            print(rows[-1], file=sys.stderr, flush=True)
    print(table([*HEADER, "at the start ms", "lost"], rows))
    print(provenance())


if __name__ == "__main__":
    main()
