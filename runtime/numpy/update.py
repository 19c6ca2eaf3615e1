"""Kernels of optimiser updates. Each computes in at least float32 and gives every output its own input's type."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs, Context, kernel


def _decayed(w: Array, g: Array, attrs: Attrs) -> Array:
    decay = attrs.get("weight_decay", 0.0)
    return g + decay * w if decay else g


@kernel("sgd_update", like=(0,))
def sgd_update(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """w - lr * (g + weight_decay * w)."""
    w, g = inputs
    return w - attrs["lr"] * _decayed(w, g, attrs)


@kernel("momentum_update", like=(0, 2))
def momentum_update(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, ...]:
    """m' = momentum * m + g (with decay), w' = w - lr * m'."""
    w, g, m = inputs
    after = attrs["momentum"] * m + _decayed(w, g, attrs)
    return w - attrs["lr"] * after, after


@kernel("adam_update", like=(0, 2, 3))
def adam_update(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, ...]:
    """Adam with bias correction by the step number and decoupled decay (AdamW)."""
    w, g, m, v = inputs
    beta1, beta2, lr = attrs["beta1"], attrs["beta2"], attrs["lr"]
    mean = beta1 * m + (1.0 - beta1) * g
    square = beta2 * v + (1.0 - beta2) * g * g
    rate = lr / (1.0 - beta1**context.step)
    spread = np.sqrt(square) / sqrt(1.0 - beta2**context.step) + attrs["epsilon"]
    decayed = w - (lr * attrs["weight_decay"]) * w if attrs.get("weight_decay") else w
    return decayed - rate * mean / spread, mean, square
