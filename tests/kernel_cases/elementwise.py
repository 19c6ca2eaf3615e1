"""Elementwise ops, casts and copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from kernel_harness import ORDERS, Case
from runtime_support import normal

from kernel_cases.common import FLOATS, IMAGES, INTS, integers
from snplan.ops.unary import GRADIENT_ZERO, SAVES_X, SAVES_Y
from snplan.runtime.numpy import Array

UNARY_ATTRS: dict[str, dict[str, Any]] = {
    "leaky_relu": {"alpha": 0.1},
    "elu": {"alpha": 1.3},
    "celu": {"alpha": 0.8},
    "selu": {"alpha": 1.67, "gamma": 1.05},
    "thresholded_relu": {"alpha": 0.5},
    "hard_sigmoid": {"alpha": 0.2, "beta": 0.5},
    "gelu": {"approximate": "none"},
    "clip": {"min": -0.5, "max": 0.75},
    "shrink": {"bias": 0.1, "lambd": 0.4},
    "swish": {"alpha": 1.1},
}
_POSITIVE = ("log", "sqrt", "reciprocal")
_UNIT = ("asin", "acos", "atanh")


def _domain(name: str, x: Array) -> Array:
    if name in _POSITIVE:
        return (np.abs(x.astype(np.float32)) + 0.3).astype(x.dtype)
    if name in _UNIT:
        return (np.tanh(x.astype(np.float32)) * 0.9).astype(x.dtype)
    return (np.abs(x.astype(np.float32)) + 1.2).astype(x.dtype) if name == "acosh" else x


def unary_cases() -> Iterator[Case]:
    """Every function of one input in float32, and a few in all types and orders."""
    for name in (*SAVES_Y, *SAVES_X, *GRADIENT_ZERO, "neg"):
        x = _domain(name, normal(7, 37))
        attrs = UNARY_ATTRS.get(name, {})
        yield Case(kind=name, inputs=(x,), attrs=attrs)
        if name in (*SAVES_Y, *SAVES_X):
            yield Case(kind=f"{name}_grad", inputs=(x, normal(7, 37, seed=1)), attrs=attrs)
    yield Case(kind="gelu", inputs=(normal(50),), attrs={"approximate": "tanh"}, label="tanh")
    yield Case(kind="gelu_grad", inputs=(normal(50), normal(50, seed=1)), attrs={"approximate": "tanh"}, label="tanh")
    yield Case(kind="clip", inputs=(normal(50),), attrs={"min": None, "max": 0.1}, label="one_end")
    yield Case(kind="clip_grad", inputs=(normal(50), normal(50)), attrs={"min": -0.1, "max": None}, label="one_end")
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 2.5, 100, -100], np.float32)
    for name in ("relu", "sigmoid", "softplus", "sign", "round", "is_nan", "is_inf", "abs", "tanh", "clip"):
        yield Case(kind=name, inputs=(special,), attrs=UNARY_ATTRS.get(name, {}), label="special")
    for dtype in FLOATS[1:]:
        yield Case(kind="relu", inputs=(normal(3, 41, dtype=dtype),))
        yield Case(kind="gelu_grad", inputs=(normal(99, dtype=dtype), normal(99, dtype=dtype, seed=1)))
    for dtype in INTS:
        yield Case(kind="abs", inputs=(integers(0 if "u" in np.dtype(dtype).name[:1] else -99, 99, (70,), dtype),))
    yield Case(kind="not", inputs=(integers(0, 2, (33,), np.bool_),))
    for shape in IMAGES:
        yield Case(kind="relu", inputs=(normal(*shape),), orders=ORDERS)
        yield Case(kind="relu_grad", inputs=(normal(*shape), normal(*shape, seed=1)), orders=ORDERS)
    yield Case(kind="relu", inputs=(normal(0, 3),), label="empty")
    yield Case(kind="exp", inputs=(normal(),), label="scalar")


_BROADCASTS = (((4, 1, 6), (3, 1)), ((2, 3, 4, 5), (3, 1, 1)), ((5, 7), (7,)), ((5, 8), (5, 1)), ((6,), ()))


def binary_cases() -> Iterator[Case]:
    """Functions of two inputs: all types, broadcasts, scalars, physical orders."""
    for name in ("add", "sub", "mul", "div", "max", "min", "mod", "less", "less_equal", "greater", "equal"):
        for a, b in _BROADCASTS:
            yield Case(kind=name, inputs=(normal(*a), normal(*b, seed=1)))
            yield Case(kind=name, inputs=(normal(*b), normal(*a, seed=1)), label="turned")
        for dtype in (*INTS, *FLOATS[1:]):
            low = 0 if np.dtype(dtype).kind == "u" else -9
            pair = integers(low, 9, (5, 7), dtype), integers(low, 9, (5, 7), dtype, seed=1)
            yield Case(kind=name, inputs=pair, label="whole")
    for shape in IMAGES:
        channel = (shape[1], *(1,) * (len(shape) - 2))
        yield Case(kind="add", inputs=(normal(*shape), normal(*shape, seed=1)), orders=ORDERS)
        yield Case(kind="mul", inputs=(normal(*shape), normal(*channel, seed=1)), orders=ORDERS)
        yield Case(kind="greater_equal", inputs=(normal(*shape), normal(*channel, seed=1)), orders=ORDERS)
    for name in ("and", "or", "xor"):
        yield Case(kind=name, inputs=(integers(0, 2, (4, 9), np.bool_), integers(0, 2, (9,), np.bool_, seed=1)))
    yield Case(kind="mod", inputs=(normal(40), normal(40, seed=1)), attrs={"fmod": True}, label="fmod")
    positive = np.abs(normal(6, 5)) + np.float32(0.2)
    yield Case(kind="pow", inputs=(positive, normal(6, 5, seed=1)))
    for dtype in (np.int64, np.int32, np.uint8):
        yield Case(kind="pow", inputs=(integers(0, 5, (20,), dtype), integers(0, 4, (20,), dtype, seed=1)))
    yield from _scalar_cases()
    yield from _partial_cases()
    yield from _choice_cases()


def _scalar_cases() -> Iterator[Case]:
    for name in ("add", "sub", "mul", "div", "max", "min", "mod", "pow", "less", "equal"):
        for reverse in (False, True):
            attrs = {"scalar": 1.25, "reverse": reverse}
            yield Case(
                kind=name, inputs=(np.abs(normal(5, 9)) + np.float32(0.1),), attrs=attrs, label=f"scalar_{reverse}"
            )
    for exponent in (1.0, 2.0, 3.0, 0.5, -1.0, 2, 0.0):
        yield Case(kind="pow", inputs=(np.abs(normal(37)),), attrs={"scalar": exponent}, label=f"to_{exponent}")
    yield Case(kind="mul", inputs=(integers(-5, 5, (9,)),), attrs={"scalar": 3}, label="scalar")
    yield Case(kind="add", inputs=(normal(9, dtype=np.float16),), attrs={"scalar": 0.3}, label="scalar")


def _partial_cases() -> Iterator[Case]:
    x, y, dy = np.abs(normal(4, 6)) + np.float32(0.3), normal(4, 6, seed=1), normal(4, 6, seed=2)
    row = np.abs(normal(6, seed=3)) + np.float32(0.5)
    yield Case(kind="div_grad_b", inputs=(row, y, dy))
    yield Case(kind="reverse_div_grad", inputs=(x, dy), attrs={"scalar": 2.0})
    yield Case(kind="pow_grad_a", inputs=(x, row, dy))
    for exponent in (0.0, 1.0, 2.0, 2.5, 3.0):
        yield Case(kind="pow_grad_a", inputs=(x, dy), attrs={"scalar": exponent}, label=f"to_{exponent}")
    yield Case(kind="pow_grad_b", inputs=(y, x, dy))
    yield Case(kind="pow_grad_b", inputs=(x, dy), attrs={"scalar": 1.7}, label="scalar")
    a, b = np.round(normal(4, 6)), np.round(normal(6, seed=1))
    for of in ("max", "min"):
        for index in (0, 1):
            yield Case(kind="extremum_grad", inputs=(a, b, dy), attrs={"of": of, "input": index}, label=f"{of}{index}")
        yield Case(kind="extremum_grad", inputs=(a, dy), attrs={"of": of, "input": 0, "scalar": 1.0}, label=of)
    slope = np.abs(normal(4, 1, seed=5))
    yield Case(kind="prelu", inputs=(y, slope))
    yield Case(kind="prelu_grad_x", inputs=(y, slope, dy))
    yield Case(kind="prelu_grad_slope", inputs=(y, dy))


def _choice_cases() -> Iterator[Case]:
    for dtype in (np.float32, np.float16, np.int64, np.uint8, np.bool_):
        condition = integers(0, 2, (3, 1), np.bool_)
        pair = integers(0, 9, (3, 8), dtype), integers(0, 9, (8,), dtype, seed=1)
        yield Case(kind="where", inputs=(condition, *pair), tolerance=0)
        yield Case(kind="mask", inputs=(condition, pair[0]), attrs={"keep": True}, tolerance=0)
        yield Case(kind="mask", inputs=(integers(0, 2, (3, 8), np.bool_), pair[1]), attrs={"keep": False}, tolerance=0)
    for shape in IMAGES:
        condition = integers(0, 2, shape, np.bool_)
        yield Case(kind="mask", inputs=(condition, normal(*shape)), attrs={"keep": True}, tolerance=0, orders=ORDERS)


def cast_cases() -> Iterator[Case]:
    """Copies, and casts between all types."""
    kinds: tuple[Any, ...] = (*FLOATS, *INTS, np.bool_)
    for source in kinds:
        x = (
            integers(0, 120, (3, 43), source)
            if np.dtype(source).kind in "iub"
            else (normal(3, 43) * 9 + 40).astype(source)
        )
        yield Case(kind="copy", inputs=(x,), tolerance=0)
        for target in kinds:
            yield Case(
                kind="cast", inputs=(x,), attrs={"to": np.dtype(target).name}, label=np.dtype(target).name, tolerance=0
            )
    for shape in IMAGES:
        yield Case(kind="copy", inputs=(normal(*shape),), tolerance=0, orders=ORDERS)
        yield Case(kind="cast", inputs=(normal(*shape),), attrs={"to": "bfloat16"}, tolerance=0, orders=ORDERS)
    yield Case(kind="view", inputs=(normal(4, 6),), attrs={"shape": [3, 8]}, tolerance=0)
