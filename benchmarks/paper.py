"""The figures and tables of the SuperNeurons paper, recomputed beside the published numbers.

    python benchmarks/paper.py [fig2 fig5 ... table5] [--json] [--svg DIR]

Without names: all. Tables go to stdout as Markdown, or with --json as one JSON object; progress goes to stderr. Exits
with 1 when a bar is missed. docs/paper.md says what stands behind each number.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from superneurons.result import Result

MODULES: Mapping[str, str] = {
    "fig2": "breakdown",
    "fig5": "drawings",
    "fig6": "drawings",
    "fig8": "breakdown",
    "fig10": "memory_figures",
    "fig11": "speed",
    "fig12": "workspaces",
    "fig13": "systems",
    "table1": "memory_figures",
    "table2": "pool_table",
    "table3": "traffic",
    "table4": "systems",
    "table5": "systems",
}
"""Figure or table -> the module of `superneurons` with a function of that name."""


def main() -> int:
    """Print what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description="The figures and tables of the SuperNeurons paper.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODULES)} (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--svg", type=Path, metavar="DIR", help="write the figures' plots into this folder")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in MODULES]:
        parser.error(f"no figure or table {', '.join(unknown)}; there are {', '.join(MODULES)}")
    results = []
    for name in arguments.names or MODULES:
        result = _timed(name)
        results.append(result)
        if not arguments.json:
            print(result.as_text(), end="\n\n", flush=True)
        if arguments.svg:
            _draw(result, arguments.svg)
    passed = all(result.passed for result in results)
    if arguments.json:
        print(json.dumps({"results": [result.as_json() for result in results], "passed": passed}))
    return 0 if passed else 1


def _timed(name: str) -> Result:
    begin = time.perf_counter()
    make: Callable[[], Result] = getattr(import_module(f"superneurons.{MODULES[name]}"), name)
    result = make()
    print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    return result


def _draw(result: Result, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in result.charts.items():
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
