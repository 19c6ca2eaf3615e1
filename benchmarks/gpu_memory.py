"""Large batches inside 12 GiB: python benchmarks/gpu_memory.py [--plans FOLDER] [--plan-only] [MODEL ...]

Each model is planned for 12 GiB, run for a few steps, and what the driver reports as used must stay within 12 GiB; the
arena's peak must be the planned one and no step may take memory. A small net then runs 1000 steps. Exits 1 where
anything is missed. With `--plans` plan files are kept in a folder, so that planning and running may be two machines'.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from gpu_common import FOLDER, filled_blocks, kept_plan, model_file, plan_of, provenance, table, weights_of

from snplan.plan.model import StepPlan
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.data import random_data
from snplan.runtime.session import TrainingSession

BUDGET = 12 << 30
# PyTorch with a checkpoint around every block steps 352, 144 and 176 in 12 GiB.
MODELS: dict[str, dict[str, Any]] = {
    "resnet50": {"batch": 704},
    "vgg16": {"batch": 288},
    "inception_v4": {"batch": 352},
    "alexnet": {"batch": 2496},
    "densenet121": {"batch": 128},
    "unet": {"batch": 32},
    "vit_b16": {"batch": 128},
    "gpt2": {"batch": 8},
}
STEPS = 3


def planned(path: Path, folder: Path) -> StepPlan:
    """The plan for 12 GiB, from its file where there is one."""
    file = folder / f"{path.stem}-12G.plan.json.gz"
    return kept_plan(file, lambda: plan_of(path, budget_bytes=BUDGET, precision="tf32", optimizer="momentum"))


def row_of(name: str, path: Path, plan: StepPlan) -> tuple[list[str], bool]:
    """A line of the table, and whether everything was within bounds."""
    backend = CudaBackend()
    free, total = backend.memory()
    before = total - free
    start = time.perf_counter()
    with TrainingSession(plan, weights_of(path, plan), backend=backend, keep_gradients=False) as session:
        bound = time.perf_counter() - start
        blocks = filled_blocks(session)
        taken, times, loss = backend.allocations, [], 0.0
        for _ in range(STEPS):
            start = time.perf_counter()
            loss = session.step(blocks[session.steps_done % 2], blocks[(session.steps_done + 1) % 2])
            times.append(time.perf_counter() - start)
        free, total = backend.memory()
        assert session.measured is not None
        peak, extra = session.measured.peak_bytes, backend.allocations - taken
    # What other programs hold is not ours; the context is, and it is there before the plan.
    used = total - free
    fine = used <= BUDGET and peak == plan.arena_bytes and extra == 0 and loss == loss
    batch = MODELS[name]["batch"]
    cells = [
        name,
        batch,
        f"{plan.arena_bytes / 2**30:.2f}",
        f"{used / 2**30:.2f} ({before / 2**30:.2f} before)",
        f"{plan.host_arena_bytes / 2**30:.1f}",
        "yes" if peak == plan.arena_bytes else "NO",
        extra,
        f"{loss:.3f}",
        f"{bound:.0f}",
        f"{plan.step_time_us / 1000:.0f}",
        f"{1000 * min(times):.0f}",
        f"{batch / min(times):.0f}",
        "yes" if fine else "NO",
    ]
    return [str(cell) for cell in cells], fine


def thousand_steps() -> tuple[int, int, int]:
    """Blocks taken and bytes of the device used over 1000 steps of a small net: (blocks, before, after)."""
    path = model_file("resnet", blocks=(1, 1, 1, 1), image=32, width=0.25, classes=10, batch=8)
    wide = plan_of(path, budget_bytes=1 << 40, optimizer="adam")
    half = wide.reserve_bytes + (wide.floor_bytes + wide.arena_bytes) // 2
    plan = plan_of(path, budget_bytes=half, optimizer="adam")
    with TrainingSession(plan, weights_of(path, plan), backend=CudaBackend(), keep_gradients=False) as session:
        feed = random_data(session.index, seed=1).step(1)
        for _ in range(3):
            session.step(feed)
        assert isinstance(session.backend, CudaBackend)
        blocks, before = session.backend.allocations, session.backend.memory()[0]
        for _ in range(1000):
            session.step(feed)
        return session.backend.allocations - blocks, before, session.backend.memory()[0]


def main() -> int:
    """Print the table; 1 where a bound is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--plans", type=Path, default=FOLDER / "plans")
    parser.add_argument("--plan-only", action="store_true")
    given = parser.parse_args()
    rows, fine = [], True
    for name in given.models or list(MODELS):
        path = model_file(name, **MODELS[name])
        plan = planned(path, given.plans)
        if not given.plan_only:
            row, good = row_of(name, path, plan)
            rows.append(row)
            fine = fine and good
            print(row, file=sys.stderr, flush=True)
    if given.plan_only:
        return 0
    taken, before, after = thousand_steps()
    header = ["model", "batch", "arena GiB", "device GiB", "host GiB", "peak as planned", "taken", "loss"]
    print(table([*header, "bind s", "predicted ms", "measured ms", "images/s", "within 12 GiB"], rows))
    print(f"1000 steps of a small net: {taken} blocks taken, free memory {before:,} B before and {after:,} B after")
    print(provenance())
    return 0 if fine and taken == 0 and before == after else 1


if __name__ == "__main__":
    sys.exit(main())
