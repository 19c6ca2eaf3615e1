"""Moves by position, resizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from kernel_harness import ORDERS, Case
from runtime_support import normal

from kernel_cases.common import BFLOAT16, IMAGES, integers

_MOVED: tuple[Any, ...] = (np.float32, np.float16, np.float64, np.uint8)


def move_cases() -> Iterator[Case]:
    """Moves by position: every element of each result is an element of an input, or zero."""
    for dtype in _MOVED:
        for shape, perm in (
            ((5, 7), (1, 0)),
            ((33, 70), (1, 0)),
            ((2, 9, 3, 8), (0, 2, 1, 3)),
            ((3, 40, 35), (0, 2, 1)),
        ):
            yield Case(
                kind="transpose", inputs=(normal(*shape).astype(dtype),), attrs={"perm": list(perm)}, tolerance=0
            )
    for image in (*IMAGES, (2, 16, 9, 11)):
        turned = [0, *range(2, len(image)), 1]
        yield Case(kind="transpose", inputs=(normal(*image),), attrs={"perm": turned}, tolerance=0, orders=ORDERS)
        yield Case(kind="copy", inputs=(normal(*image),), tolerance=0, orders=ORDERS, label="orders")
        yield Case(
            kind="expand",
            inputs=(normal(image[1], *(1,) * (len(image) - 2)),),
            attrs={"shape": list(image)},
            tolerance=0,
            orders=ORDERS,
        )
        yield Case(
            kind="tile",
            inputs=(normal(*image),),
            attrs={"repeats": [1, 2, *(3, 1, 2)[: len(image) - 2]]},
            tolerance=0,
            orders=ORDERS,
        )
        for axis in range(len(image)):
            yield from _joins(image, axis)
    yield from _slices()
    yield from _pads()
    for upper in (False, True):
        for k in (-2, 0, 1):
            attrs = {"upper": upper, "k": k}
            yield Case(kind="trilu", inputs=(normal(3, 6, 8),), attrs=attrs, tolerance=0, label=f"{upper}{k}")
            yield Case(
                kind="trilu", inputs=(normal(7, 5, dtype=np.float16),), attrs=attrs, tolerance=0, label=f"{upper}{k}"
            )
    yield Case(kind="trilu", inputs=(normal(*IMAGES[1]),), attrs={"upper": True, "k": 0}, tolerance=0, orders=ORDERS)
    for axis in (0, 1, 2):
        values = np.array([0.5, 2.5], np.float32)
        yield Case(
            kind="one_hot",
            inputs=(integers(-4, 6, (3, 5)), values),
            attrs={"axis": axis, "depth": 4},
            tolerance=0,
            label=f"{axis}",
        )
    yield Case(
        kind="one_hot",
        inputs=(integers(0, 4, (9,), np.int32), np.array([0, 1])),
        attrs={"axis": 1, "depth": 4},
        tolerance=0,
    )


def _joins(shape: tuple[int, ...], axis: int) -> Iterator[Case]:
    parts = [normal(*(n if i != axis else k for i, n in enumerate(shape)), seed=k) for k in (3, 1, 4, 2)]
    yield Case(kind="concat", inputs=tuple(parts), attrs={"axis": axis}, tolerance=0, orders=ORDERS, label=f"{axis}")
    even = [part.repeat(4, axis).astype(np.float16) for part in parts[:2]]
    yield Case(kind="concat", inputs=tuple(even), attrs={"axis": axis}, tolerance=0, orders=ORDERS, label=f"{axis}")
    whole = np.concatenate(parts, axis)
    yield Case(
        kind="split",
        inputs=(whole,),
        attrs={"axis": axis, "sizes": [2, 3, 5]},
        tolerance=0,
        orders=ORDERS,
        label=f"{axis}",
    )


def _slices() -> Iterator[Case]:
    for shape, starts, steps, sizes in (
        ((7, 9), (1, 2), (2, 3), (3, 2)),
        ((7, 9), (6, 8), (-2, -1), (4, 9)),
        ((4, 16), (1, 4), (1, 1), (2, 8)),
        ((2, 8, 5, 6), (0, 0, 4, 1), (1, 1, -1, 2), (2, 8, 5, 3)),
        ((2, 8, 5, 6), (0, 4, 0, 0), (1, 1, 1, 1), (2, 4, 5, 6)),
    ):
        where = {"starts": list(starts), "steps": list(steps)}
        orders = ORDERS if len(shape) == 4 else ("plain",)
        label = f"{starts}{steps}"
        yield Case(
            kind="slice",
            inputs=(normal(*shape),),
            attrs={**where, "sizes": list(sizes)},
            tolerance=0,
            orders=orders,
            label=label,
        )
        back = {**where, "shape": list(shape)}
        yield Case(kind="slice_grad", inputs=(normal(*sizes),), attrs=back, tolerance=0, orders=orders, label=label)


def _pads() -> Iterator[Case]:
    for shape, before, after in (
        ((5, 6), (1, 0), (2, 3)),
        ((5, 6), (-1, 2), (2, -2)),
        ((2, 8, 4, 5), (0, 0, 1, 2), (0, 0, 3, 1)),
        ((2, 4, 4, 5), (0, 1, -1, 0), (0, 1, 2, 4)),
    ):
        orders = ORDERS if len(shape) == 4 else ("plain",)
        result = [n + b + a for n, b, a in zip(shape, before, after, strict=True)]
        for mode in ("constant", "reflect", "edge", "wrap"):
            attrs = {"before": list(before), "after": list(after), "mode": mode}
            common: dict[str, Any] = {"orders": orders, "label": f"{mode}{before}{after}"}
            yield Case(kind="pad", inputs=(normal(*shape),), attrs={**attrs, "value": 1.5}, tolerance=0, **common)
            yield Case(kind="pad_grad", inputs=(normal(*result),), attrs={**attrs, "shape": list(shape)}, **common)
    still: dict[str, Any] = {"before": [0, 0], "after": [0, 0], "mode": "constant", "value": 0}
    yield Case(kind="pad", inputs=(normal(3, 4),), attrs=still, tolerance=0, label="still")
    for dtype in (np.float16, np.int64, np.bool_, BFLOAT16):
        fill: dict[str, Any] = {"before": [1, 2], "after": [0, 1], "mode": "constant", "value": 1}
        yield Case(kind="pad", inputs=(integers(0, 2, (3, 4), dtype),), attrs=fill, tolerance=0, label="fill")


_COORDINATES = (
    "half_pixel",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
)
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resize_cases() -> Iterator[Case]:
    """Resizes up and down, by all modes; their transposes."""
    for shape, sizes in (
        ((2, 8, 4, 5), (2, 8, 8, 10)),
        ((1, 3, 9, 8), (1, 3, 4, 13)),
        ((2, 4, 5), (2, 4, 11)),
        ((1, 2, 3, 4, 5), (1, 2, 6, 4, 3)),
        ((3, 7), (5, 1)),
    ):
        for coordinate in _COORDINATES:
            if "tf" not in coordinate:
                yield from _resize(shape, sizes, "linear", coordinate)
            for nearest in _NEAREST if len(shape) == 5 or coordinate == "half_pixel" else _NEAREST[2:3]:
                yield from _resize(shape, sizes, "nearest", coordinate, nearest_mode=nearest)
        for exclude in (False, True):
            yield from _resize(shape, sizes, "cubic", "half_pixel", cubic_coeff=-0.5, exclude_outside=exclude)
    yield from _resize((2, 8, 4, 5), (2, 8, 6, 7), "linear", "asymmetric", scales=[1.0, 1.0, 1.6, 1.4])
    whole: dict[str, Any] = {
        "sizes": [8, 10],
        "scales": [2.0, 2.0],
        "mode": "nearest",
        "coordinate_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    yield Case(kind="resize", inputs=(integers(0, 99, (4, 5)),), attrs=whole, tolerance=0)
    same = {"sizes": [4, 5], "scales": [1.0, 1.0], "mode": "linear", "coordinate_mode": "half_pixel"}
    yield Case(kind="resize", inputs=(normal(4, 5),), attrs=same, tolerance=0, label="same")


def _resize(shape: tuple[int, ...], sizes: tuple[int, ...], mode: str, coordinate: str, **extra: Any) -> Iterator[Case]:
    scales = [o / n for n, o in zip(shape, sizes, strict=True)]
    attrs = {"sizes": list(sizes), "scales": scales, "mode": mode, "coordinate_mode": coordinate, **extra}
    orders = ORDERS if len(shape) > 3 else ("plain",)
    label = "_".join(map(str, (mode, coordinate, *extra.values())))
    yield Case(kind="resize", inputs=(normal(*shape),), attrs=attrs, orders=orders, label=label)
    back = {**attrs, "shape": list(shape)}
    yield Case(kind="resize_grad", inputs=(normal(*sizes, seed=1),), attrs=back, orders=orders, label=label)
