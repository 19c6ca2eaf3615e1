"""Kernels that read or write at indices held in a tensor. Sums run in index order, so they are deterministic."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs, Context, kernel

_REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def positions(indices: Array, size: int) -> Array:
    """Indices as positions in [0, size): negative ones count from the end. IndexError names one out of range."""
    found = np.where(indices < 0, indices + size, indices).astype(np.intp)
    bad = (found < 0) | (found >= size)
    if bad.any():
        raise IndexError(f"index {indices[bad].flat[0]} is out of range: the axis has {size} entries")
    return found


def sum_rows(rows: Array, values: Array, count: int) -> Array:
    """[outer, count, inner] zeros, with values[:, i] added to row rows[i]; sums in float64, in the order of i."""
    outer, _, inner = values.shape
    result = np.zeros((outer, count, inner), values.dtype)
    if rows.size == 0 or values.size == 0:
        return result
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    dtype = np.float64 if values.dtype.kind == "f" else values.dtype
    result[:, ordered[starts], :] = np.add.reduceat(values[:, order, :], starts, axis=1, dtype=dtype)
    return result


@kernel("gather", widen=False)
def gather(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Entries of x at `indices` along an axis."""
    x, indices = inputs
    return np.take(x, positions(indices, x.shape[attrs["axis"]]), axis=attrs["axis"])


@kernel("gather_grad")
def gather_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy summed where its entries were read."""
    indices, dy = inputs
    axis, shape = attrs["axis"], tuple(attrs["shape"])
    rows = positions(indices, shape[axis]).reshape(-1)
    values = dy.reshape(prod(shape[:axis]), rows.size, prod(shape[axis + 1 :]))
    return sum_rows(rows, values, shape[axis]).reshape(shape)


def _element_positions(indices: Array, axis: int, shape: Sequence[int]) -> Array:
    """Flat positions, in a tensor of `shape`, of GatherElements' reads."""
    strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    flat = positions(indices, shape[axis]) * strides[axis]
    for i, size in enumerate(indices.shape):
        if i != axis:
            flat = flat + (np.arange(size) * strides[i]).reshape([-1 if j == i else 1 for j in range(len(shape))])
    return flat


@kernel("gather_elements", widen=False)
def gather_elements(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """ONNX GatherElements."""
    x, indices = inputs
    return x.reshape(-1)[_element_positions(indices, attrs["axis"], x.shape)]


@kernel("scatter_add")
def scatter_add(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Zeros of `shape`, with dy added at GatherElements' positions."""
    indices, dy = inputs
    shape = tuple(attrs["shape"])
    flat = _element_positions(indices, attrs["axis"], shape).reshape(-1)
    return sum_rows(flat, dy.reshape(1, flat.size, 1), prod(shape)).reshape(shape)


@kernel("scatter_elements")
def scatter_elements(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """x with `updates` written (the last wins) or reduced at GatherElements' positions."""
    x, indices, updates = inputs
    flat = _element_positions(indices, attrs["axis"], x.shape).reshape(-1)
    return _scattered(x.reshape(-1), flat, updates.reshape(-1), attrs.get("reduction", "none")).reshape(x.shape)


def _scattered(x: Array, rows: Array, updates: Array, reduction: str) -> Array:
    y = x.copy()
    if reduction == "none":
        y[rows] = updates
    else:
        _REDUCTIONS[reduction].at(y, rows, updates)
    return y


def _tuple_rows(indices: Array, shape: Sequence[int], batch_dims: int) -> Array:
    """Row numbers of index tuples (the last axis of `indices`), rows being what is left of `shape` after them."""
    depth = indices.shape[-1]
    rows = np.zeros(indices.shape[:-1], np.intp)
    for i in range(batch_dims):
        rows = rows * shape[i] + np.arange(shape[i]).reshape([-1 if j == i else 1 for j in range(rows.ndim)])
    for i in range(depth):
        size = shape[batch_dims + i]
        rows = rows * size + positions(indices[..., i], size)
    return rows


@kernel("gather_nd", widen=False)
def gather_nd(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """ONNX GatherND."""
    x, indices = inputs
    batch = attrs["batch_dims"]
    outer, inner = x.shape[: batch + indices.shape[-1]], x.shape[batch + indices.shape[-1] :]
    rows = _tuple_rows(indices, x.shape, batch)
    return x.reshape(prod(outer), prod(inner))[rows.reshape(-1)].reshape(rows.shape + inner)


@kernel("gather_nd_grad")
def gather_nd_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy summed where its slices were read."""
    indices, dy = inputs
    shape, batch = tuple(attrs["shape"]), attrs["batch_dims"]
    width = prod(shape[batch + indices.shape[-1] :])
    rows = _tuple_rows(indices, shape, batch).reshape(-1)
    count = prod(shape[: batch + indices.shape[-1]])
    return sum_rows(rows, dy.reshape(1, rows.size, width), count).reshape(shape)


@kernel("scatter_nd")
def scatter_nd(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """ONNX ScatterND: of tuples that repeat, the last wins with reduction "none"."""
    x, indices, updates = inputs
    depth = indices.shape[-1]
    count, width = prod(x.shape[:depth]), prod(x.shape[depth:])
    rows = _tuple_rows(indices, x.shape, 0).reshape(-1)
    added = updates.reshape(rows.size, width)
    flat = _scattered(x.reshape(count, width), rows, added, attrs.get("reduction", "none"))
    return flat.reshape(x.shape)
