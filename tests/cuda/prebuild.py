"""Compiles all kernels that tests/cuda/test_kernels.py runs: `python prebuild.py sm_90`, with nvcc or NVRTC alone.

The cubins go to the cache folder ($XDG_CACHE_HOME/snplan/kernels): take that folder to the machine with the GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernel_cases import FAMILIES
from kernel_harness import compile_cases


def main(arch: str) -> None:
    """Compile every family for `arch`."""
    for name, family in FAMILIES.items():
        built = compile_cases(list(family()), arch)
        print(f"{name}: {sum(len(names) for _, names in built)} kernels, {sum(len(c) for c, _ in built)} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
