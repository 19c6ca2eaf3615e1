"""Random numbers, updates, constants."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from typing import Any

import numpy as np
from kernel_harness import ORDERS, Case
from runtime_support import normal

from kernel_cases.common import FLOATS, IMAGES, INTS


def random_cases() -> Iterator[Case]:
    """Random numbers: equal bits, but for the logarithms and sines of normal ones."""
    for shape in ((1001,), (3, 4, 8), *IMAGES):
        orders = ORDERS if len(shape) > 3 else ("plain",)
        for dtype in FLOATS:
            for kind in ("dropout", "dropout_grad"):
                yield Case(
                    kind=kind, inputs=(normal(*shape, dtype=dtype),), attrs={"ratio": 0.3}, tolerance=0, orders=orders
                )
            attrs = {"shape": list(shape), "dtype": np.dtype(dtype).name}
            uniform, bell = {**attrs, "low": -1.5, "high": 2.25}, {**attrs, "mean": 0.5, "scale": 2.0}
            yield Case(kind="random_uniform", inputs=(), attrs=uniform, tolerance=0, orders=orders, label=f"{shape}")
            yield Case(kind="random_normal", inputs=(), attrs=bell, tolerance=1e-6, orders=orders, label=f"{shape}")
        yield Case(
            kind="dropout_mask", inputs=(), attrs={"shape": list(shape), "ratio": 0.6}, tolerance=0, orders=orders
        )
    yield Case(kind="dropout", inputs=(normal(50),), attrs={"ratio": 0.0}, tolerance=0, label="keeps_all")


def update_cases() -> Iterator[Case]:
    """Optimiser updates, with and without decay, in one type and in a mix."""
    for shape in ((301,), (6, 8)):
        for decay in (0.0, 0.01):
            for types in ((np.float32,) * 4, (np.float64,) * 4, (np.float16, np.float16, np.float32, np.float32)):
                w, g, m = (normal(*shape, seed=k, dtype=t) for k, t in enumerate(types[:3]))
                v = np.abs(normal(*shape, seed=4, dtype=types[3]))
                attrs = {"lr": 0.1, "weight_decay": decay}
                yield Case(kind="sgd_update", inputs=(w, g), attrs=attrs, label=f"{decay}")
                yield Case(kind="momentum_update", inputs=(w, g, m), attrs={**attrs, "momentum": 0.9}, label=f"{decay}")
                adam = {**attrs, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
                yield Case(kind="adam_update", inputs=(w, g, m, v), attrs=adam, label=f"{decay}")


def constant_cases() -> Iterator[Case]:
    """Constants and ranges of all types."""
    for dtype in (*FLOATS, *INTS):
        name = np.dtype(dtype).name
        one: dict[str, Any] = {"dtype": name, "shape": [3, 5], "values": [7]}
        yield Case(kind="constant", inputs=(), attrs=one, label=name, tolerance=0)
        many = {"dtype": name, "shape": [2, 3], "values": [1, 2, 3, 4, 5, 6]}
        yield Case(kind="constant", inputs=(), attrs=many, label=f"table_{name}", tolerance=0)
        yield Case(
            kind="range", inputs=(), attrs={"dtype": name, "start": 3, "step": 2, "size": 37}, label=name, tolerance=0
        )
    yield Case(kind="constant", inputs=(), attrs={"dtype": "bool", "shape": [9], "values": [True]}, tolerance=0)
    limits: dict[str, Any] = {"dtype": "int64", "shape": [2], "values": [-(2**63), 2**63 - 1]}
    yield Case(kind="constant", inputs=(), attrs=limits, tolerance=0, label="limits")
    fractions = {"dtype": "float32", "start": -0.5, "step": 0.1, "size": 50}
    yield Case(kind="range", inputs=(), attrs=fractions, tolerance=0, label="fractions")
    for name in ("float64", "float32", "float16", "bfloat16"):
        mask = {"dtype": name, "shape": [2, 3], "values": [0.0, -inf, 1.5, inf, -2.0, nan]}
        yield Case(kind="constant", inputs=(), attrs=mask, tolerance=0, label=f"mask_{name}")
    image = {"dtype": "float32", "shape": [2, 3, 2, 2], "values": [float(i) for i in range(24)]}
    yield Case(kind="constant", inputs=(), attrs=image, tolerance=0, orders=ORDERS, label="image")
