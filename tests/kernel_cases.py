"""Ops on small and odd shapes that every GPU kernel is run on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from kernel_harness import ORDERS, Case
from runtime_support import normal

from snplan.ops.unary import GRADIENT_ZERO, SAVES_X, SAVES_Y
from snplan.runtime.numpy import KERNELS, Array, Context

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS: tuple[Any, ...] = (np.float32, np.float64, np.float16, BFLOAT16)
INTS: tuple[Any, ...] = (np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8)
# An image with an odd number of channels, one whose channels make whole vectors, a volume.
IMAGES = ((2, 3, 5, 4), (3, 8, 4, 5), (2, 4, 3, 2, 3))

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


def rng(seed: int = 0) -> np.random.Generator:
    """A seeded generator."""
    return np.random.default_rng(seed)


def integers(low: int, high: int, shape: Sequence[int], dtype: Any = np.int64, seed: int = 0) -> Array:
    """Seeded integers in [low, high)."""
    return rng(seed).integers(low, high, tuple(shape)).astype(dtype)


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
        for shape in IMAGES:
            attrs = {"axes": list(range(2, len(shape))), "keepdims": True}
            yield Case(kind=kind, inputs=(normal(*shape),), attrs=attrs, orders=ORDERS)
            attrs = {"axes": [0, *range(2, len(shape))], "keepdims": False}
            yield Case(kind=kind, inputs=(normal(*shape),), attrs=attrs, orders=ORDERS, label="channels")
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
    yield Case(kind="reduce_prod_grad", inputs=(zeros, normal(3)), attrs={"axes": [1], "keepdims": False}, label="zeros")


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
    parts = {"kernel": kernel, "strides": strides, "pads": pads, "sizes": sizes, "dilations": dilations or (1,) * len(kernel)}
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
    yield Case(kind="max_pool", inputs=(np.round(x * 2) / 2,), attrs=attrs, orders=ORDERS, label=f"{number}", tolerance=0)
    yield Case(kind="max_pool_grad", inputs=(indices, dy), attrs=back, orders=ORDERS, label=f"{number}")
    for pad in (False, True):
        extra = {"count_include_pad": pad}
        yield Case(kind="average_pool", inputs=(x,), attrs={**attrs, **extra}, orders=ORDERS, label=f"{number}_{pad}")
        yield Case(kind="average_pool_grad", inputs=(dy,), attrs={**back, **extra}, orders=ORDERS, label=f"{number}_{pad}")


def softmax_cases() -> Iterator[Case]:
    """Softmax over rows held by a warp, a block, not held at all, and over axes that do not lie along memory."""
    shapes = (((5, 37), 1), ((9, 1024), 1), ((3, 5, 64), 2), ((2, 6, 40), 1), ((40, 6), 0), ((2, 3000), 1), ((3, 9001), 1))
    for shape, axis in (*shapes, ((1, 40000), 1), ((4, 1), 1), ((3, 1025), 1)):
        yield from _softmax(normal(*shape) * 3, axis, ("plain",))
    for shape in IMAGES:
        for axis in (1, len(shape) - 1):
            yield from _softmax(normal(*shape), axis, ORDERS)
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
    for shape, axis in (((9, 7), 1), ((40, 3), 1), ((3, 2500), 1), ((2, 5, 4, 6), 1), ((3, 4, 5), 2), ((3000, 4), 1)):
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


def random_cases() -> Iterator[Case]:
    """Random numbers: equal bits, but for the logarithms and sines of normal ones."""
    for shape in ((1001,), (3, 4, 8), *IMAGES):
        orders = ORDERS if len(shape) > 3 else ("plain",)
        for dtype in FLOATS:
            for kind in ("dropout", "dropout_grad"):
                yield Case(kind=kind, inputs=(normal(*shape, dtype=dtype),), attrs={"ratio": 0.3}, tolerance=0, orders=orders)
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
        yield Case(kind="range", inputs=(), attrs={"dtype": name, "start": 3, "step": 2, "size": 37}, label=name, tolerance=0)
    yield Case(kind="constant", inputs=(), attrs={"dtype": "bool", "shape": [9], "values": [True]}, tolerance=0)
    limits: dict[str, Any] = {"dtype": "int64", "shape": [2], "values": [-(2**63), 2**63 - 1]}
    yield Case(kind="constant", inputs=(), attrs=limits, tolerance=0, label="limits")
    fractions = {"dtype": "float32", "start": -0.5, "step": 0.1, "size": 50}
    yield Case(kind="range", inputs=(), attrs=fractions, tolerance=0, label="fractions")
    image = {"dtype": "float32", "shape": [2, 3, 2, 2], "values": [float(i) for i in range(24)]}
    yield Case(kind="constant", inputs=(), attrs=image, tolerance=0, orders=ORDERS, label="image")


_MOVED: tuple[Any, ...] = (np.float32, np.float16, np.float64, np.uint8)


def move_cases() -> Iterator[Case]:
    """Moves by position: every element of each result is an element of an input, or zero."""
    for dtype in _MOVED:
        for shape, perm in (((5, 7), (1, 0)), ((33, 70), (1, 0)), ((2, 9, 3, 8), (0, 2, 1, 3)), ((3, 40, 35), (0, 2, 1))):
            yield Case(kind="transpose", inputs=(normal(*shape).astype(dtype),), attrs={"perm": list(perm)}, tolerance=0)
    for shape in (*IMAGES, (2, 16, 9, 11)):
        turned = [0, *range(2, len(shape)), 1]
        yield Case(kind="transpose", inputs=(normal(*shape),), attrs={"perm": turned}, tolerance=0, orders=ORDERS)
        yield Case(kind="copy", inputs=(normal(*shape),), tolerance=0, orders=ORDERS, label="orders")
        yield Case(kind="expand", inputs=(normal(shape[1], *(1,) * (len(shape) - 2)),), attrs={"shape": list(shape)}, tolerance=0, orders=ORDERS)
        yield Case(kind="tile", inputs=(normal(*shape),), attrs={"repeats": [1, 2, *(3, 1, 2)[: len(shape) - 2]]}, tolerance=0, orders=ORDERS)
        for axis in range(len(shape)):
            yield from _joins(shape, axis)
    yield from _slices()
    yield from _pads()
    for upper in (False, True):
        for k in (-2, 0, 1):
            attrs = {"upper": upper, "k": k}
            yield Case(kind="trilu", inputs=(normal(3, 6, 8),), attrs=attrs, tolerance=0, label=f"{upper}{k}")
            yield Case(kind="trilu", inputs=(normal(7, 5, dtype=np.float16),), attrs=attrs, tolerance=0, label=f"{upper}{k}")
    yield Case(kind="trilu", inputs=(normal(*IMAGES[1]),), attrs={"upper": True, "k": 0}, tolerance=0, orders=ORDERS)
    for axis in (0, 1, 2):
        values = np.array([0.5, 2.5], np.float32)
        yield Case(kind="one_hot", inputs=(integers(-4, 6, (3, 5)), values), attrs={"axis": axis, "depth": 4}, tolerance=0, label=f"{axis}")
    yield Case(kind="one_hot", inputs=(integers(0, 4, (9,), np.int32), np.array([0, 1])), attrs={"axis": 1, "depth": 4}, tolerance=0)


def _joins(shape: tuple[int, ...], axis: int) -> Iterator[Case]:
    parts = [normal(*(n if i != axis else k for i, n in enumerate(shape)), seed=k) for k in (3, 1, 4, 2)]
    yield Case(kind="concat", inputs=tuple(parts), attrs={"axis": axis}, tolerance=0, orders=ORDERS, label=f"{axis}")
    even = [part.repeat(4, axis).astype(np.float16) for part in parts[:2]]
    yield Case(kind="concat", inputs=tuple(even), attrs={"axis": axis}, tolerance=0, orders=ORDERS, label=f"{axis}")
    whole = np.concatenate(parts, axis)
    yield Case(kind="split", inputs=(whole,), attrs={"axis": axis, "sizes": [2, 3, 5]}, tolerance=0, orders=ORDERS, label=f"{axis}")


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
        yield Case(kind="slice", inputs=(normal(*shape),), attrs={**where, "sizes": list(sizes)}, tolerance=0, orders=orders, label=label)
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
    still = {"before": [0, 0], "after": [0, 0], "mode": "constant", "value": 0}
    yield Case(kind="pad", inputs=(normal(3, 4),), attrs=still, tolerance=0, label="still")
    for dtype in (np.float16, np.int64, np.bool_, BFLOAT16):
        attrs = {"before": [1, 2], "after": [0, 1], "mode": "constant", "value": 1}
        yield Case(kind="pad", inputs=(integers(0, 2, (3, 4), dtype),), attrs=attrs, tolerance=0, label="fill")


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
        yield Case(kind="gather", inputs=(normal(5, 16, dtype=dtype), integers(0, 5, (7,))), attrs={"axis": 0}, tolerance=0)
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
        yield Case(kind="gather_nd", inputs=(normal(*shape), indices), attrs={"batch_dims": batch}, tolerance=0, **common)
        back = {"batch_dims": batch, "shape": list(shape)}
        yield Case(kind="gather_nd_grad", inputs=(indices, normal(*inner, seed=1)), attrs=back, **common)
        for reduction in ("none", "add", "mul", "max", "min") if batch == 0 else ():
            inputs = normal(*shape), indices, normal(*inner, seed=2)
            yield Case(kind="scatter_nd", inputs=inputs, attrs={"reduction": reduction}, label=reduction)


def _scan_cases() -> Iterator[Case]:
    for shape, axis in (((5, 9), 1), ((9, 5), 0), ((2, 700), 1), ((3, 4, 100), 1), ((2, 8, 4, 70), 3), ((2, 70, 3, 4), 1)):
        orders = ORDERS if len(shape) == 4 else ("plain",)
        for exclusive in (False, True):
            for reverse in (False, True):
                attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
                yield Case(kind="cum_sum", inputs=(normal(*shape),), attrs=attrs, orders=orders, label=f"{axis}{exclusive}{reverse}")
        for largest in (False, True):
            for k in (1, 3):
                attrs = {"axis": axis, "k": k, "largest": largest, "sorted": True}
                x = np.round(normal(*shape) * 2)
                yield Case(kind="top_k", inputs=(x,), attrs=attrs, tolerance=0, orders=orders, label=f"{axis}{k}{largest}")
    yield Case(kind="cum_sum", inputs=(integers(-5, 5, (3, 99)),), attrs={"axis": 1})
    special = np.array([[1, np.nan, 2, -np.inf, np.nan, np.inf]], np.float32)
    for largest in (False, True):
        attrs = {"axis": 1, "k": 6, "largest": largest, "sorted": True}
        yield Case(kind="top_k", inputs=(special,), attrs=attrs, tolerance=0, label=f"special_{largest}")
        yield Case(kind="top_k", inputs=(integers(0, 5, (4, 80), np.uint8),), attrs=attrs, label=f"{largest}")


def norm_cases() -> Iterator[Case]:
    """Layer, RMS, group and local response normalisation."""
    for shape, axis in (((6, 40), 1), ((3, 5, 64), 2), ((3, 5, 7), 1), ((4, 3000), 1), ((2, 40000), 1), ((700, 12), 1), ((3, 8, 4, 4), 1)):
        yield from _row_norms(normal(*shape) + 1, axis, ORDERS if len(shape) == 4 else ("plain",))
    for dtype in FLOATS[1:]:
        yield from _row_norms(normal(6, 48, dtype=dtype), 1, ("plain",))
        yield from _group_norm(normal(2, 8, 5, 6, dtype=dtype), 4, ORDERS)
    for shape in (*IMAGES, (2, 6, 30, 40), (3, 6)):
        for groups in {1, shape[1], 2 if shape[1] % 2 == 0 else 1}:
            yield from _group_norm(normal(*shape) * 2 + 1, groups, ORDERS if len(shape) > 3 else ("plain",))
        for size in (3, 4, 5):
            attrs = {"size": size, "alpha": 0.3, "beta": 0.75, "bias": 2.0}
            x, dy = normal(*shape), normal(*shape, seed=1)
            (y,) = KERNELS["lrn"]([x], attrs, Context())
            yield Case(kind="lrn", inputs=(x,), attrs=attrs, orders=ORDERS, label=f"{size}")
            yield Case(kind="lrn_grad", inputs=(x, y, dy), attrs=attrs, orders=ORDERS, label=f"{size}")


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


_COORDINATES = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric", "tf_half_pixel_for_nn")
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
            for nearest in _NEAREST:
                yield from _resize(shape, sizes, "nearest", coordinate, nearest_mode=nearest)
        for exclude in (False, True):
            yield from _resize(shape, sizes, "cubic", "half_pixel", cubic_coeff=-0.5, exclude_outside=exclude)
    yield from _resize((2, 8, 4, 5), (2, 8, 6, 7), "linear", "asymmetric", scales=[1.0, 1.0, 1.6, 1.4])
    whole = {"sizes": [8, 10], "scales": [2.0, 2.0], "mode": "nearest", "coordinate_mode": "asymmetric", "nearest_mode": "floor"}
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


FAMILIES = {
    "unary": unary_cases,
    "binary": binary_cases,
    "cast": cast_cases,
    "reduction": reduction_cases,
    "loss": loss_cases,
    "random": random_cases,
    "update": update_cases,
    "constant": constant_cases,
    "move": move_cases,
    "index": index_cases,
    "norm": norm_cases,
    "resize": resize_cases,
    "softmax": softmax_cases,
    "pool": pool_cases,
    "batch_norm": batch_norm_cases,
}
