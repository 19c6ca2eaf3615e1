"""Generated kernels, compiled for the device at hand and loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snplan.codegen.launch import Source
from snplan.codegen.render import render
from snplan.runtime.cuda.gpu import Gpu


def load_kernels(gpu: Gpu, sources: Iterable[Source]) -> Any:
    """A module with a kernel for each source. Raises RunError where it cannot be compiled or loaded."""
    from snplan.codegen.compile import compile_module

    binary = compile_module(render(sources), f"sm_{gpu.architecture}")
    return gpu.load(binary, "the module of generated kernels")
