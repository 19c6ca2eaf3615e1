"""Fused ops: chains, choices, casts, dropout, batch normalisation with what is around it, sums behind a chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from kernel_harness import ORDERS, Case
from runtime_support import normal

from kernel_cases.common import FLOATS, IMAGES, integers
from snplan.runtime.numpy import KERNELS, Array, Context

Part: TypeAlias = tuple[str, Sequence[int], dict[str, Any]]
Parts: TypeAlias = Sequence[Part]


def fused(inputs: Sequence[Array], parts: Parts, results: Sequence[int], **options: Any) -> Case:
    """A case of a fused op."""
    rows = [[kind, [*operands], attrs] for kind, operands, attrs in parts]
    return Case(kind="fused", inputs=tuple(inputs), attrs={"parts": rows, "results": [*results]}, **options)


def fused_cases() -> Iterator[Case]:
    """All of the above."""
    yield from _chains()
    yield from _norms()
    yield from _sums()
    yield from _rows()


def _chains() -> Iterator[Case]:
    for dtype in FLOATS:
        x, y, row = normal(5, 24, dtype=dtype), normal(5, 24, seed=1, dtype=dtype), normal(24, seed=2, dtype=dtype)
        parts: Parts = [("add", (0, 1), {}), ("mul", (3, 2), {}), ("relu", (4,), {}), ("mul", (5,), {"scalar": 0.5})]
        yield fused((x, y, row), parts, (6,), label="chain")
        yield fused((x, y, row), parts, (3, 6), label="two")
        yield fused((x, y), [("sigmoid", (0,), {}), ("mul", (2, 0), {}), ("mul", (3, 1), {})], (4,), label="silu")
    for shape in IMAGES:
        x, y, channel = normal(*shape), normal(*shape, seed=1), normal(shape[1], *(1,) * (len(shape) - 2), seed=2)
        parts = [("add", (0, 2), {}), ("add", (3, 1), {}), ("relu", (4,), {})]
        yield fused((x, y, channel), parts, (5,), label="image", orders=ORDERS)
        yield fused(
            (x, y, channel),
            [("dropout", (0,), {"ratio": 0.4}), ("add", (3, 1), {}), ("add", (4, 2), {})],
            (5,),
            label="dropout",
            orders=ORDERS,
        )
    x, flags = normal(6, 16), integers(0, 2, (6, 16), np.bool_)
    choices: Parts = [("where", (2, 0, 1), {}), ("greater", (3, 1), {}), ("mask", (4, 0), {"keep": True})]
    yield fused((x, normal(6, 16, seed=1), flags), choices, (3, 4, 5), label="choices", tolerance=0)
    flipped: Parts = [("not", (1,), {}), ("and", (2, 1), {}), ("or", (3, 2), {}), ("mask", (4, 0), {"keep": False})]
    yield fused((x, flags), flipped, (4, 5), label="flags", tolerance=0)
    casts: Parts = [("cast", (0,), {"to": "float16"}), ("cast", (1,), {"to": "float32"}), ("sub", (0, 2), {})]
    yield fused((x,), casts, (3,), label="cast", tolerance=0)
    yield fused((x.astype(np.float16),), [("cast", (0,), {"to": "float32"}), ("gelu", (1,), {})], (2,), label="widened")
    yield fused((normal(0, 4), normal(4)), [("add", (0, 1), {}), ("relu", (2,), {})], (3,), label="empty")


def _vectors(x: Array, count: int) -> list[Array]:
    """Vectors of channels: mean, inverse deviation (not near zero), scale, bias, ..."""
    channels, dtype = x.shape[1], np.float64 if x.dtype == np.float64 else np.float32
    found = [normal(channels, *(1,) * (x.ndim - 2), seed=k, dtype=dtype) for k in range(count)]
    return [np.abs(v) + dtype(0.5) if k == 1 else v for k, v in enumerate(found)]


def _norms() -> Iterator[Case]:
    """y = relu(norm(x) + residual), and dx of a norm behind the same relu, its mask made again."""
    for shape in (*IMAGES, (6, 5), (4, 3, 20, 20)):
        for dtype in FLOATS if shape == IMAGES[1] else FLOATS[:1]:
            x, residual = normal(*shape, dtype=dtype), normal(*shape, seed=1, dtype=dtype)
            mean, inverse, scale, bias, dscale, dbias = _vectors(x, 6)
            orders = ORDERS if len(shape) > 2 else ("plain",)
            norm: Part = ("batch_norm_apply", (0, 2, 3, 4, 5), {})
            inputs = (x, residual, mean, inverse, scale, bias)
            yield Case(kind="batch_norm_apply", inputs=(x, mean, inverse, scale, bias), orders=orders)
            yield fused(inputs, [norm, ("add", (6, 1), {}), ("relu", (7,), {})], (8,), label="norm", orders=orders)
            count = x.size // x.shape[1]
            given = (x, scale, mean, inverse, dscale, dbias, residual)
            yield Case(kind="batch_norm_grad_apply", inputs=given, attrs={"count": count}, orders=orders)
            masked: Parts = [
                norm,
                ("clip_grad", (8, 1), {"min": 0.0, "max": 6.0}),
                ("batch_norm_grad_apply", (0, 4, 2, 3, 6, 7, 9), {"count": count}),
            ]
            yield fused((*inputs, dscale, dbias), masked, (10,), label="norm_grad", orders=orders)


def _sums() -> Iterator[Case]:
    for shape in (*IMAGES, (6, 5), (40, 16), (4, 3, 40, 40), (40, 40, 8, 7), (2, 70, 1, 1)):
        for dtype in FLOATS if shape == IMAGES[1] else FLOATS[:1]:
            x, dy = normal(*shape, dtype=dtype), normal(*shape, seed=1, dtype=dtype)
            mean, inverse, scale, bias = _vectors(x, 4)
            orders = ORDERS if len(shape) > 2 else ("plain",)
            yield Case(kind="batch_norm_inverse", inputs=(np.abs(scale.reshape(-1)),), attrs={"epsilon": 1e-5})
            yield Case(kind="batch_norm_statistics", inputs=(x,), attrs={"epsilon": 1e-5}, orders=orders)
            yield Case(kind="batch_norm_grad_sums", inputs=(x, mean, inverse, dy), orders=orders)
            parts: Parts = [
                ("batch_norm_apply", (0, 1, 2, 3, 4), {}),
                ("relu_grad", (6, 5), {}),
                ("batch_norm_grad_sums", (0, 1, 2, 7), {}),
            ]
            yield fused((x, mean, inverse, scale, bias, dy), parts, (8, 9), label="sums", orders=orders)
    x, row = normal(9, 70), normal(70, seed=1)
    for axes in ([0], [1], [0, 1]):
        for kind in ("reduce_sum", "reduce_mean"):
            last = (kind, (3,), {"axes": axes, "keepdims": len(axes) == 1})
            yield fused((row, x), [("mul", (1, 0), {}), ("exp", (2,), {}), last], (4,), label=f"{kind}{axes}")


def _rows() -> Iterator[Case]:
    """Scaled, masked softmax; its gradient between a dropout's and the mask's; other axes, orders, long rows."""
    for shape in ((2, 3, 5, 12), (1, 2, 3, 7), (2, 1, 2, 1100), (3, 4, 6, 1)):
        for dtype in FLOATS if shape[-1] == 12 else FLOATS[:1]:
            scores, dy = normal(*shape, dtype=dtype), normal(*shape, seed=1, dtype=dtype)
            flags = integers(0, 3, (1, 1, *shape[2:]), np.bool_)
            far = np.full((), -100, dtype)
            inputs = (scores, flags, far)
            forward: list[Part] = [
                ("mul", (0,), {"scalar": 0.3}),
                ("where", (1, 3, 2), {}),
                ("softmax", (4,), {"axis": 3}),
            ]
            yield fused(inputs, forward, (5,), label="attention", orders=ORDERS[:2])
            dropped: Part = ("dropout", (5,), {"ratio": 0.3})
            yield fused(inputs, [*forward, dropped], (5, 6), label="attention_dropout", orders=ORDERS)
            (y,) = KERNELS["softmax"]([scores], {"axis": 3}, Context())
            backward: Parts = [
                ("dropout_grad", (1,), {"ratio": 0.3}),
                ("softmax_grad", (0, 3), {"axis": 3}),
                ("mask", (2, 4), {"keep": True}),
                ("mul", (5,), {"scalar": 0.3}),
            ]
            yield fused((y, dy, flags), backward, (6,), label="attention_grad", orders=ORDERS)
    x, other = normal(3, 6, 4, 5), normal(3, 6, 4, 5, seed=1)
    for axis in (1, 2):
        for kind in ("softmax", "log_softmax"):
            parts: Parts = [("add", (0, 1), {}), (kind, (2,), {"axis": axis}), ("mul", (3, 1), {}), ("exp", (2,), {})]
            yield fused((x, other), parts, (3, 4, 5), label=f"{kind}{axis}", orders=ORDERS)
            late: Parts = [(kind, (0,), {"axis": axis}), ("dropout", (2,), {"ratio": 0.5}), ("sub", (3, 1), {})]
            yield fused((x, other), late, (4,), label=f"late_{kind}{axis}", orders=ORDERS)
        gradient: Parts = [("log_softmax_grad", (0, 1), {"axis": axis}), ("neg", (2,), {})]
        yield fused((x, other), gradient, (3,), label=f"log_grad{axis}", orders=ORDERS)
    long = normal(2, 40000)
    yield fused((long,), [("mul", (0,), {"scalar": 2.0}), ("softmax", (1,), {"axis": 1})], (2,), label="long")
