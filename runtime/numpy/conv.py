"""Kernels of convolutions over one to three spatial axes, by matrix products of gathered windows (im2col).

Three ways, chosen by shape alone so that equal ops give equal bits: plain (1x1, no windows to gather), depthwise (one
input channel a group: a loop over kernel positions), and gathered windows, a few images at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs, Context, kernel
from snplan.runtime.numpy.windows import Windows, cropped, padded, window_view, windows_of

# Gathered windows beyond this are made for some images at a time. The C allocator reuses blocks of up to 32 MiB,
# and asks the system for zeroed pages above that, which takes longer than the product.
_COLUMN_BYTES = 24 << 20


def _chunks(images: int, bytes_each: int) -> Iterator[slice]:
    step = max(1, _COLUMN_BYTES // max(bytes_each, 1))
    for start in range(0, images, step):
        yield slice(start, min(start + step, images))


@kernel("conv")
def conv(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """ONNX Conv: x [N, C, spatial], w [O, C / group, kernel], bias [O]."""
    x, w = inputs[0], inputs[1]
    windows = windows_of(attrs, x.shape[2:], w.shape[2:])
    y = _forward(x, w, attrs["group"], windows)
    if len(inputs) > 2:
        y += inputs[2].reshape(-1, *(1,) * len(windows.size))
    return y


def _forward(x: Array, w: Array, group: int, windows: Windows) -> Array:
    images, outputs = x.shape[0], w.shape[0]
    if w.shape[1] == 1 and group > 1:
        return _depthwise(padded(x, windows), w, windows)
    y = np.empty((images, group, outputs // group, prod(windows.count)), x.dtype)
    matrix = w.reshape(group, outputs // group, prod(w.shape[1:]))
    for part in _chunks(images, _column_bytes(x, windows)):
        np.matmul(matrix, _columns(x[part], group, windows), out=y[part])
    return y.reshape(images, outputs, *windows.count)


def _column_bytes(x: Array, windows: Windows) -> int:
    return 0 if windows.plain else x.shape[1] * prod(windows.kernel) * prod(windows.count) * x.itemsize


def _columns(x: Array, group: int, windows: Windows) -> Array:
    """[N, group, C / group * kernel, windows]."""
    if windows.plain:
        return x.reshape(x.shape[0], group, x.shape[1] // group, prod(windows.count))
    view = window_view(padded(x, windows), windows)
    return view.reshape(x.shape[0], group, x.shape[1] // group * prod(windows.kernel), prod(windows.count))


def _depthwise(x: Array, w: Array, windows: Windows) -> Array:
    """One input channel a group: `x` [N, C, padded], each channel feeding O / C outputs."""
    images, channels = x.shape[:2]
    spatial = (1,) * len(windows.size)
    taps = w.reshape(channels, w.shape[0] // max(channels, 1), prod(windows.kernel))
    y = np.zeros((images, channels, taps.shape[1], *windows.count), x.dtype)
    for number, place in windows.offsets():
        y += x[place][:, :, None] * taps[:, :, number].reshape(*taps.shape[:2], *spatial)
    return y.reshape(images, w.shape[0], *windows.count)


@kernel("conv_transpose")
def conv_transpose(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """The data gradient of the conv whose input has `shape` and whose output gradient is x [N, O, spatial]."""
    x, w = inputs
    shape, group = tuple(attrs["shape"]), attrs["group"]
    windows = windows_of(attrs, shape[2:], w.shape[2:], x.shape[2:])
    if w.shape[1] == 1 and group > 1:
        return cropped(_depthwise_transposed(x, w, group, windows), windows)
    rows = x.reshape(x.shape[0], group, x.shape[1] // group, prod(windows.count))
    matrix = np.swapaxes(w.reshape(group, w.shape[0] // group, prod(w.shape[1:])), 1, 2)
    y = np.empty(shape, x.dtype)
    bytes_each = 0 if windows.plain else shape[1] * prod(w.shape[2:]) * prod(x.shape[2:]) * x.itemsize
    for part in _chunks(x.shape[0], bytes_each):
        columns = np.matmul(matrix, rows[part])
        y[part] = columns.reshape(y[part].shape) if windows.plain else _scattered(columns, shape[1], windows)
    return y


def _scattered(columns: Array, channels: int, windows: Windows) -> Array:
    """Adjoint of gathering windows (col2im): columns [N, group, C / group * kernel, windows] to [N, C, size]."""
    parts = columns.reshape(columns.shape[0], channels, prod(windows.kernel), *windows.count)
    result = np.zeros((columns.shape[0], channels, *windows.padded), columns.dtype)
    for number, place in windows.offsets():
        result[place] += parts[:, :, number]
    return cropped(result, windows)


def _depthwise_transposed(x: Array, w: Array, channels: int, windows: Windows) -> Array:
    multiplier = w.shape[0] // channels
    spatial = (1,) * len(windows.size)
    rows = x.reshape(x.shape[0], channels, multiplier, *windows.count)
    taps = w.reshape(channels, multiplier, prod(windows.kernel))
    result = np.zeros((x.shape[0], channels, *windows.padded), x.dtype)
    for number, place in windows.offsets():
        result[place] += (rows * taps[:, :, number].reshape(channels, multiplier, *spatial)).sum(axis=2)
    return result


@kernel("conv_filter")
def conv_filter(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """The filter gradient of a conv: x [N, C, spatial], dy [N, O, spatial] to `shape`."""
    x, dy = inputs
    shape, group = tuple(attrs["shape"]), attrs["group"]
    windows = windows_of(attrs, x.shape[2:], shape[2:], dy.shape[2:])
    if shape[1] == 1 and group > 1:
        return _depthwise_filter(padded(x, windows), dy, windows).reshape(shape)
    total = np.zeros((group, shape[0] // group, prod(shape[1:])), x.dtype)
    rows = dy.reshape(dy.shape[0], group, shape[0] // group, prod(windows.count))
    for part in _chunks(x.shape[0], max(_column_bytes(x, windows), x[:1].nbytes)):
        left = np.moveaxis(rows[part], 0, 2)
        total += np.matmul(left.reshape(*left.shape[:2], -1), _tall_columns(x[part], group, windows))
    return total.reshape(shape)


def _tall_columns(x: Array, group: int, windows: Windows) -> Array:
    """[group, N * windows, C / group * kernel]: one product then sums over images too."""
    view = x.reshape(*x.shape[:2], prod(windows.count)) if windows.plain else window_view(padded(x, windows), windows)
    rank = 0 if windows.plain else len(windows.size)
    kernel_first = np.moveaxis(view, 0, 1 + rank)
    flat = kernel_first.reshape(group, x.shape[1] // group * prod(windows.kernel), x.shape[0] * prod(windows.count))
    return np.swapaxes(flat, 1, 2)


def _depthwise_filter(x: Array, dy: Array, windows: Windows) -> Array:
    images, channels = x.shape[:2]
    rows = dy.reshape(images, channels, dy.shape[1] // channels, *windows.count)
    axes = (0, *range(3, rows.ndim))
    taps = np.empty((channels, rows.shape[2], prod(windows.kernel)), x.dtype)
    for number, place in windows.offsets():
        taps[:, :, number] = np.add.reduce(x[place][:, :, None] * rows, axis=axes, dtype=np.float64)
    return taps
