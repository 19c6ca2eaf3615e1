"""Kernels of optimiser updates. Each computes in the widest type of its inputs and gives each output its own type."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs, Context, kernel, wide


def _decayed(w: Array, g: Array, attrs: Attrs) -> Array:
    decay = attrs.get("weight_decay", 0.0)
    return g + decay * w if decay else g


def _like(values: Sequence[Array], inputs: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(value.astype(x.dtype) for value, x in zip(values, inputs, strict=True))


@kernel("sgd_update", widen=False)
def sgd_update(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, ...]:
    """w - lr * (g + weight_decay * w)."""
    w, g = map(wide, inputs)
    return _like([w - attrs["lr"] * _decayed(w, g, attrs)], inputs[:1])


@kernel("momentum_update", widen=False)
def momentum_update(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, ...]:
    """m' = momentum * m + g (with decay), w' = w - lr * m'."""
    w, g, m = map(wide, inputs)
    after = attrs["momentum"] * m + _decayed(w, g, attrs)
    return _like([w - attrs["lr"] * after, after], [inputs[0], inputs[2]])


@kernel("adam_update", widen=False)
def adam_update(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, ...]:
    """Adam with bias correction by the step number and decoupled decay (AdamW)."""
    w, g, m, v = map(wide, inputs)
    beta1, beta2, lr = attrs["beta1"], attrs["beta2"], attrs["lr"]
    mean = beta1 * m + (1.0 - beta1) * g
    square = beta2 * v + (1.0 - beta2) * g * g
    rate = lr / (1.0 - beta1**context.step)
    spread = np.sqrt(square) / sqrt(1.0 - beta2**context.step) + attrs["epsilon"]
    decayed = w - (lr * attrs["weight_decay"]) * w if attrs.get("weight_decay") else w
    return _like([decayed - rate * mean / spread, mean, square], [inputs[0], inputs[2], inputs[3]])
