"""Normalisation and pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from kernel_harness import ORDERS, Case
from runtime_support import normal

from kernel_cases.common import FLOATS, IMAGES, integers, rng
from snplan.runtime.numpy import KERNELS, Array, Context


def batch_norm_cases() -> Iterator[Case]:
    """Batch normalisation in all orders and types, also far from zero and long enough for several blocks."""
    shapes = (*IMAGES, (6, 5), (40, 16), (3, 7, 9), (4, 3, 40, 40), (40, 40, 8, 7), (2, 70, 1, 1))
    for shape in shapes:
        orders = ORDERS if len(shape) > 2 else ("plain",)
        yield from _batch_norm(normal(*shape), orders, "")
    yield from _batch_norm((normal(8, 4, 9, 9) * 0.1 + 100).astype(np.float32), ORDERS[:2], "shifted")
    for dtype in FLOATS[1:]:
        yield from _batch_norm(normal(4, 8, 5, 5, dtype=dtype), ORDERS, "")


def _batch_norm(x: Array, orders: tuple[str, ...], label: str) -> Iterator[Case]:
    channels = x.shape[1]
    axes = (0, *range(2, x.ndim))
    scale, bias = (normal(channels, seed=2) + 1).astype(x.dtype), normal(channels, seed=3, dtype=x.dtype)
    statistics = np.float64 if x.dtype == np.float64 else np.float32
    mean, var = (f(x.astype(np.float64), axis=axes).astype(statistics) for f in (np.mean, np.var))
    dy = normal(*x.shape, seed=1).astype(x.dtype)
    attrs = {"epsilon": 1e-5}
    # Differences of numbers near 100 have lost two digits before any kernel sees them.
    common: dict[str, Any] = {"attrs": attrs, "orders": orders, "label": label, "tolerance": 1e-3 if label else 1e-5}
    yield Case(kind="batch_norm_train", inputs=(x, scale, bias), **common)
    yield Case(kind="batch_norm_grad", inputs=(x, scale, mean, var, dy), **common)
    yield Case(kind="batch_norm_eval", inputs=(x, scale, bias, mean, var), **common)
    yield Case(kind="batch_norm_eval_grad", inputs=(x, scale, mean, var, dy), **common)
    running = normal(channels, seed=6, dtype=x.dtype), np.abs(normal(channels, seed=7, dtype=x.dtype))
    yield Case(kind="batch_norm_update", inputs=(*running, mean, var), attrs={"momentum": 0.9})


def _pools() -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    """Shapes of x and windows: overlapping, padded, dilated, past the end, one to three axes, a large window."""
    yield (2, 8, 9, 7), _windows((3, 3), (2, 2), (1, 1, 1, 1), (5, 4))
    yield (2, 3, 8, 8), _windows((2, 2), (2, 2), (0, 0, 0, 0), (4, 4))
    yield (1, 5, 7, 8), _windows((3, 2), (1, 2), (1, 0, 2, 1), (8, 4))
    yield (2, 4, 9, 9), _windows((2, 2), (2, 2), (0, 0, 0, 0), (5, 5))
    yield (1, 4, 11, 12), _windows((3, 3), (2, 1), (2, 2, 2, 2), (5, 12), dilations=(2, 2))
    yield (2, 16, 7, 7), _windows((7, 7), (1, 1), (0, 0, 0, 0), (1, 1))
    yield (3, 4, 17), _windows((4,), (3,), (1, 2), (6,))
    yield (2, 4, 4, 5, 6), _windows((2, 3, 2), (1, 2, 2), (0, 1, 0, 1, 1, 0), (4, 3, 3))
    yield (1, 2, 20, 20), _windows((17, 17), (2, 2), (8, 8, 8, 8), (10, 10))


def _windows(
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    sizes: tuple[int, ...],
    dilations: tuple[int, ...] | None = None,
) -> dict[str, Any]:
    parts = {
        "kernel": kernel,
        "strides": strides,
        "pads": pads,
        "sizes": sizes,
        "dilations": dilations or (1,) * len(kernel),
    }
    return {key: list(value) for key, value in parts.items()}


def pool_cases() -> Iterator[Case]:
    """Pooling and its gradients in all orders, and in all types for one window."""
    for number, (shape, attrs) in enumerate(_pools()):
        for dtype in FLOATS if number == 0 else (np.float32,):
            yield from _pool(normal(*shape, dtype=dtype), attrs, number)
    ties = integers(0, 3, (2, 8, 9, 7), np.int32)
    yield Case(kind="max_pool", inputs=(ties,), attrs=next(_pools())[1], orders=ORDERS)
    yield Case(kind="max_pool", inputs=(integers(0, 3, (2, 8, 9, 7), np.uint8),), attrs=next(_pools())[1])
    special = np.where(rng().random((2, 4, 9, 7)) < 0.1, np.nan, -np.inf).astype(np.float32)
    yield Case(kind="max_pool", inputs=(special,), attrs=next(_pools())[1], orders=ORDERS, label="special")


def _pool(x: Array, attrs: dict[str, Any], number: int) -> Iterator[Case]:
    y, indices = KERNELS["max_pool"]([x], attrs, Context())
    dy = normal(*y.shape, seed=4).astype(x.dtype)
    back = {**attrs, "shape": list(x.shape)}
    yield Case(
        kind="max_pool", inputs=(np.round(x * 2) / 2,), attrs=attrs, orders=ORDERS, label=f"{number}", tolerance=0
    )
    yield Case(kind="max_pool_grad", inputs=(indices, dy), attrs=back, orders=ORDERS, label=f"{number}")
    for pad in (False, True):
        extra = {"count_include_pad": pad}
        yield Case(kind="average_pool", inputs=(x,), attrs={**attrs, **extra}, orders=ORDERS, label=f"{number}_{pad}")
        yield Case(
            kind="average_pool_grad", inputs=(dy,), attrs={**back, **extra}, orders=ORDERS, label=f"{number}_{pad}"
        )


def norm_cases() -> Iterator[Case]:
    """Layer, RMS, group and local response normalisation."""
    for shape, axis in (
        ((6, 40), 1),
        ((3, 5, 64), 2),
        ((3, 5, 7), 1),
        ((4, 3000), 1),
        ((2, 40000), 1),
        ((700, 12), 1),
        ((3, 8, 4, 4), 1),
    ):
        yield from _row_norms(normal(*shape) + 1, axis, ORDERS if len(shape) == 4 else ("plain",))
    for dtype in FLOATS[1:]:
        yield from _row_norms(normal(6, 48, dtype=dtype), 1, ("plain",))
        yield from _group_norm(normal(2, 8, 5, 6, dtype=dtype), 4, ORDERS)
    for image in (*IMAGES, (2, 6, 30, 40), (3, 6)):
        for groups in sorted({1, image[1], 2 if image[1] % 2 == 0 else 1}):
            yield from _group_norm(normal(*image) * 2 + 1, groups, ORDERS if len(image) > 3 else ("plain",))
        for size in (3, 4, 5):
            attrs = {"size": size, "alpha": 0.3, "beta": 0.75, "bias": 2.0}
            x, dy = normal(*image), normal(*image, seed=1)
            yield Case(kind="lrn", inputs=(x,), attrs=attrs, orders=ORDERS, label=f"{size}")
            yield Case(kind="lrn_grad", inputs=(x, dy), attrs=attrs, orders=ORDERS, label=f"{size}")


def _row_norms(x: Array, axis: int, orders: tuple[str, ...]) -> Iterator[Case]:
    tail = x.shape[axis:]
    scale, bias = (normal(*tail, seed=2) + 1).astype(x.dtype), normal(*tail, seed=3, dtype=x.dtype)
    dy = normal(*x.shape, seed=4).astype(x.dtype)
    attrs = {"axis": axis, "epsilon": 1e-5}
    for weights in ((), (scale,), (scale, bias)):
        common: dict[str, Any] = {"orders": orders, "label": f"{axis}_{len(weights)}"}
        _, mean, inverse = KERNELS["layer_norm"]([x, *weights], attrs, Context())
        back = {**attrs, "has_scale": len(weights) > 0, "has_bias": len(weights) > 1}
        yield Case(kind="layer_norm", inputs=(x, *weights), attrs=attrs, **common)
        yield Case(kind="layer_norm_grad", inputs=(x, *weights[:1], mean, inverse, dy), attrs=back, **common)
        if len(weights) < 2:
            (_, root) = KERNELS["rms_norm"]([x, *weights], attrs, Context())
            yield Case(kind="rms_norm", inputs=(x, *weights), attrs=attrs, **common)
            yield Case(kind="rms_norm_grad", inputs=(x, *weights, root, dy), attrs=back, **common)


def _group_norm(x: Array, groups: int, orders: tuple[str, ...]) -> Iterator[Case]:
    channels = x.shape[1]
    scale, bias = (normal(channels, seed=2) + 1).astype(x.dtype), normal(channels, seed=3, dtype=x.dtype)
    attrs = {"groups": groups, "epsilon": 1e-3}
    _, mean, inverse = KERNELS["group_norm"]([x, scale, bias], attrs, Context())
    dy = normal(*x.shape, seed=4).astype(x.dtype)
    common: dict[str, Any] = {"attrs": attrs, "orders": orders, "label": f"{groups}"}
    yield Case(kind="group_norm", inputs=(x, scale, bias), **common)
    yield Case(kind="group_norm_grad", inputs=(x, scale, mean, inverse, dy), **common)
