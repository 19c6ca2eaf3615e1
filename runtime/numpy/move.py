"""Kernels that move data: every output element is an input element, or zero. Their adjoints are here too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs, Context, kernel


@kernel("transpose", widen=False)
def transpose(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Axes in the order of `perm`."""
    return np.transpose(inputs[0], attrs["perm"]).copy(order="C")


@kernel("concat", widen=False)
def concat(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """The inputs one after another along an axis."""
    return np.concatenate(inputs, axis=attrs["axis"])


@kernel("split", widen=False)
def split(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, ...]:
    """Parts of `sizes` along an axis."""
    ends = np.cumsum(attrs["sizes"])[:-1]
    return tuple(part.copy(order="C") for part in np.split(inputs[0], ends, axis=attrs["axis"]))


def _slices(attrs: Attrs) -> tuple[slice, ...]:
    """One slice an axis. A negative step that ends at the first element needs an open end."""
    found = []
    for start, step, size in zip(attrs["starts"], attrs["steps"], attrs["sizes"], strict=True):
        stop = start + size * step
        found.append(slice(0, 0) if size == 0 else slice(start, stop if stop >= 0 else None, step))
    return tuple(found)


@kernel("slice", widen=False)
def slice_(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """`y[i] = x[starts + i * steps]`."""
    return inputs[0][_slices(attrs)].copy(order="C")


@kernel("slice_grad", widen=False)
def slice_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy at the positions that were read, zero elsewhere."""
    dy = inputs[0]
    dx = np.zeros(attrs["shape"], dy.dtype)
    dx[_slices({**attrs, "sizes": dy.shape})] = dy
    return dx


def _source(size: int, before: int, after: int, mode: str) -> Array:
    """For each position of a padded axis the position it is read from; -1 where it is the fill value."""
    kept = np.arange(size)[max(-before, 0) : size - max(-after, 0)]
    width = (max(before, 0), max(after, 0))
    if mode == "constant":
        return np.pad(kept, width, constant_values=-1)
    return np.pad(kept, width, mode=mode)  # type: ignore[call-overload]


@kernel("pad", widen=False)
def pad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Padded, and cropped where a pad is negative."""
    x = inputs[0]
    before, after, mode = attrs["before"], attrs["after"], attrs.get("mode", "constant")
    crop = tuple(slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(before, after, x.shape, strict=True))
    if mode == "constant":
        widths = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
        fill = np.asarray(attrs.get("value") or 0).astype(x.dtype)
        return np.pad(x[crop], widths, constant_values=fill)
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        if b or a:
            x = np.take(x, _source(x.shape[axis], b, a, mode), axis=axis)
    return x.copy() if x is inputs[0] else x


@kernel("pad_grad")
def pad_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Every element of dy added where its position was read from."""
    dx = inputs[0]
    for axis, (b, a, n) in enumerate(zip(attrs["before"], attrs["after"], attrs["shape"], strict=True)):
        if b or a:
            dx = _fold(dx, axis, n, b, _source(n, b, a, attrs.get("mode", "constant")))
    return dx.copy() if dx is inputs[0] else dx


def _fold(dy: Array, axis: int, size: int, before: int, source: Array) -> Array:
    """Adjoint of reading `source` along an axis: the run that was kept in place at once, the pads one by one."""
    moved = np.moveaxis(dy, axis, 0)
    result = np.zeros((size, *moved.shape[1:]), dy.dtype)
    low, high = max(-before, 0), min(size, len(source) - before)
    if high > low:
        result[low:high] = moved[low + before : high + before]
    for position, origin in enumerate(source):
        if origin >= 0 and not low <= position - before < high:
            result[origin] += moved[position]
    return np.moveaxis(result, 0, axis)


@kernel("expand", widen=False)
def expand(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Broadcast to `shape`."""
    return np.broadcast_to(inputs[0], tuple(attrs["shape"])).copy(order="C")


@kernel("tile", widen=False)
def tile(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """`repeats` copies along each axis."""
    return np.tile(inputs[0], attrs["repeats"])


@kernel("trilu", widen=False)
def trilu(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """The upper or lower triangle of the last two axes, from diagonal k."""
    x = inputs[0]
    rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])[None, :]
    offset = columns - rows
    inside = offset >= attrs["k"] if attrs["upper"] else offset <= attrs["k"]
    return np.where(inside, x, x.dtype.type(0))


@kernel("one_hot", widen=False)
def one_hot(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """`values` is [off, on]; an index below zero counts from the end, one out of range is off everywhere."""
    indices, values = inputs
    axis, depth = attrs["axis"], attrs["depth"]
    wanted = np.expand_dims(np.where(indices < 0, indices + depth, indices), axis)
    positions = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(wanted.ndim)])
    return np.where(wanted == positions, values[1], values[0])
