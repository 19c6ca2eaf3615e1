"""The compiler of inner loops: numba, on first use, with the result cached beside the source file.

Import modules of kernels only where a search is about to start: numba takes a moment to load, and most problems need
none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Return the function compiled, from the cache where there is a folder for one."""
    return _compiled(function, no_cfunc_wrapper=True)


def inner(function: F) -> F:
    """Return the function compiled for other kernels alone: what Python needs to call it takes long to compile."""
    return _compiled(function, no_cfunc_wrapper=True, no_cpython_wrapper=True)


def _compiled(function: F, **options: Any) -> F:
    try:
        return cast(F, numba.njit(cache=True, nogil=True, **options)(function))
    except RuntimeError:  # no folder that the cache may write to
        return cast(F, numba.njit(nogil=True, **options)(function))
