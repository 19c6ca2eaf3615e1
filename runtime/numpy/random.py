"""Kernels that draw random numbers (`snplan.runtime.rng` says which)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from snplan.runtime import rng
from snplan.runtime.dtypes import numpy_dtype
from snplan.runtime.numpy.base import Array, Attrs, Context, kernel


def _kept(shape: Sequence[int], attrs: Attrs, context: Context) -> Array:
    flags = rng.keep(prod(shape), attrs["ratio"], seed=context.seed, stream=context.stream, step=context.step)
    return flags.reshape(tuple(shape))


@kernel("dropout", "dropout_grad")
def dropout(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """The input where the stream's mask keeps it, times 1 / (1 - ratio); 0 elsewhere. The backward is the same map."""
    x = inputs[0]
    factor = x.dtype.type(1.0 / (1.0 - attrs["ratio"]))
    return np.where(_kept(x.shape, attrs, context), x * factor, x.dtype.type(0))


@kernel("dropout_mask")
def dropout_mask(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """The mask of the dropout with the same stream."""
    return _kept(attrs["shape"], attrs, context)


@kernel("random_uniform")
def random_uniform(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Uniform numbers in [low, high): `low + (high - low) * u`, in float64 before the cast."""
    shape, low, high = tuple(attrs["shape"]), attrs["low"], attrs["high"]
    u = rng.uniform(prod(shape), seed=context.seed, stream=context.stream, step=context.step)
    return (low + (high - low) * u).reshape(shape).astype(numpy_dtype(attrs["dtype"]))


@kernel("random_normal")
def random_normal(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Normal numbers: `mean + scale * z`, in float64 before the cast."""
    shape = tuple(attrs["shape"])
    z = rng.normal(prod(shape), seed=context.seed, stream=context.stream, step=context.step)
    return (attrs["mean"] + attrs["scale"] * z).reshape(shape).astype(numpy_dtype(attrs["dtype"]))
