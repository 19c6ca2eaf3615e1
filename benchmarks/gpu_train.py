"""A net that learns, killed and resumed: python benchmarks/gpu_train.py [--steps N]

A ResNet-18 trains on generated images (a pattern for each class, under noise) by a plan at 40 % of keep-all. Its losses
must equal those of the unplanned execution bit for bit, fall, and come out the same when the process is killed with
SIGKILL between two snapshots and started again. Exits 1 where any of that fails.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from gpu_common import model_file, plan_of, provenance, weights_of

from snplan.plan.index import index_plan
from snplan.plan.model import StepPlan
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.cuda.unplanned import unplanned_plan
from snplan.runtime.session import TrainingSession
from snplan.runtime.snapshot import latest_snapshot, load_snapshot, save_snapshot

MODEL: dict[str, Any] = {"batch": 64, "image": 64, "classes": 10}
EVERY = 20


def batch_of(number: int) -> dict[str, Any]:
    """Images of step `number`, and their classes."""
    size, classes, batch = MODEL["image"], MODEL["classes"], MODEL["batch"]
    patterns = np.random.default_rng(0).standard_normal((classes, 3, size, size))
    dice = np.random.default_rng([1, number])
    labels = dice.integers(0, classes, batch)
    images = patterns[labels] * 0.3 + dice.standard_normal((batch, 3, size, size))
    return {"input": images.astype(np.float32), "target": labels}


def planned(share: float) -> tuple[Path, StepPlan]:
    """The model's file, and its plan at a share of keep-all."""
    path = model_file("resnet18", **MODEL)
    options = {"optimizer": "momentum", "precision": "tf32", "deterministic": True}
    wide = plan_of(path, budget_bytes=1 << 40, reserve_bytes=0, **options)
    return path, plan_of(path, budget_bytes=int(wide.arena_bytes * share), reserve_bytes=0, **options)


def train(steps: int, folder: Path, out: Path) -> None:
    """Train, from the latest snapshot if there is one; a line of JSON for each step."""
    path, plan = planned(0.4)
    session = TrainingSession(plan, weights_of(path, plan), backend=CudaBackend(), keep_gradients=False)
    with session, out.open("a") as file:
        resumed = latest_snapshot(folder)
        if resumed is not None:
            load_snapshot(session, resumed)
        feed = batch_of(session.steps_done + 1)
        while session.steps_done < steps:
            following = batch_of(session.steps_done + 2)
            loss = session.step(feed, following)
            feed = following
            file.write(json.dumps([session.steps_done, loss.hex()]) + "\n")
            file.flush()
            if session.steps_done % EVERY == 0:
                save_snapshot(session, folder)


def unplanned_losses(steps: int) -> list[str]:
    """Losses of the same steps by a plan that moves and recomputes nothing."""
    path, plan = planned(0.4)
    twin = CudaBackend(replay="eager")
    with (
        TrainingSession(plan, weights_of(path, plan), backend=twin, keep_gradients=False) as first,
        TrainingSession(
            unplanned_plan(index_plan(plan)), weights_of(path, plan), backend=twin.twin(), keep_gradients=False
        ) as session,
    ):
        assert first.steps_done == 0
        return [session.step(batch_of(number)).hex() for number in range(1, steps + 1)]


def read(out: Path) -> dict[int, str]:
    """Losses by step; steps that were run twice must have given the same loss."""
    found: dict[int, str] = {}
    for line in out.read_text().splitlines():
        number, loss = json.loads(line)
        assert found.setdefault(number, loss) == loss, f"step {number} gave two losses"
    return found


def start(steps: int, folder: Path, out: Path) -> subprocess.Popen[bytes]:
    """A training process."""
    command = [sys.executable, __file__, "--steps", str(steps), "--worker", str(folder), str(out)]
    return subprocess.Popen(command)


def main() -> int:
    """Print what was seen; 1 where it is not as it must be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--worker", nargs=2, type=Path)
    given = parser.parse_args()
    if given.worker:
        train(given.steps, *given.worker)
        return 0
    with tempfile.TemporaryDirectory() as name:
        out, folder = Path(name) / "losses", Path(name) / "snapshots"
        folder.mkdir()
        process = start(given.steps, folder, out)
        kill_at = given.steps // 2 + 7
        while process.poll() is None and (not out.exists() or len(out.read_text().splitlines()) < kill_at):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed = len(out.read_text().splitlines())
        resumed = start(given.steps, folder, out).wait()
        losses = read(out)
    print(f"killed after {killed}, resumed with exit code {resumed}", file=sys.stderr, flush=True)
    expected = unplanned_losses(given.steps)
    numbers = [float.fromhex(losses[number]) for number in sorted(losses)]
    same = [losses.get(number + 1) == loss for number, loss in enumerate(expected)]
    learned = np.mean(numbers[-10:]) < 0.5 * np.mean(numbers[:10])
    plan = planned(0.4)[1]
    print(f"ResNet-18, batch 64 of 64x64, arena {plan.arena_bytes >> 20} MiB (40 % of keep-all), {given.steps} steps")
    print(f"killed after step {killed}, resumed from a snapshot (exit code {resumed})")
    print(f"{sum(same)} of {len(same)} losses equal the unplanned execution's, bit for bit")
    print(f"mean loss of the first ten steps {np.mean(numbers[:10]):.3f}, of the last ten {np.mean(numbers[-10:]):.3f}")
    print(provenance())
    return 0 if all(same) and learned and resumed == 0 and killed < given.steps else 1


if __name__ == "__main__":
    sys.exit(main())
