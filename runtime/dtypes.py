"""NumPy's element types for the names that plans use."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from snplan.errors import RunError

_EXTRA = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_PACKED = ("int4", "uint4")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype called `name` in a plan. Raises RunError (SNP-R003) for packed 4-bit types."""
    if name in _PACKED:
        raise RunError(
            "SNP-R003",
            f"tensors of type {name} are packed, two a byte: no executor holds them; cast to int8 in the model",
        )
    return np.dtype(getattr(ml_dtypes, name) if name in _EXTRA else name)
