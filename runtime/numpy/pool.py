"""Kernels of pooling. Each runs over the positions in a window, all windows at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs, Context, kernel
from snplan.runtime.numpy.windows import Windows, cropped, padded, windows_of


def _windows(attrs: Attrs, size: Sequence[int], count: Sequence[int]) -> Windows:
    return windows_of(attrs, size, attrs["kernel"], count)


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _first_inside(windows: Windows) -> Array:
    """[windows]: each window's first position inside the input, its result where all values there are the lowest."""
    number = np.zeros((1,) * len(windows.size), np.int64)
    axes = zip(windows.begin, windows.strides, windows.dilations, windows.count, windows.kernel, strict=True)
    for axis, (b, s, d, c, k) in enumerate(axes):
        first = np.clip(-(-(b - np.arange(c) * s) // d), 0, k - 1)
        number = number * k + first.reshape([-1 if i == axis else 1 for i in range(len(windows.size))])
    return number


@kernel("max_pool")
def max_pool(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, Array]:
    """The largest of each window and its row-major position there: the first of equal ones; NaN wins."""
    x = inputs[0]
    windows = _windows(attrs, x.shape[2:], attrs["sizes"])
    source = padded(x, windows, _lowest(x.dtype))
    y = np.full(x.shape[:2] + windows.count, _lowest(x.dtype), x.dtype)
    indices = np.empty(y.shape, np.uint8 if prod(windows.kernel) <= 256 else np.int32)
    indices[...] = _first_inside(windows)
    for number, place in windows.offsets():
        candidate = source[place]
        # "not <=" is "greater, or one of both is NaN"; a NaN that is already there stays.
        better = ~(candidate <= y) & (y == y)
        np.copyto(y, candidate, where=better)
        np.copyto(indices, indices.dtype.type(number), where=better)
    return y, indices


@kernel("max_pool_grad")
def max_pool_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy, added where each window's largest was."""
    indices, dy = inputs
    windows = _windows(attrs, attrs["shape"][2:], dy.shape[2:])
    dx = np.zeros(dy.shape[:2] + windows.padded, dy.dtype)
    for number, place in windows.offsets():
        dx[place] += np.where(indices == number, dy, dy.dtype.type(0))
    return cropped(dx, windows)


def _divisors(windows: Windows, *, include_pad: bool, dtype: np.dtype[Any]) -> Array:
    """[windows]: how many positions of each window count."""
    total = np.ones((1,) * len(windows.size), np.int64)
    for axis, (n, k, c) in enumerate(zip(windows.size, windows.kernel, windows.count, strict=True)):
        begin, end = windows.begin[axis], windows.end[axis]
        place = np.arange(c)[:, None] * windows.strides[axis] + np.arange(k) * windows.dilations[axis] - begin
        low, high = (-begin, n + end) if include_pad else (0, n)
        inside = ((place >= low) & (place < high)).sum(axis=1)
        total = total * inside.reshape([-1 if i == axis else 1 for i in range(len(windows.size))])
    return np.maximum(total, 1).astype(dtype)


@kernel("average_pool")
def average_pool(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """The mean of each window over the positions that count."""
    x = inputs[0]
    windows = _windows(attrs, x.shape[2:], attrs["sizes"])
    source = padded(x, windows)
    y = np.zeros(x.shape[:2] + windows.count, x.dtype)
    for _, place in windows.offsets():
        y += source[place]
    return y / _divisors(windows, include_pad=bool(attrs.get("count_include_pad")), dtype=x.dtype)


@kernel("average_pool_grad")
def average_pool_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy over the divisor, added to every position of its window."""
    dy = inputs[0]
    windows = _windows(attrs, attrs["shape"][2:], dy.shape[2:])
    share = dy / _divisors(windows, include_pad=bool(attrs.get("count_include_pad")), dtype=dy.dtype)
    dx = np.zeros(dy.shape[:2] + windows.padded, dy.dtype)
    for _, place in windows.offsets():
        dx[place] += share
    return cropped(dx, windows)
