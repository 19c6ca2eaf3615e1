"""Kernels of reductions, running sums and selections along axes. Sums of floats accumulate in float64."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs, Context, kernel


def accurate_sum(x: Array, axes: tuple[int, ...], *, keepdims: bool = False) -> Array:
    """The sum over `axes`: float64 for floats, x's own type for integers."""
    dtype = np.float64 if x.dtype.kind == "f" else x.dtype
    return np.asarray(np.sum(x, axis=axes, dtype=dtype, keepdims=keepdims))


def kept(y: Array, axes: Sequence[int], attrs: Attrs) -> Array:
    """`y` with the reduced axes as ones, whether or not the reduction kept them."""
    return y if bool(attrs.get("keepdims")) else np.expand_dims(y, tuple(axes))


def _axes(attrs: Attrs) -> tuple[int, ...]:
    return tuple(attrs["axes"])


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> Any:
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


@kernel("reduce_sum")
def reduce_sum(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Sum over the axes."""
    x = inputs[0]
    return accurate_sum(x, _axes(attrs), keepdims=bool(attrs.get("keepdims"))).astype(x.dtype)


@kernel("reduce_mean")
def reduce_mean(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Mean over the axes; integers divide with truncation."""
    x = inputs[0]
    count = np.prod([x.shape[axis] for axis in _axes(attrs)], dtype=np.int64)
    total = accurate_sum(x, _axes(attrs), keepdims=bool(attrs.get("keepdims")))
    return np.asarray(total / count).astype(x.dtype)


@kernel("reduce_max")
def reduce_max(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Largest over the axes; of no elements the lowest value."""
    x = inputs[0]
    if x.dtype.kind == "b":
        return np.asarray(np.any(x, axis=_axes(attrs), keepdims=bool(attrs.get("keepdims"))))
    return np.asarray(np.max(x, axis=_axes(attrs), keepdims=bool(attrs.get("keepdims")), initial=_lowest(x.dtype)))


@kernel("reduce_min")
def reduce_min(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Smallest over the axes; of no elements the highest value."""
    x = inputs[0]
    if x.dtype.kind == "b":
        return np.asarray(np.all(x, axis=_axes(attrs), keepdims=bool(attrs.get("keepdims"))))
    return np.asarray(np.min(x, axis=_axes(attrs), keepdims=bool(attrs.get("keepdims")), initial=_highest(x.dtype)))


@kernel("reduce_prod")
def reduce_prod(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Product over the axes."""
    x = inputs[0]
    dtype = np.float64 if x.dtype.kind == "f" else x.dtype
    return np.asarray(np.prod(x, axis=_axes(attrs), dtype=dtype, keepdims=bool(attrs.get("keepdims")))).astype(x.dtype)


@kernel("reduce_log_sum_exp")
def reduce_log_sum_exp(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """log of the sum of exp, shifted by the largest so that nothing overflows."""
    x, axes = inputs[0], _axes(attrs)
    top = np.maximum.reduce(x, axis=axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, x.dtype.type(0))
    total = np.log(accurate_sum(np.exp(x - top), axes, keepdims=True)) + top
    y = total if bool(attrs.get("keepdims")) else np.squeeze(total, axes)
    return np.asarray(y).astype(x.dtype)


@kernel("reduce_extremum_grad")
def reduce_extremum_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy, shared evenly by the elements equal to y."""
    x, y, dy = inputs
    axes = _axes(attrs)
    chosen = x == kept(y, axes, attrs)
    count = np.add.reduce(chosen, axis=axes, keepdims=True, dtype=x.dtype)
    return np.where(chosen, kept(dy, axes, attrs) / count, x.dtype.type(0))


@kernel("reduce_prod_grad")
def reduce_prod_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy times the product of all other elements, from prefix and suffix products (zeros need no case of their own)."""
    x, dy = inputs
    axes = _axes(attrs)
    last = tuple(range(x.ndim - len(axes), x.ndim))
    moved = np.moveaxis(x, axes, last)
    rows = moved.reshape(*moved.shape[: x.ndim - len(axes)], prod(moved.shape[x.ndim - len(axes) :])).astype(np.float64)
    others = _exclusive_product(rows) * _exclusive_product(rows[..., ::-1])[..., ::-1]
    return (np.moveaxis(others.reshape(moved.shape), last, axes) * kept(dy, axes, attrs)).astype(x.dtype)


def _exclusive_product(rows: Array) -> Array:
    result = np.ones_like(rows)
    np.multiply.accumulate(rows[..., :-1], axis=-1, out=result[..., 1:])
    return result


@kernel("reduce_log_sum_exp_grad")
def reduce_log_sum_exp_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy * exp(x - y)."""
    x, y, dy = inputs
    axes = _axes(attrs)
    return kept(dy, axes, attrs) * np.exp(x - kept(y, axes, attrs))


def _arg_extremum(x: Array, attrs: Attrs, *, largest: bool) -> Array:
    axis = attrs["axis"]
    find = np.argmax if largest else np.argmin
    if attrs.get("last"):
        index = x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis, keepdims=bool(attrs.get("keepdims")))
    else:
        index = find(x, axis=axis, keepdims=bool(attrs.get("keepdims")))
    return np.asarray(index).astype(np.int64)


@kernel("arg_max")
def arg_max(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Index of the largest: the first of equal ones, or the last."""
    return _arg_extremum(inputs[0], attrs, largest=True)


@kernel("arg_min")
def arg_min(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Index of the smallest: the first of equal ones, or the last."""
    return _arg_extremum(inputs[0], attrs, largest=False)


@kernel("cum_sum")
def cum_sum(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Running sum along an axis; `exclusive` leaves the element itself out, `reverse` runs from the end."""
    x, axis = inputs[0], attrs["axis"]
    run = np.flip(x, axis) if attrs.get("reverse") else x
    dtype = np.float64 if x.dtype.kind == "f" else x.dtype
    total = np.add.accumulate(run, axis=axis, dtype=dtype)
    if attrs.get("exclusive"):
        # Moved along by one; taking the element off again would make NaN of infinities.
        zeros = np.zeros_like(np.take(total, [0] * min(x.shape[axis], 1), axis=axis))
        total = np.concatenate((zeros, np.take(total, np.arange(x.shape[axis] - 1), axis=axis)), axis=axis)
    return (np.flip(total, axis) if attrs.get("reverse") else total).astype(x.dtype)


@kernel("top_k")
def top_k(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, Array]:
    """The k largest (or smallest) along an axis, sorted, and their indices: of equal ones the lower first."""
    x, axis = inputs[0], attrs["axis"]
    if attrs.get("largest", True):
        # A stable sort of the reversed line, read from its end, puts the lower of equal indices first.
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    indices = np.take(order, np.arange(attrs["k"]), axis=axis)
    return np.take_along_axis(x, indices, axis), indices.astype(np.int64)
