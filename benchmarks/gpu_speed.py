"""Measured against predicted step time: python benchmarks/gpu_speed.py [--profiles FOLDER] [MODEL ...]

Every model is profiled (or its profile is taken from the folder), planned at several budgets with that profile, and
run. Prints measured and predicted microseconds, images a second and the memory that the driver reports. Exits 1 where
fewer than four in five predictions are within 15 %. `--only profile`, `plan` or `run` does one part: profiles and plans
are kept in folders, so that each part may be another machine's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_common import FOLDER, filled_blocks, kept_plan, model_file, plan_of, provenance, table, weights_of

from snplan.cost.profile import save_profile
from snplan.plan.model import StepPlan
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.session import TrainingSession

MODELS: dict[str, dict[str, Any]] = {
    "resnet50": {"batch": 128},
    "vgg16": {"batch": 32},
    "alexnet": {"batch": 256},
    "inception_v4": {"batch": 32},
    "densenet121": {"batch": 32},
    "unet": {"batch": 8},
    "vit_b16": {"batch": 32},
    "gpt2": {"batch": 4, "context": 512},
}
SHARES = (1.0, 0.6, 0.3)
STEPS = 8
HEADER = ["model", "batch", "costs", "of keep-all", "arena GiB", "device GiB", "peak as planned", "predicted ms"]


def measured(path: Path, plan: StepPlan, steps: int = STEPS) -> tuple[float, int, int, int]:
    """Median microseconds of a step after the graph is there, those predicted, device bytes used, peak of the arena."""
    with TrainingSession(plan, weights_of(path, plan), backend=CudaBackend(), keep_gradients=False) as session:
        blocks = filled_blocks(session)
        times = []
        for _ in range(steps):
            start = time.perf_counter_ns()
            session.step(blocks[session.steps_done % 2], blocks[(session.steps_done + 1) % 2])
            times.append((time.perf_counter_ns() - start) / 1000)
        assert isinstance(session.backend, CudaBackend)
        free, total = session.backend.memory()
        assert session.measured is not None
        return statistics.median(times[2:]), session.predicted_step_us, total - free, session.measured.peak_bytes


def whole_plan(path: Path, precision: str, plans: Path) -> StepPlan:
    """A plan with every op of the step, to be profiled."""
    options: dict[str, Any] = {"budget_bytes": 1 << 40, "reserve_bytes": 0}
    options |= {"precision": precision, "optimizer": "momentum"}
    return kept_plan(plans / f"{path.stem}-{precision}-all.plan.json.gz", lambda: plan_of(path, **options))


def profiled(path: Path, given: argparse.Namespace) -> Path:
    """The profile of a model, measured once."""
    from snplan.runtime.cuda.profile import profile_plan

    target: Path = given.profiles / f"{path.stem}-{given.precision}.profile.json"
    if not target.exists():
        start = time.perf_counter()
        plan = whole_plan(path, given.precision, given.plans)
        done = profile_plan(plan, engines=given.engines, progress=lambda what, share: None)
        given.profiles.mkdir(parents=True, exist_ok=True)
        save_profile(done.profile, target)
        counts = f"{len(done.profile.ops)} ops, {done.tried} engines, {done.failed} not"
        print(f"{path.stem}: {counts}, {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return target


def planned(path: Path, share: float, device: str, given: argparse.Namespace) -> StepPlan:
    """The plan at a share of keep-all, from the floor on."""
    options: dict[str, Any] = {"precision": given.precision, "optimizer": "momentum", "device": device}
    costs = "roofline" if device == "h200" else "profile"

    def at(share: float) -> StepPlan:
        return kept_plan(
            given.plans / f"{path.stem}-{given.precision}-{costs}-{share:.0%}.plan.json.gz", lambda: make(share)
        )

    def make(share: float) -> StepPlan:
        if share == 1:
            return plan_of(path, budget_bytes=1 << 40, **options)
        wide = at(1.0)
        budget = wide.reserve_bytes + int(wide.floor_bytes + share * (wide.arena_bytes - wide.floor_bytes))
        return plan_of(path, budget_bytes=budget, **options)

    return at(share)


def row_of(name: str, path: Path, share: float, plan: StepPlan, costs: str) -> tuple[list[str], float]:
    """A line of the table, and how far the prediction was off."""
    us, predicted, used, peak = measured(path, plan)
    off = us / predicted - 1
    batch = MODELS[name]["batch"]
    cells = [name, batch, costs, f"{share:.0%}", f"{plan.arena_bytes / 2**30:.2f}", f"{used / 2**30:.2f}"]
    cells += ["yes" if peak == plan.arena_bytes else "NO", f"{predicted / 1000:.2f}", f"{us / 1000:.2f}"]
    return [str(cell) for cell in [*cells, f"{off:+.0%}", f"{batch * 1e6 / us:.0f}"]], off


def rows_of(name: str, given: argparse.Namespace) -> Iterator[tuple[list[str], float | None]]:
    """The lines of a model; without a profile there is nothing to be off from."""
    path = model_file(name, **MODELS[name])
    if given.only == "profile":
        whole_plan(path, given.precision, given.plans)
        profiled(path, given)
        return
    profile = profiled(path, given)
    for device in [*(["h200"] if given.plain else []), str(profile)]:
        for share in SHARES:
            plan = planned(path, share, device, given)
            if given.only != "plan":
                row, off = row_of(name, path, share, plan, "roofline" if device == "h200" else "profile")
                print(row, file=sys.stderr, flush=True)
                yield row, None if device == "h200" else off


def main() -> int:
    """Print the table; 1 where predictions miss."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--profiles", type=Path, default=FOLDER / "profiles")
    parser.add_argument("--plans", type=Path, default=FOLDER / "speed-plans")
    parser.add_argument("--engines", type=int, help="measure so many engines of a convolution (default: all)")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--plain", action="store_true", help="plans of the cost model too, without a profile")
    parser.add_argument("--only", choices=("profile", "plan", "run"))
    given = parser.parse_args()
    found = [pair for name in given.models or list(MODELS) for pair in rows_of(name, given)]
    if given.only in ("profile", "plan"):
        return 0
    offs = [abs(off) for _, off in found if off is not None]
    print(table([*HEADER, "measured ms", "off", "images/s"], [row for row, _ in found]))
    print(provenance())
    near = sum(off <= 0.15 for off in offs)
    print(f"{near} of {len(offs)} predictions with a profile are within 15 %")
    return 0 if near * 5 >= len(offs) * 4 else 1


if __name__ == "__main__":
    sys.exit(main())
