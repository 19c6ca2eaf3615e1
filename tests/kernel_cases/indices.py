"""Reads and writes at indices, running sums, the k best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from kernel_harness import ORDERS, Case
from runtime_support import normal

from kernel_cases.common import FLOATS, integers, rng


def index_cases() -> Iterator[Case]:
    """Reads and writes at indices: repeated ones, negative ones, all axes and orders."""
    for shape, picks in (((9, 7), (5,)), ((6, 4, 8), (3, 2)), ((5, 16), (40,)), ((2, 8, 3, 4), (7,)), ((300, 3), ())):
        orders = ORDERS if len(shape) == 4 else ("plain",)
        for axis in range(len(shape)):
            indices = integers(-shape[axis], shape[axis], picks, np.int64 if axis else np.int32)
            attrs = {"axis": axis}
            common: dict[str, Any] = {"orders": orders, "label": f"axis{axis}"}
            yield Case(kind="gather", inputs=(normal(*shape), indices), attrs=attrs, tolerance=0, **common)
            dy = normal(*shape[:axis], *picks, *shape[axis + 1 :], seed=3)
            yield Case(kind="gather_grad", inputs=(indices, dy), attrs={**attrs, "shape": list(shape)}, **common)
    table = integers(0, 3, (9000,)), normal(9000, 5, seed=1)
    yield Case(kind="gather_grad", inputs=table, attrs={"axis": 0, "shape": [3, 5]}, label="split")
    wide = integers(0, 70, (90,)), normal(90, 300, seed=1)
    yield Case(kind="gather_grad", inputs=wide, attrs={"axis": 0, "shape": [70, 300]}, label="tiles")
    for dtype in FLOATS[1:]:
        halves = integers(0, 4, (64,)), normal(64, 6, seed=1, dtype=dtype)
        yield Case(kind="gather_grad", inputs=halves, attrs={"axis": 0, "shape": [5, 6]})
        yield Case(
            kind="gather", inputs=(normal(5, 16, dtype=dtype), integers(0, 5, (7,))), attrs={"axis": 0}, tolerance=0
        )
    yield from _element_cases()
    yield from _tuple_cases()
    yield from _scan_cases()


def _element_cases() -> Iterator[Case]:
    for shape, picks in (((6, 7), (4, 7)), ((6, 7), (6, 9)), ((2, 8, 3, 4), (2, 5, 3, 2)), ((5000,), (7000,))):
        orders = ORDERS if len(shape) == 4 else ("plain",)
        for axis in range(len(shape)):
            if any(n > m for i, (n, m) in enumerate(zip(picks, shape, strict=True)) if i != axis):
                continue
            x, updates = normal(*shape), normal(*picks, seed=1)
            indices = integers(-shape[axis], shape[axis], picks)
            common: dict[str, Any] = {"orders": orders, "label": f"axis{axis}"}
            yield Case(kind="gather_elements", inputs=(x, indices), attrs={"axis": axis}, tolerance=0, **common)
            back = {"axis": axis, "shape": list(shape)}
            yield Case(kind="scatter_add", inputs=(indices, updates), attrs=back, **common)
            for reduction in ("none", "add", "mul", "max", "min"):
                attrs = {"axis": axis, "reduction": reduction}
                common["label"] = f"axis{axis}_{reduction}"
                yield Case(kind="scatter_elements", inputs=(x, indices, updates), attrs=attrs, **common)
    whole = integers(0, 50, (6, 7), np.int64), integers(0, 6, (3, 7)), integers(0, 9, (3, 7), np.int64, seed=2)
    for reduction in ("none", "add", "max"):
        yield Case(kind="scatter_elements", inputs=whole, attrs={"axis": 0, "reduction": reduction}, label=reduction)


def _tuple_cases() -> Iterator[Case]:
    for shape, picks, batch in (
        ((5, 6, 7), (4, 2), 0),
        ((5, 6, 7), (3, 4, 3), 0),
        ((5, 6, 8), (9, 1), 0),
        ((3, 5, 6), (3, 4, 1), 1),
        ((2, 3, 4, 8), (2, 3, 5, 1), 2),
        ((2, 8, 3, 4), (2, 6, 2), 1),
    ):
        orders = ORDERS if len(shape) == 4 else ("plain",)
        depth = picks[-1]
        limits = np.array(shape[batch : batch + depth])
        indices = rng(4).integers(-limits, limits, picks)
        inner = (*picks[:-1], *shape[batch + depth :])
        common: dict[str, Any] = {"orders": orders, "label": f"batch{batch}"}
        yield Case(
            kind="gather_nd", inputs=(normal(*shape), indices), attrs={"batch_dims": batch}, tolerance=0, **common
        )
        back = {"batch_dims": batch, "shape": list(shape)}
        yield Case(kind="gather_nd_grad", inputs=(indices, normal(*inner, seed=1)), attrs=back, **common)
        for reduction in ("none", "add", "mul", "max", "min") if batch == 0 else ():
            inputs = normal(*shape), indices, normal(*inner, seed=2)
            yield Case(kind="scatter_nd", inputs=inputs, attrs={"reduction": reduction}, label=reduction)


def _scan_cases() -> Iterator[Case]:
    for shape, axis in (
        ((5, 9), 1),
        ((9, 5), 0),
        ((2, 700), 1),
        ((3, 4, 100), 1),
        ((2, 8, 4, 70), 3),
        ((2, 70, 3, 4), 1),
    ):
        orders = ORDERS if len(shape) == 4 else ("plain",)
        for exclusive in (False, True):
            for reverse in (False, True):
                attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
                yield Case(
                    kind="cum_sum",
                    inputs=(normal(*shape),),
                    attrs=attrs,
                    orders=orders,
                    label=f"{axis}{exclusive}{reverse}",
                )
        for largest in (False, True):
            for k in (1, 3):
                attrs = {"axis": axis, "k": k, "largest": largest, "sorted": True}
                x = np.round(normal(*shape) * 2)
                yield Case(
                    kind="top_k", inputs=(x,), attrs=attrs, tolerance=0, orders=orders, label=f"{axis}{k}{largest}"
                )
    yield Case(kind="cum_sum", inputs=(integers(-5, 5, (3, 99)),), attrs={"axis": 1})
    special = np.array([[1, np.nan, 2, -np.inf, np.nan, np.inf]], np.float32)
    for largest in (False, True):
        attrs = {"axis": 1, "k": 6, "largest": largest, "sorted": True}
        yield Case(kind="top_k", inputs=(special,), attrs=attrs, tolerance=0, label=f"special_{largest}")
        yield Case(kind="top_k", inputs=(integers(0, 5, (4, 80), np.uint8),), attrs=attrs, label=f"{largest}")
