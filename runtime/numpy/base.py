"""The frame of the NumPy kernels: what a kernel is, the registry of all of them, and how half precision is widened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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


def kernel(*names: str, widen: bool = True, like: Sequence[int | None] | None = None) -> Callable[[Body], Body]:
    """A decorator that adds a kernel under `names` and returns its body unchanged.

    The registered kernel gives contiguous arrays and keeps NumPy's floating-point warnings quiet (infinities and NaN
    are values). With `widen` the body sees float32 where inputs are float16 or bfloat16. Results then get the type of
    the inputs that `like` names, one for each output (None: as the body leaves it); without `like`, float32 results go
    back to the first 16-bit input's type.
    """

    def add(body: Body) -> Body:
        for name in names:
            define(name, body, widen=widen, like=like)
        return body

    return add


def define(name: str, body: Body, *, widen: bool = True, like: Sequence[int | None] | None = None) -> None:
    """Add one kernel; a name may be defined once."""
    if name in KERNELS:
        raise ValueError(f"kernel {name} is defined twice")

    def run(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            result = body([wide(x) for x in inputs] if widen else inputs, attrs, context)
            outputs = result if isinstance(result, tuple) else (result,)
            if not widen:
                return tuple(_contiguous(y, None) for y in outputs)
            return tuple(map(_contiguous, outputs, _types(inputs, outputs, like)))

    KERNELS[name] = run


def _types(
    inputs: Sequence[Array], outputs: Sequence[Array], like: Sequence[int | None] | None
) -> Iterable[np.dtype[Any] | None]:
    if like is not None:
        return [None if index is None else inputs[index].dtype for index in like[: len(outputs)]]
    half = half_of(inputs)
    return [half if y.dtype == np.float32 else None for y in outputs]


def half_of(inputs: Sequence[Array]) -> np.dtype[Any] | None:
    """The first 16-bit floating-point type among `inputs`, or None."""
    return next((x.dtype for x in inputs if x.dtype in HALVES), None)


def wide(x: Array) -> Array:
    """`x`, as float32 where it is float16 or bfloat16."""
    return x.astype(np.float32) if x.dtype in HALVES else x


def _contiguous(y: Array, dtype: np.dtype[Any] | None) -> Array:
    """`y` as a contiguous array of `dtype` (None: its own); NumPy's scalars become arrays."""
    array = np.asarray(y) if dtype is None else np.asarray(y).astype(dtype, copy=False)
    return array if array.flags.c_contiguous else array.copy(order="C")
