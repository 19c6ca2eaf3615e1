"""Kernels of batch normalisation in pieces: together the same bits as the whole (`snplan.runtime.numpy.norm`)."""

from __future__ import annotations

from collections.abc import Sequence

from snplan.runtime.numpy.base import Array, Attrs, Context, kernel
from snplan.runtime.numpy.norm import inverse_root, moments
from snplan.runtime.numpy.reduce import accurate_sum


def _axes(x: Array) -> tuple[int, ...]:
    """All axes of `x` but that of the channels."""
    return (0, *range(2, x.ndim))


@kernel("batch_norm_statistics", like=(None, None, None))
def statistics(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, Array, Array]:
    """Mean, population variance and 1 / sqrt(variance + epsilon) of each channel."""
    (x,) = inputs
    mean, variance = (v.reshape(-1).astype(x.dtype) for v in moments(x, _axes(x)))
    return mean, variance, inverse_root(variance, attrs, x.dtype)


@kernel("batch_norm_inverse")
def inverse(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """1 / sqrt(variance + epsilon)."""
    return inverse_root(inputs[0], attrs, inputs[0].dtype)


@kernel("batch_norm_apply", like=(0,))
def apply(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """y = (x - mean) * (inv_std * scale) + bias."""
    x, mean, inv_std, scale, bias = inputs
    return (x - mean) * (inv_std * scale) + bias


@kernel("batch_norm_grad_sums", like=(1, 1))
def gradient_sums(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, Array]:
    """dscale and dbias."""
    x, mean, inv_std, dy = inputs
    axes = _axes(x)
    return accurate_sum(dy * ((x - mean) * inv_std), axes), accurate_sum(dy, axes)


@kernel("batch_norm_grad_apply", like=(0,))
def gradient_apply(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dx from dy and its sums over `count` elements."""
    x, scale, mean, inv_std, dscale, dbias, dy = inputs
    count = dscale.dtype.type(attrs["count"])
    result = dy - (x - mean) * inv_std * (dscale / count)
    return (result - dbias / count) * inv_std * scale
