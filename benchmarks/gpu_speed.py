"""Measured against predicted step time: python benchmarks/gpu_speed.py [--profiles FOLDER] [MODEL ...]

Every model is profiled (or its profile is taken from the folder), planned at several budgets with that profile, and
run. Prints measured and predicted microseconds, images a second and the memory that the driver reports. Exits 1 where
fewer than four in five predictions are within 15 %.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from gpu_common import FOLDER, filled_blocks, model_file, plan_of, provenance, table, weights_of

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
}
SHARES = (1.0, 0.6, 0.3)
STEPS = 8


def measured(path: Path, plan: StepPlan, steps: int = STEPS) -> tuple[float, int, int]:
    """Median microseconds of a replayed step (the first two do not count), device bytes in use, arena bytes used."""
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
        return statistics.median(times[2:]), total - free, session.measured.peak_bytes


def profiled(path: Path, folder: Path, precision: str, engines: int | None) -> Path:
    """The profile of a model, measured once."""
    from snplan.runtime.cuda.profile import profile_plan

    target = folder / f"{path.stem}-{precision}.profile.json"
    if not target.exists():
        start = time.perf_counter()
        done = profile_plan(
            plan_of(path, budget_bytes=1 << 40, reserve_bytes=0, precision=precision, optimizer="momentum"),
            engines=engines,
            progress=lambda what, share: None,
        )
        folder.mkdir(parents=True, exist_ok=True)
        save_profile(done.profile, target)
        print(
            f"{path.stem}: {len(done.profile.ops)} ops, {done.tried} engines, {done.failed} not, "
            f"{time.perf_counter() - start:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return target


def main() -> int:
    """Print the table; 1 where predictions miss."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--profiles", type=Path, default=FOLDER / "profiles")
    parser.add_argument("--engines", type=int, help="measure so many engines of a convolution (default: all)")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--plain", action="store_true", help="plans of the cost model too, without a profile")
    given = parser.parse_args()
    rows, near = [], []
    for name in given.models or list(MODELS):
        path = model_file(name, **MODELS.get(name, {"batch": 32}))
        profile = profiled(path, given.profiles, given.precision, given.engines)
        for device in [*(["h200"] if given.plain else []), str(profile)]:
            options = {"precision": given.precision, "optimizer": "momentum", "device": device}
            wide = plan_of(path, budget_bytes=1 << 40, **options)
            for share in SHARES:
                low = wide.floor_bytes
                budget = wide.reserve_bytes + int(low + share * (wide.arena_bytes - low))
                plan = wide if share == 1 else plan_of(path, budget_bytes=budget, **options)
                us, used, peak = measured(path, plan)
                off = us / plan.step_time_us - 1
                if device != "h200":
                    near.append(abs(off) <= 0.15)
                batch = MODELS.get(name, {"batch": 32})["batch"]
                rows.append(
                    [
                        name,
                        "profile" if device != "h200" else "roofline",
                        f"{share:.0%}",
                        f"{plan.arena_bytes / 2**30:.2f}",
                        f"{used / 2**30:.2f}",
                        "yes" if peak == plan.arena_bytes else "NO",
                        f"{plan.step_time_us / 1000:.2f}",
                        f"{us / 1000:.2f}",
                        f"{off:+.0%}",
                        f"{batch * 1e6 / us:.0f}",
                    ]
                )
                print(rows[-1], file=sys.stderr, flush=True)
    header = [
        "model",
        "costs",
        "of keep-all",
        "arena GiB",
        "device GiB",
        "peak as planned",
        "predicted ms",
        "measured ms",
    ]
    print(table([*header, "off", "images/s"], rows))
    print(provenance())
    print(f"{sum(near)} of {len(near)} predictions with a profile are within 15 %")
    return 0 if sum(near) * 5 >= len(near) * 4 else 1


if __name__ == "__main__":
    sys.exit(main())
