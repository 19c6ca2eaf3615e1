"""The frame of the NumPy kernels: what a kernel is, the registry of all of them, and how half precision is widened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Attrs: TypeAlias = Mapping[str, Any]

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a kernel may know beside its inputs and attributes.

    `seed` is the run's; `step` is the number of the training step, from 1; `stream` is the op's random stream.
    """

    seed: int = 0
    step: int = 1
    stream: int = 0


Kernel: TypeAlias = Callable[[Sequence[Array], Attrs, Context], tuple[Array, ...]]
Body: TypeAlias = Callable[[Sequence[Array], Attrs, Context], "Array | tuple[Array, ...]"]

KERNELS: dict[str, Kernel] = {}


def kernel(*names: str, widen: bool = True) -> Callable[[Body], Body]:
    """A decorator that adds a kernel under `names` and returns its body unchanged.

    The registered kernel gives contiguous arrays, keeps NumPy's floating-point warnings quiet (infinities and NaN are
    values), and with `widen` lets the body see float32 where inputs are float16 or bfloat16: float32 results then go
    back to the first such input's type.
    """

    def add(body: Body) -> Body:
        for name in names:
            define(name, body, widen=widen)
        return body

    return add


def define(name: str, body: Body, *, widen: bool = True) -> None:
    """Add one kernel; a name may be defined once."""
    if name in KERNELS:
        raise ValueError(f"kernel {name} is defined twice")

    def run(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, ...]:
        half = half_of(inputs) if widen else None
        with np.errstate(all="ignore"):
            result = body(inputs if half is None else [wide(x) for x in inputs], attrs, context)
            outputs = result if isinstance(result, tuple) else (result,)
            return tuple(_finished(y, half) for y in outputs)

    KERNELS[name] = run


def half_of(inputs: Sequence[Array]) -> np.dtype[Any] | None:
    """The first 16-bit floating-point type among `inputs`, or None."""
    return next((x.dtype for x in inputs if x.dtype in HALVES), None)


def wide(x: Array) -> Array:
    """`x`, as float32 where it is float16 or bfloat16."""
    return x.astype(np.float32) if x.dtype in HALVES else x


def _finished(y: Array, half: np.dtype[Any] | None) -> Array:
    array = np.asarray(y)
    if half is not None and array.dtype == np.float32:
        return array.astype(half)
    return array if array.flags.c_contiguous else array.copy(order="C")
