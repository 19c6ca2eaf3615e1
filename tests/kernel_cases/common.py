"""What the lists of kernel cases share: types, shapes, seeded arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from snplan.runtime.numpy import Array

Shape: TypeAlias = tuple[int, ...]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS: tuple[Any, ...] = (np.float32, np.float64, np.float16, BFLOAT16)
INTS: tuple[Any, ...] = (np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8)
# An image with an odd number of channels, one whose channels make whole vectors, a volume.
IMAGES: tuple[Shape, ...] = ((2, 3, 5, 4), (3, 8, 4, 5), (2, 4, 3, 2, 3))


def rng(seed: int = 0) -> np.random.Generator:
    """A seeded generator."""
    return np.random.default_rng(seed)


def integers(low: int, high: int, shape: Sequence[int], dtype: Any = np.int64, seed: int = 0) -> Array:
    """Seeded integers in [low, high)."""
    return rng(seed).integers(low, high, tuple(shape)).astype(dtype)
