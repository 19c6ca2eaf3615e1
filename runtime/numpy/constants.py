"""Kernels of constants, copies and casts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from snplan.runtime.dtypes import numpy_dtype
from snplan.runtime.numpy.base import Array, Attrs, Context, kernel


@kernel("constant")
def constant(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """The values of `attrs`; a single one fills the shape."""
    # Floats that are not finite are text in plans ("-inf"), which ml_dtypes' types do not parse themselves.
    numbers = [float(value) if isinstance(value, str) else value for value in attrs["values"]]
    values = np.asarray(numbers).astype(numpy_dtype(attrs["dtype"]))
    shape = tuple(attrs["shape"])
    return np.full(shape, values[0]) if values.size == 1 else values.reshape(shape)


@kernel("range")
def range_(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """`start + step * i`, exact in integers."""
    dtype = numpy_dtype(attrs["dtype"])
    steps = np.arange(attrs["size"], dtype=dtype if dtype.kind in "iu" else np.float64)
    return (attrs["start"] + attrs["step"] * steps).astype(dtype)


@kernel("view", widen=False)
def view(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """A copy under another shape: kernels never give out their inputs' memory."""
    return inputs[0].reshape(tuple(attrs["shape"])).copy()


@kernel("copy", widen=False)
def copy(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """The same values."""
    return inputs[0].copy()


@kernel("cast", widen=False)
def cast(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """ONNX Cast: floats to integers truncate, to bool is "not zero"."""
    x, target = inputs[0], numpy_dtype(attrs["to"])
    return x != x.dtype.type(0) if target == np.bool_ else x.astype(target)
