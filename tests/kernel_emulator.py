"""Generated CUDA kernels on the CPU: each thread of a block is a fibre, blocks run one after another.

The text of the kernels is compiled as C++ behind a small shim instead of `intrinsics.cu.j2`. Fibres are resumed in a
seeded order that changes at every barrier, so a missing barrier shows as a wrong or changing result. This checks
indices, barriers and arithmetic; it says nothing about speed, memory ordering or occupancy.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from snplan.codegen.launch import Source
from snplan.codegen.render import intrinsics, render

SHIM = Path(__file__).with_name("kernel_emulator.h").read_text()

_SIGNATURE = re.compile(r'extern "C" __global__ void __launch_bounds__\([^)]*\) (\w+)\(([^)]*)\)')


def available() -> bool:
    """Whether a C++ compiler is there."""
    return shutil.which("g++") is not None


def _wrapper(name: str, parameters: str) -> str:
    types = [part.strip().rsplit(" ", 1)[0] for part in parameters.split(",")]
    passed = ", ".join(f"*({type_}*)a[{i}]" for i, type_ in enumerate(types))
    return (
        f"static void call_{name}(void** a) {{ {name}({passed}); }}\n"
        f'extern "C" void run_{name}(const int* grid, const int* block, void** args, u32 order)'
        f" {{ run_grid(call_{name}, grid, block, args, order); }}\n"
    )


def unit(sources: Iterable[Source]) -> str:
    """The C++ translation unit that emulates the kernels of `sources`."""
    kernels = render(sources).removeprefix(intrinsics())
    wrappers = "".join(_wrapper(*match.groups()) for match in _SIGNATURE.finditer(kernels))
    return SHIM + kernels + wrappers


class Emulator:
    """A machine that runs launches on the CPU. Addresses are the host's; memory has guard bytes around it."""

    name = "emulator"

    def __init__(self, sources: Iterable[Source], folder: Path) -> None:
        text = unit(sources)
        (folder / "kernels.cpp").write_text(text)
        library = folder / "kernels.so"
        command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off"]
        done = subprocess.run(
            [*command, "-o", str(library), str(folder / "kernels.cpp")], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[:4000]
        self._library = ctypes.CDLL(str(library))
        self._memory: dict[int, np.ndarray[Any, Any]] = {}
        self.order = 0

    def upload(self, data: bytes) -> int:
        """Address of a copy of `data`, aligned to 512 bytes, with guards around it."""
        block = np.full(len(data) + 3 * 512, 0xFF, np.uint8)
        start = -block.ctypes.data % 512 + 512
        block[start : start + len(data)] = np.frombuffer(data, np.uint8)
        address = block.ctypes.data + start
        self._memory[address] = block
        return address

    def download(self, address: int, size: int) -> bytes:
        """The bytes at `address`; the guards must be as they were."""
        block = self._memory[address]
        start = address - block.ctypes.data
        assert (block[:start] == 0xFF).all(), "a kernel wrote before its output"
        assert (block[start + size :] == 0xFF).all(), "a kernel wrote past its output"
        return block[start : start + size].tobytes()

    def launch(
        self, function: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any], shared: int
    ) -> None:
        """Run one launch to its end."""
        held = [np.array(value) for value in arguments]
        pointers = (ctypes.c_void_p * len(held))(*(value.ctypes.data for value in held))
        triple = ctypes.c_int * 3
        getattr(self._library, f"run_{function}")(triple(*grid), triple(*block), pointers, ctypes.c_uint(self.order))

    def release(self) -> None:
        """Forget all memory."""
        self._memory.clear()
