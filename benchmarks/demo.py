"""The demonstration of `make demo`: plan a narrow ResNet-50 in 40 % of its keep-all memory, and run it bit for bit.

Every figure that it prints comes from the commands that it runs, which it prints too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from snplan.units import GRANULE, format_bytes, format_us

SHARE = 0.4
PLENTY = 1 << 44


def snplan(*words: object) -> dict[str, Any]:
    """The JSON object that a command writes; none for `model`. Ends the demonstration where the command fails."""
    command = ["snplan", *map(str, words)]
    print("$", " ".join(command), flush=True)
    done = subprocess.run([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"snplan {words[0]} ended with exit code {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    return found


def compiled(model: Path, budget: int, plan: Path) -> dict[str, Any]:
    """The report of a plan of `model` in a budget without reserve: nothing here needs a CUDA context."""
    return snplan("compile", model, "--gpu-mem", budget, "--reserve", 0, "-o", plan, "--json")


def main(folder: Path) -> None:
    """Build, plan, run, and print one line for each result."""
    folder.mkdir(exist_ok=True)
    model, plan = folder / "resnet50.onnx", folder / "resnet50.plan.json"
    snplan("model", "resnet50", "--batch", 16, "--image", 96, "--width", 0.5, "-o", model)
    everything = compiled(model, PLENTY, folder / "keep-all.plan.json")
    share = int(everything["keep_all_bytes"] * SHARE) // GRANULE * GRANULE
    budget = max(share, everything["floor_bytes"])
    made = compiled(model, budget, plan)
    ran = snplan("run", plan, "--backend", "numpy", "--steps", 2, "--check", "--json")
    report = folder / "report.json"
    report.write_text(json.dumps({"keep_all": everything, "plan": made, "run": ran}, indent=1) + "\n")
    print("".join(f"{what:<18}{value}\n" for what, value in results(everything, made, ran)), end="")
    print(f"{'files':<18}{plan}, {report}")


def results(everything: dict[str, Any], made: dict[str, Any], ran: dict[str, Any]) -> list[tuple[str, str]]:
    """What each line says."""
    slower = made["step_time_us"] / everything["step_time_us"] - 1
    return [
        ("no reuse", format_bytes(made["baseline_bytes"])),
        ("keep-all plan", f"{format_bytes(made['keep_all_bytes'])}, {format_us(everything['step_time_us'])} a step"),
        ("budget", f"{format_bytes(made['budget_bytes'])}, {made['budget_bytes'] / made['keep_all_bytes']:.0%} of it"),
        ("planned arena", format_bytes(made["arena_bytes"])),
        ("floor", format_bytes(made["floor_bytes"])),
        (
            "predicted step",
            f"{format_us(made['step_time_us'])} ({slower:+.1%}), not under {format_us(made['lower_bound_us'])}",
        ),
        ("moved out, in", f"{format_bytes(made['offload_bytes'])}, {format_bytes(made['prefetch_bytes'])}"),
        ("recomputed", f"{made['recompute_ops']:,} ops, {format_us(made['recompute_us'])}"),
        ("run with NumPy", f"{ran['steps']} steps, losses {', '.join(f'{loss:.6f}' for loss in ran['losses'])}"),
        ("measured peak", format_bytes(ran["peak_bytes"])),
        ("checked", "every bit equal" if ran["checked"] else "not checked"),
    ]


if __name__ == "__main__":
    main(Path("demo"))
