"""After `compile_kernels` no plan compiles anything."""

from __future__ import annotations

from snplan.arena.warm import compile_kernels


def test_every_kernel_is_compiled() -> None:
    from numba.core.dispatcher import Dispatcher

    from snplan.arena import fitting, granting, kernels

    compile_kernels()
    for module in (fitting, granting, kernels):
        entries = [function for function in vars(module).values() if isinstance(function, Dispatcher)]
        assert entries
    for entry in (fitting.fit, fitting.fit_by_time, granting.settle, kernels.neighbors, kernels.search):
        assert isinstance(entry, Dispatcher)
        assert len(entry.signatures) == 1  # a second one would be compiled on its own
