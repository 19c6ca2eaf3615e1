"""The planner's tables: `python benchmarks/planner.py [SECTION[:WORD,...] ...]`; exits with 1 below a bar.

    overhead   MONeT's networks at its shares of keep-all memory, against half of its slow-down
    gap        the zoo at half of keep-all memory, against the lower bound on the step time
    floor      plans at exactly the floor, and fragmentation
    batch      batches and depth in 12 GiB
    monotone   sweeps of 24 budgets: more is never slower
    time       seconds and memory of planning: deep ResNets, GPT-2 XL, ResNet-50

Without a section all of them run. `overhead:resnet50,unet` runs a section for some of its lines.
"""

from __future__ import annotations

import importlib
import sys

from planner_common import Section

SECTIONS = ("overhead", "gap", "floor", "batch", "monotone", "time")


def main(arguments: list[str]) -> int:
    """Run the sections that are named; the exit code."""
    chosen = arguments or list(SECTIONS)
    unknown = [text for text in chosen if text.partition(":")[0] not in SECTIONS]
    if unknown:
        print(f"no section {unknown[0]!r}; the sections are {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    missed: list[str] = []
    for text in chosen:
        name, _, words = text.partition(":")
        run: Section = importlib.import_module(f"planner_{name}").section
        print(f"== {name}", flush=True)
        outcome = run([word for word in words.split(",") if word])
        print("".join(f"{line}\n" for line in outcome.lines), end="", flush=True)
        if not outcome.reached:
            missed.append(name)
    print(f"below a bar: {', '.join(missed)}" if missed else "all bars reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
