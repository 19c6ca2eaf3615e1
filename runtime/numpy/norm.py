"""Kernels of normalisation. Statistics and the sums of their gradients accumulate in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs, Context, kernel
from snplan.runtime.numpy.reduce import accurate_sum


def _channels(x: Array) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """All axes of `x` but 1, and the shape that broadcasts a vector of channels."""
    return (0, *range(2, x.ndim)), (-1, *(1,) * (x.ndim - 2))


def moments(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and population variance over `axes`, in float64, with the axes kept as ones.

    The variance is of differences from the mean rounded to x's type, corrected for that rounding: no float64 copy of x.
    """
    count = max(prod(x.shape[axis] for axis in axes), 1)
    mean = accurate_sum(x, axes, keepdims=True) / count
    near = mean.astype(x.dtype)
    centred = x - near
    variance = accurate_sum(centred * centred, axes, keepdims=True) / count - np.square(mean - near)
    return mean, np.maximum(variance, 0.0)


def mean_of_sums(sums: Array, x: Array, axes: Sequence[int]) -> Array:
    """`sums` over `axes` of x, rounded to x's type, divided by the number of elements in that type."""
    count = max(prod(x.shape[axis] for axis in axes), 1)
    return sums.astype(x.dtype) / x.dtype.type(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalised:
    """(x - mean) * inv_std over `axes`, and what its gradient needs."""

    values: Array
    inv_std: Array
    axes: tuple[int, ...]

    def gradient(self, d: Array, *, centred: bool = True) -> Array:
        """dx where `d` is the gradient of `values`; the statistics depend on x (the mean only if `centred`)."""
        along = mean_of_sums(accurate_sum(d * self.values, self.axes, keepdims=True), d, self.axes)
        result = d - self.values * along
        if centred:
            result = result - mean_of_sums(accurate_sum(d, self.axes, keepdims=True), d, self.axes)
        return result * self.inv_std


def inverse_root(variance: Array, attrs: Attrs, dtype: np.dtype[Any]) -> Array:
    """1 / sqrt(variance + epsilon), rounded to `dtype` once."""
    return (1.0 / np.sqrt(variance.astype(np.float64) + attrs["epsilon"])).astype(dtype)


@kernel("batch_norm_train", like=(0, None, None))
def batch_norm_train(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, Array, Array]:
    """y with batch statistics over all axes but 1, and those statistics (population variance)."""
    x, scale, bias = inputs
    axes, shape = _channels(x)
    mean, variance = moments(x, axes)
    # From the variance as it is given out: the gradient and what fusion takes apart start from that one.
    factor = inverse_root(variance.astype(x.dtype), attrs, x.dtype) * scale.reshape(shape)
    y = (x - mean.astype(x.dtype)) * factor + bias.reshape(shape)
    return y, mean.reshape(-1).astype(x.dtype), variance.reshape(-1).astype(x.dtype)


@kernel("batch_norm_grad", like=(0, 1, 1))
def batch_norm_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, Array, Array]:
    """dx, dscale, dbias; the statistics depend on x."""
    x, scale, mean, variance, dy = inputs
    axes, shape = _channels(x)
    inv_std = inverse_root(variance.reshape(shape), attrs, x.dtype)
    normalised = Normalised(values=(x - mean.reshape(shape)) * inv_std, inv_std=inv_std, axes=axes)
    dx = normalised.gradient(dy) * scale.reshape(shape)
    dscale = accurate_sum(dy * normalised.values, axes)
    return dx, dscale, accurate_sum(dy, axes)


@kernel("batch_norm_eval", like=(0,))
def batch_norm_eval(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """y with the running statistics."""
    x, scale, bias, mean, variance = inputs
    _, shape = _channels(x)
    factor = inverse_root(variance.reshape(shape), attrs, x.dtype) * scale.reshape(shape)
    return (x - mean.reshape(shape)) * factor + bias.reshape(shape)


@kernel("batch_norm_eval_grad", like=(0, 1, 1))
def batch_norm_eval_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, Array, Array]:
    """dx, dscale, dbias; the statistics are constants."""
    x, scale, mean, variance, dy = inputs
    axes, shape = _channels(x)
    inv_std = inverse_root(variance.reshape(shape), attrs, x.dtype)
    values = (x - mean.reshape(shape)) * inv_std
    dscale = accurate_sum(dy * values, axes)
    return dy * (inv_std * scale.reshape(shape)), dscale, accurate_sum(dy, axes)


@kernel("batch_norm_update", like=(0, 1))
def batch_norm_update(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, Array]:
    """`running * momentum + batch * (1 - momentum)` of the mean and of the variance."""
    running_mean, running_var, mean, variance = inputs
    momentum = attrs["momentum"]
    return (
        running_mean * momentum + mean * (1.0 - momentum),
        running_var * momentum + variance * (1.0 - momentum),
    )


def _trailing(x: Array, attrs: Attrs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The normalised axes and the ones before them."""
    return tuple(range(attrs["axis"], x.ndim)), tuple(range(attrs["axis"]))


@kernel("layer_norm", like=(0, None, None))
def layer_norm(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, Array, Array]:
    """y over the axes from `axis` on, mean and 1 / sqrt(variance + epsilon)."""
    x = inputs[0]
    mean, variance = moments(x, _trailing(x, attrs)[0])
    near, inv_std = mean.astype(x.dtype), inverse_root(variance, attrs, x.dtype)
    y = (x - near) * inv_std
    if len(inputs) > 1:
        y = y * inputs[1]
    return y + inputs[2] if len(inputs) > 2 else y, near, inv_std


@kernel("layer_norm_grad", like=(0, 1, 1))
def layer_norm_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, ...]:
    """dx, and dscale and dbias where there are those."""
    x, dy, (mean, inv_std) = inputs[0], inputs[-1], inputs[-3:-1]
    axes, leading = _trailing(x, attrs)
    normalised = Normalised(values=(x - mean) * inv_std, inv_std=inv_std, axes=axes)
    if not attrs["has_scale"]:
        return (normalised.gradient(dy),)
    scale = inputs[1]
    results = [normalised.gradient(dy * scale), _parameter_sum(dy * normalised.values, leading, scale)]
    if attrs["has_bias"]:
        results.append(_parameter_sum(dy, leading, scale))
    return tuple(results)


def _parameter_sum(values: Array, leading: tuple[int, ...], scale: Array) -> Array:
    """Sum over the leading axes, and over those that `scale` broadcasts along, in scale's shape."""
    total = accurate_sum(values, leading)
    lent = (1,) * (total.ndim - scale.ndim) + scale.shape
    repeated = tuple(i for i, (n, m) in enumerate(zip(total.shape, lent, strict=True)) if n != m)
    return accurate_sum(total, repeated, keepdims=True).reshape(scale.shape)


@kernel("rms_norm", like=(0, None))
def rms_norm(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, Array]:
    """y over the axes from `axis` on, and 1 / sqrt(mean square + epsilon)."""
    x = inputs[0]
    axes = _trailing(x, attrs)[0]
    square = accurate_sum(x * x, axes, keepdims=True) / max(prod(x.shape[attrs["axis"] :]), 1)
    inv_rms = inverse_root(square, attrs, x.dtype)
    y = x * inv_rms
    return y * inputs[1] if len(inputs) > 1 else y, inv_rms


@kernel("rms_norm_grad", like=(0, 1))
def rms_norm_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, ...]:
    """dx, and dscale where there is a scale."""
    x, inv_rms, dy = inputs[0], inputs[-2], inputs[-1]
    axes, leading = _trailing(x, attrs)
    normalised = Normalised(values=x * inv_rms, inv_std=inv_rms, axes=axes)
    if not attrs["has_scale"]:
        return (normalised.gradient(dy, centred=False),)
    scale = inputs[1]
    return normalised.gradient(dy * scale, centred=False), _parameter_sum(dy * normalised.values, leading, scale)


def _grouped(x: Array, groups: int) -> Array:
    """[N, groups, elements of a group]."""
    return x.reshape(x.shape[0], groups, prod(x.shape[1:]) // groups)


@kernel("group_norm", like=(0, None, None))
def group_norm(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, Array, Array]:
    """y normalised over each group of channels; mean and 1 / sqrt(variance + epsilon) [N, groups]."""
    x, scale, bias = inputs
    _, shape = _channels(x)
    rows = _grouped(x, attrs["groups"])
    mean, variance = moments(rows, (2,))
    near, inv_std = mean.astype(x.dtype), inverse_root(variance, attrs, x.dtype)
    y = ((rows - near) * inv_std).reshape(x.shape) * scale.reshape(shape) + bias.reshape(shape)
    return y, near[:, :, 0], inv_std[:, :, 0]


@kernel("group_norm_grad", like=(0, 1, 1))
def group_norm_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, Array, Array]:
    """dx, dscale, dbias."""
    x, scale, mean, inv_std, dy = inputs
    axes, shape = _channels(x)
    groups, spread = attrs["groups"], inv_std[:, :, None]
    values = (_grouped(x, groups) - mean[:, :, None]) * spread
    normalised = Normalised(values=values, inv_std=spread, axes=(2,))
    dx = normalised.gradient(_grouped(dy * scale.reshape(shape), groups)).reshape(x.shape)
    dscale = accurate_sum(dy * values.reshape(x.shape), axes)
    return dx, dscale, accurate_sum(dy, axes)


def _channel_window(x: Array, before: int, after: int) -> Array:
    """For each channel the sum of x over channels c - before .. c + after."""
    count = x.shape[1]
    total = np.zeros_like(x)
    for shift in range(-min(before, count - 1), min(after, count - 1) + 1):
        low, high = max(0, -shift), min(count, count - shift)
        total[:, low:high] += x[:, low + shift : high + shift]
    return total


def _lrn_base(x: Array, attrs: Attrs) -> Array:
    size = attrs["size"]
    return attrs["bias"] + attrs["alpha"] / size * _channel_window(x * x, (size - 1) // 2, size // 2)


@kernel("lrn")
def lrn(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """x / (bias + alpha / size * sum of squares over nearby channels)^beta."""
    x = inputs[0]
    return x * _lrn_base(x, attrs) ** -attrs["beta"]


@kernel("lrn_grad")
def lrn_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy * base^-beta - 2 alpha beta / size * x * (sum of dy y / base over channels whose windows hold this one)."""
    x, dy = inputs
    size, beta = attrs["size"], attrs["beta"]
    base = _lrn_base(x, attrs)
    scale = base**-beta
    spread = _channel_window(dy * x * scale / base, size // 2, (size - 1) // 2)
    return dy * scale - (2.0 * attrs["alpha"] * beta / size) * x * spread
