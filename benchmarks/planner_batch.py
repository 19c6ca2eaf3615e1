"""Batch and depth in 12 GiB: arena and a reserve of 512 MiB together, 64 GiB of host memory, H200 data."""

from __future__ import annotations

from collections.abc import Sequence

from planner_common import Outcome, gib, planned, prepared, row

from snplan.errors import SnplanError

BUDGET, RESERVE, HOST = 12 << 30, 512 << 20, 64 << 30
BATCHES = {"resnet50": 1056, "resnet101": 1056, "resnet152": 1056, "inception_v4": 600, "vgg16": 380, "alexnet": 3000}
BLOCKS = (6, 32, 3289, 6)  # the paper's Table 4 grows the third stage; 3 layers a block and 2 around them
HEADER = ("network", "batch", "floor", "keep-all", "arena", "host", "slower", "moved", "again ms", "stall ms", "s", "")
WIDTHS = (14, 7, 8, 10, 8, 8, 9, 9, 10, 10, 7, 12)


def section(words: Sequence[str]) -> Outcome:
    """One line for each network of `BATCHES`, and with "depth" among `words` one for a network of 10 001 layers."""
    print(row(HEADER, WIDTHS))
    reached = True
    for network, batch in BATCHES.items():
        if not words or network in words:
            reached = line(network, batch, optimizer="momentum") and reached
    if "depth" in words or not words:
        reached = line("resnet", 16, optimizer="momentum", blocks=BLOCKS) and reached
    return Outcome(reached=reached)


def line(network: str, batch: int, *, optimizer: str, **build: object) -> bool:
    """Print the line of a network; whether there is a plan."""
    step = prepared(network, optimizer=optimizer, batch=batch, **build)
    facts: list[object] = [network, batch, gib(step.lowest.bytes), gib(step.everything.body.arena_bytes)]
    try:
        result, seconds = planned(step, BUDGET, reserve_bytes=RESERVE, host_bytes=HOST)
    except SnplanError as error:
        print(row([*facts, *[""] * 7, f"  MISSED {error.code}"], WIDTHS), flush=True)
        return False
    report = result.report
    slower = report["step_time_us"] / report["keep_all_step_time_us"] - 1
    facts += [gib(report["arena_bytes"]), gib(report["host_bytes"]), f"{slower:.0%}", gib(report["offload_bytes"])]
    facts += [f"{report['recompute_us'] / 1000:.0f}", f"{report['stall_us'] / 1000:.0f}", f"{seconds:.1f}", "  ok"]
    print(row(facts, WIDTHS), flush=True)
    return True
