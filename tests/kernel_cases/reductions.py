"""Reductions, losses and softmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from kernel_harness import ORDERS, Case
from runtime_support import normal

from kernel_cases.common import FLOATS, IMAGES, INTS, integers
from snplan.runtime.numpy import KERNELS, Array, Context

_REDUCTIONS = ("reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min", "reduce_log_sum_exp")
# (shape, axes): whole rows, columns, both ends, short rows, one result, long enough for several blocks.
_REDUCED = (
    ((5, 37), (1,)),
    ((37, 5), (0,)),
    ((37, 12), (0,)),
    ((3, 4, 5, 6), (0, 2)),
    ((3, 4, 5, 6), (1, 3)),
    ((70, 3), (1,)),
    ((9, 11), (0, 1)),
    ((3, 5000), (1,)),
    ((9001,), (0,)),
    ((3000, 8), (0,)),
    ((1200, 3), (0,)),
    ((4, 1), (1,)),
)


def reduction_cases() -> Iterator[Case]:
    """Reductions in rows and columns, whole and split, in all types and orders."""
    for kind in _REDUCTIONS:
        for shape, axes in _REDUCED:
            x = normal(*shape) if kind != "reduce_prod" else (1 + 0.05 * normal(*shape)).astype(np.float32)
            attrs = {"axes": list(axes), "keepdims": len(shape) % 2 == 0}
            yield Case(kind=kind, inputs=(x,), attrs=attrs, tolerance=3e-5, label=f"over_{axes}")
        for image in IMAGES:
            attrs = {"axes": list(range(2, len(image))), "keepdims": True}
            yield Case(kind=kind, inputs=(normal(*image),), attrs=attrs, orders=ORDERS)
            attrs = {"axes": [0, *range(2, len(image))], "keepdims": False}
            yield Case(kind=kind, inputs=(normal(*image),), attrs=attrs, orders=ORDERS, label="channels")
        for dtype in FLOATS[1:]:
            yield Case(kind=kind, inputs=(normal(6, 64, dtype=dtype),), attrs={"axes": [1], "keepdims": False})
            yield Case(kind=kind, inputs=(normal(48, 16, dtype=dtype),), attrs={"axes": [0], "keepdims": False})
        if kind != "reduce_log_sum_exp":
            for dtype in INTS:
                x = integers(0 if np.dtype(dtype).kind == "u" else -5, 9, (5, 40), dtype)
                yield Case(kind=kind, inputs=(x,), attrs={"axes": [1], "keepdims": True})
    special = np.array([[np.nan, 1, 2], [np.inf, 1, np.inf], [-np.inf, -np.inf, -np.inf], [1, np.inf, 0]], np.float32)
    for kind in ("reduce_max", "reduce_min", "reduce_log_sum_exp", "reduce_sum"):
        yield Case(kind=kind, inputs=(special,), attrs={"axes": [1], "keepdims": False}, label="special")
        yield Case(kind=kind, inputs=(normal(3, 0),), attrs={"axes": [1], "keepdims": False}, label="of_nothing")
    yield from _reduction_gradients()
    yield from _arg_cases()


def _reduction_gradients() -> Iterator[Case]:
    for shape, axes in (*_REDUCED, *((image, (0, 2, 3)) for image in IMAGES[:2])):
        orders = ORDERS if len(shape) == 4 else ("plain",)
        attrs = {"axes": list(axes), "keepdims": True}
        kept = [1 if i in axes else n for i, n in enumerate(shape)]
        x, dy = np.round(normal(*shape) * 2), normal(*kept, seed=1)
        y = x.max(axis=tuple(axes), keepdims=True)
        few = np.where(np.abs(x) > 5, 0, 1 + 0.01 * x).astype(np.float32)
        yield Case(kind="reduce_extremum_grad", inputs=(x, y, dy), attrs=attrs, orders=orders)
        yield Case(kind="reduce_log_sum_exp_grad", inputs=(x, y, dy), attrs=attrs, orders=orders)
        yield Case(kind="reduce_prod_grad", inputs=(few, dy), attrs=attrs, orders=orders)
    zeros = np.array([[1, 2, 3], [0, 2, 3], [0, 0, 3]], np.float32)
    yield Case(
        kind="reduce_prod_grad", inputs=(zeros, normal(3)), attrs={"axes": [1], "keepdims": False}, label="zeros"
    )


def _arg_cases() -> Iterator[Case]:
    for kind in ("arg_max", "arg_min"):
        for last in (False, True):
            for shape, axis in (((7, 50), 1), ((50, 7), 0), ((4, 3, 6), 1), ((2, 9000), 1)):
                attrs = {"axis": axis, "keepdims": axis == 1, "last": last}
                yield Case(kind=kind, inputs=(np.round(normal(*shape)),), attrs=attrs, label=f"last_{last}")
            yield Case(kind=kind, inputs=(integers(0, 4, (5, 9), np.uint8),), attrs={"axis": 1, "last": last})
            special = np.array([[1, np.nan, 2, np.nan], [np.inf, 1, 2, np.inf]], np.float32)
            yield Case(kind=kind, inputs=(special,), attrs={"axis": 1, "last": last}, label=f"special_{last}")
        yield Case(kind=kind, inputs=(normal(*IMAGES[1]),), attrs={"axis": 1, "keepdims": False}, orders=ORDERS)


def softmax_cases() -> Iterator[Case]:
    """Softmax over rows held by a warp, a block, not held at all, and over axes that do not lie along memory."""
    shapes = (
        ((5, 37), 1),
        ((9, 1024), 1),
        ((3, 5, 64), 2),
        ((2, 6, 40), 1),
        ((40, 6), 0),
        ((2, 3000), 1),
        ((3, 9001), 1),
    )
    for shape, axis in (*shapes, ((1, 40000), 1), ((4, 1), 1), ((3, 1025), 1)):
        yield from _softmax(normal(*shape) * 3, axis, ("plain",))
    for image in IMAGES:
        for axis in (1, len(image) - 1):
            yield from _softmax(normal(*image), axis, ORDERS)
    for dtype in FLOATS[1:]:
        yield from _softmax(normal(6, 72, dtype=dtype), 1, ("plain",))
    special = np.array([[-np.inf, 0, 1], [1e30, -1e30, 0], [1, np.nan, 2]], np.float32)
    yield Case(kind="softmax", inputs=(special,), attrs={"axis": 1}, label="special")
    yield Case(kind="log_softmax", inputs=(special,), attrs={"axis": 1}, label="special")


def _softmax(x: Array, axis: int, orders: tuple[str, ...]) -> Iterator[Case]:
    attrs, dy = {"axis": axis}, normal(*x.shape, seed=8).astype(x.dtype)
    for kind in ("softmax", "log_softmax"):
        (y,) = KERNELS[kind]([x], attrs, Context())
        yield Case(kind=kind, inputs=(x,), attrs=attrs, orders=orders, label=f"axis{axis}")
        yield Case(kind=f"{kind}_grad", inputs=(y, dy), attrs=attrs, orders=orders, label=f"axis{axis}")


def loss_cases() -> Iterator[Case]:
    """Losses with all reductions, weights, ignored labels; classes on any axis."""
    for shape, axis in (
        ((9, 7), 1),
        ((40, 3), 1),
        ((3, 2500), 1),
        ((2, 33001), 1),
        ((2, 5, 4, 6), 1),
        ((3, 4, 5), 2),
        ((3000, 4), 1),
    ):
        orders = ORDERS if len(shape) == 4 else ("plain",)
        for reduction in ("mean", "sum", "none"):
            for weighted in (False, True):
                yield from _loss(normal(*shape), axis, reduction, weighted, None if weighted else 1, orders)
        yield from _loss(normal(*shape), axis, "mean", False, None, orders)
    for dtype in FLOATS[1:]:
        yield from _loss(normal(8, 16, dtype=dtype), 1, "mean", True, 2, ("plain",))


def _loss(
    x: Array, axis: int, reduction: str, weighted: bool, ignore: int | None, orders: tuple[str, ...]
) -> Iterator[Case]:
    attrs = {"axis": axis, "reduction": reduction, "ignore_index": ignore}
    classes = x.shape[axis]
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    labels = integers(0, classes, shape, np.int32 if weighted else np.int64)
    rest = (labels, (np.abs(normal(classes, seed=5)) + 0.1).astype(x.dtype)) if weighted else (labels,)
    dy = normal(*(shape if reduction == "none" else ()), seed=6, dtype=np.float32).astype(x.dtype)
    common: dict[str, Any] = {"orders": orders, "label": f"axis{axis}_{reduction}_{ignore}"}
    (logs,) = KERNELS["log_softmax"]([x], {"axis": axis}, Context())
    yield Case(kind="softmax_cross_entropy", inputs=(x, *rest), attrs=attrs, **common)
    yield Case(kind="softmax_cross_entropy_grad", inputs=(x, *rest, dy), attrs=attrs, **common)
    yield Case(kind="nll_loss", inputs=(logs, *rest), attrs=attrs, **common)
    back = {**attrs, "shape": list(x.shape), "dtype": x.dtype.name}
    yield Case(kind="nll_loss_grad", inputs=(*rest, dy), attrs=back, **common)
