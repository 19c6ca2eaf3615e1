"""Kernel of matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs, Context, kernel


@kernel("matmul")
def matmul(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """`alpha * op(a) @ op(b) + bias` over the last two axes; leading axes broadcast."""
    a, b = inputs[0], inputs[1]
    a = np.swapaxes(a, -1, -2) if attrs.get("trans_a") else a
    b = np.swapaxes(b, -1, -2) if attrs.get("trans_b") else b
    y = _product(a, b)
    alpha = attrs.get("alpha", 1.0)
    if alpha != 1:
        y = y * y.dtype.type(alpha)
    return y + inputs[2] if len(inputs) > 2 else y


def _product(a: Array, b: Array) -> Array:
    """a @ b; a stack of matrices against one matrix is a single product of taller ones."""
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous:
        return np.matmul(a.reshape(prod(a.shape[:-1]), a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    return np.asarray(np.matmul(a, b))
