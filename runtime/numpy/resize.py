"""Kernels of ONNX Resize: every mode is one linear map an axis, so the gradient is the transposed maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs, Context, kernel

# (position in the result, scale, input size, output size) -> position in the input.
Coordinate: TypeAlias = Callable[[Array, float, int, int], Array]
# Taps of one axis: for each result position the input positions read, [out, taps], and their weights.
Taps: TypeAlias = tuple[Array, Array]


def _align_corners(i: Array, scale: float, size: int, out: int) -> Array:
    return i * ((size - 1) / (out - 1)) if out > 1 else i * 0.0


def _symmetric(i: Array, scale: float, size: int, out: int) -> Array:
    adjustment = out / (scale * size)
    return size / 2 * (1 - adjustment) + (i + 0.5) / scale - 0.5


_COORDINATES: Mapping[str, Coordinate] = {
    "half_pixel": lambda i, scale, size, out: (i + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda i, scale, size, out: (i + 0.5) / scale - 0.5 if out > 1 else i * 0.0,
    "half_pixel_symmetric": _symmetric,
    "align_corners": _align_corners,
    "asymmetric": lambda i, scale, size, out: i / scale,
    "tf_half_pixel_for_nn": lambda i, scale, size, out: (i + 0.5) / scale,
}

_ROUNDING: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _cubic(distance: Array, a: float) -> Array:
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def axis_taps(attrs: Attrs, size: int, out: int, scale: float) -> Taps:
    """What each position of a resized axis reads, and with which weights; positions are clamped into the axis."""
    coordinate = _COORDINATES[attrs.get("coordinate_mode", "half_pixel")]
    position = coordinate(np.arange(out, dtype=np.float64), scale, size, out)
    mode = attrs["mode"]
    if mode == "nearest":
        index = _ROUNDING[attrs.get("nearest_mode", "round_prefer_floor")](position)[:, None]
        weights = np.ones_like(index)
    elif mode == "linear":
        position = np.clip(position, 0, size - 1)
        index = np.floor(position)[:, None] + np.arange(2)
        weights = 1 - np.abs(position[:, None] - index)
    else:
        index = np.floor(position)[:, None] + np.arange(-1, 3)
        weights = _cubic(position[:, None] - index, attrs.get("cubic_coeff", -0.75))
    if mode == "cubic" and attrs.get("exclude_outside"):
        weights = np.where((index >= 0) & (index < size), weights, 0.0)
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(index, 0, size - 1).astype(np.intp), weights


def _maps(attrs: Attrs, shape: Sequence[int]) -> Iterator[tuple[int, Taps]]:
    """The axes that change, with their taps."""
    for axis, (size, out) in enumerate(zip(shape, attrs["sizes"], strict=True)):
        scale = (attrs.get("scales") or [o / n for n, o in zip(shape, attrs["sizes"], strict=True)])[axis]
        if size != out or scale != 1:
            yield axis, axis_taps(attrs, size, out, scale)


@kernel("resize")
def resize(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """x resized to `sizes`, axis after axis."""
    y = inputs[0]
    for axis, (index, weights) in _maps(attrs, y.shape):
        y = _read(y, axis, index, weights)
    return y.copy() if y is inputs[0] else y


def _read(x: Array, axis: int, index: Array, weights: Array) -> Array:
    if weights.shape[1] == 1:
        return np.take(x, index[:, 0], axis=axis)
    along = [-1 if i == axis else 1 for i in range(x.ndim)]
    parts = (np.take(x, index[:, t], axis=axis) * weights[:, t].reshape(along) for t in range(weights.shape[1]))
    return np.asarray(sum(parts)).astype(x.dtype)


@kernel("resize_grad")
def resize_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """The transposed maps, in the opposite order of axes."""
    dx = inputs[0]
    shape = attrs["shape"]
    for axis, (index, weights) in reversed(list(_maps(attrs, shape))):
        matrix = np.zeros((shape[axis], len(index)), dx.dtype)
        for t in range(weights.shape[1]):
            np.add.at(matrix, (index[:, t], np.arange(len(index))), weights[:, t].astype(dx.dtype))
        dx = np.moveaxis(np.tensordot(matrix, dx, axes=(1, axis)), 0, axis)
    return dx.copy() if dx is inputs[0] else dx
