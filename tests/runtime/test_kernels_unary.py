"""Elementwise kernels of one input against math's functions and against onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from runtime_support import BFLOAT16, close, normal, one, onnx_run

from snplan.runtime.numpy import unary
from snplan.runtime.numpy.special import erf

POINTS = np.array([-7.5, -3.0, -1.25, -0.5, -0.01, 0.0, 0.01, 0.5, 0.75, 1.0, 2.5, 3.0, 6.5])


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _softplus(x: float) -> float:
    return math.log1p(math.exp(x))


SCALARS: dict[str, tuple[Callable[[float], float], dict[str, Any]]] = {
    "relu": (lambda x: max(x, 0.0), {}),
    "tanh": (math.tanh, {}),
    "sigmoid": (_sigmoid, {}),
    "exp": (math.exp, {}),
    "abs": (abs, {}),
    "sin": (math.sin, {}),
    "cos": (math.cos, {}),
    "tan": (math.tan, {}),
    "atan": (math.atan, {}),
    "sinh": (math.sinh, {}),
    "cosh": (math.cosh, {}),
    "asinh": (math.asinh, {}),
    "erf": (math.erf, {}),
    "softplus": (_softplus, {}),
    "softsign": (lambda x: x / (1 + abs(x)), {}),
    "mish": (lambda x: x * math.tanh(_softplus(x)), {}),
    "hard_swish": (lambda x: x * max(0.0, min(1.0, x / 6 + 0.5)), {}),
    "leaky_relu": (lambda x: x if x >= 0 else 0.2 * x, {"alpha": 0.2}),
    "elu": (lambda x: x if x >= 0 else 0.7 * math.expm1(x), {"alpha": 0.7}),
    "celu": (lambda x: max(x, 0.0) + min(0.0, 0.7 * math.expm1(x / 0.7)), {"alpha": 0.7}),
    "selu": (lambda x: 1.1 * (x if x > 0 else 1.7 * math.expm1(x)), {"alpha": 1.7, "gamma": 1.1}),
    "thresholded_relu": (lambda x: x if x > 0.6 else 0.0, {"alpha": 0.6}),
    "hard_sigmoid": (lambda x: max(0.0, min(1.0, 0.2 * x + 0.5)), {"alpha": 0.2, "beta": 0.5}),
    "gelu": (lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))), {"approximate": "none"}),
    "swish": (lambda x: x * _sigmoid(1.5 * x), {"alpha": 1.5}),
    "clip": (lambda x: min(max(x, -1.0), 2.5), {"min": -1.0, "max": 2.5}),
    "shrink": (lambda x: x + 0.3 if x < -0.6 else x - 0.3 if x > 0.6 else 0.0, {"bias": 0.3, "lambd": 0.6}),
    "neg": (lambda x: -x, {}),
    "sign": (lambda x: float(x > 0) - float(x < 0), {}),
    "floor": (lambda x: float(math.floor(x)), {}),
    "ceil": (lambda x: float(math.ceil(x)), {}),
    "round": (lambda x: float(round(x)), {}),
}
POSITIVE = {"log": math.log, "sqrt": math.sqrt, "reciprocal": lambda x: 1 / x}
UNIT = {"asin": math.asin, "acos": math.acos, "atanh": math.atanh}


@pytest.mark.parametrize("kind", SCALARS)
def test_values_are_those_of_the_formula(kind: str) -> None:
    function, attrs = SCALARS[kind]
    y = one(kind, [POINTS], attrs)
    np.testing.assert_allclose(y, [function(x) for x in POINTS], rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("kind", [*POSITIVE, *UNIT, "acosh"])
def test_values_on_a_restricted_domain(kind: str) -> None:
    if kind == "acosh":
        points, function = np.linspace(1.1, 9, 7), math.acosh
    elif kind in POSITIVE:
        points, function = np.linspace(0.1, 9, 7), POSITIVE[kind]
    else:
        points, function = np.linspace(-0.9, 0.9, 7), UNIT[kind]
    np.testing.assert_allclose(one(kind, [points]), [function(x) for x in points], rtol=1e-14)


def _derivative(function: Callable[[float], float], x: float) -> float:
    h = 1e-5
    return (8 * (function(x + h) - function(x - h)) - (function(x + 2 * h) - function(x - 2 * h))) / (12 * h)


SMOOTH_POINTS = np.array([-4.3, -2.1, -0.83, -0.31, 0.27, 0.55, 1.4, 2.2, 4.7])


@pytest.mark.parametrize("kind", [k for k in SCALARS if k in unary.DERIVATIVE_OF_X])
def test_gradients_from_x_are_difference_quotients(kind: str) -> None:
    function, attrs = SCALARS[kind]
    dy = normal(*SMOOTH_POINTS.shape, dtype=np.float64)
    expected = dy * [_derivative(function, x) for x in SMOOTH_POINTS]
    np.testing.assert_allclose(one(f"{kind}_grad", [SMOOTH_POINTS, dy], attrs), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", unary.DERIVATIVE_OF_Y)
def test_gradients_from_y_are_difference_quotients(kind: str) -> None:
    points = SMOOTH_POINTS if kind in SCALARS else np.abs(SMOOTH_POINTS)
    function = SCALARS[kind][0] if kind in SCALARS else POSITIVE[kind]
    dy = normal(*points.shape, dtype=np.float64)
    y = one(kind, [points])
    expected = dy * [_derivative(function, x) for x in points]
    np.testing.assert_allclose(one(f"{kind}_grad", [y, dy]), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", ["log", *UNIT, "acosh"])
def test_gradients_on_a_restricted_domain(kind: str) -> None:
    points = np.linspace(1.2, 5, 6) if kind in ("log", "acosh") else np.linspace(-0.8, 0.8, 6)
    function = {"log": math.log, "acosh": math.acosh, **UNIT}[kind]
    expected = [_derivative(function, x) for x in points]
    np.testing.assert_allclose(one(f"{kind}_grad", [points, np.ones(6)]), expected, rtol=1e-8)


def test_tanh_gelu_and_its_gradient() -> None:
    def function(x: float) -> float:
        return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    attrs = {"approximate": "tanh"}
    np.testing.assert_allclose(one("gelu", [POINTS], attrs), [function(x) for x in POINTS], rtol=1e-13, atol=1e-15)
    expected = [_derivative(function, x) for x in SMOOTH_POINTS]
    dx = one("gelu_grad", [SMOOTH_POINTS, np.ones_like(SMOOTH_POINTS)], attrs)
    np.testing.assert_allclose(dx, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", SCALARS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16])
def test_narrow_types_keep_their_type_and_round_the_exact_value(kind: str, dtype: Any) -> None:
    attrs = SCALARS[kind][1]
    x = POINTS.astype(dtype)
    y = one(kind, [x], attrs)
    assert y.dtype == dtype
    tolerance = {np.dtype(np.float32): 1e-6, np.dtype(np.float16): 1e-3, BFLOAT16: 8e-3}[np.dtype(dtype)]
    np.testing.assert_allclose(
        y.astype(np.float64), one(kind, [x.astype(np.float64)], attrs), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize(
    ("op", "kind", "attributes", "opset"),
    [
        ("Elu", "elu", {"alpha": 0.5}, 18),
        ("Selu", "selu", {"alpha": 1.6, "gamma": 1.05}, 18),
        ("Celu", "celu", {"alpha": 0.5}, 18),
        ("HardSigmoid", "hard_sigmoid", {"alpha": 0.3, "beta": 0.4}, 18),
        ("HardSwish", "hard_swish", {}, 18),
        ("Mish", "mish", {}, 18),
        ("Softsign", "softsign", {}, 18),
        ("ThresholdedRelu", "thresholded_relu", {"alpha": 0.5}, 18),
        ("Shrink", "shrink", {"bias": 0.3, "lambd": 0.6}, 18),
        ("Gelu", "gelu", {"approximate": "none"}, 20),
        ("Gelu", "gelu", {"approximate": "tanh"}, 20),
        ("Erf", "erf", {}, 18),
        ("Round", "round", {}, 18),
    ],
)
def test_values_are_onnxruntimes(op: str, kind: str, attributes: dict[str, Any], opset: int) -> None:
    x = np.concatenate([normal(200) * 3, np.array([0.5, 1.5, -0.5, 2.5, 0.0], np.float32)])
    (expected,) = onnx_run(op, [x], opset=opset, **attributes)
    close(one(kind, [x], attributes), expected, 2e-6)


def test_the_error_function_is_exact_to_the_last_bits() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20011), [0.46875, 4.0, 6.0, 30.0, 1e-300, 0.0, np.inf, -np.inf]])
    exact = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(erf(x), exact, rtol=1e-15, atol=1e-300)
    assert np.isnan(erf(np.array([np.nan])))[0]


def test_extreme_values_neither_overflow_nor_lose_sign() -> None:
    x = np.array([-1e4, -100.0, 100.0, 1e4])
    np.testing.assert_allclose(one("sigmoid", [x]), [0.0, math.exp(-100), 1.0, 1.0], atol=0)
    np.testing.assert_allclose(one("softplus", [x]), [0.0, math.exp(-100), 100.0, 1e4], atol=0)
    np.testing.assert_allclose(one("mish", [x]), [0.0, -100 * math.exp(-100), 100.0, 1e4], atol=1e-300)
    for kind in ("elu", "celu", "selu", "swish"):
        attrs = {"alpha": 1.0, "gamma": 1.0}
        assert np.isfinite(one(kind, [x], attrs)).all()
        assert np.isfinite(one(f"{kind}_grad", [x, np.ones(4)], attrs)).all()


def test_clip_passes_the_gradient_at_its_ends_and_may_be_open() -> None:
    x = np.array([-2.0, -1.0, 0.0, 2.0, 3.0])
    np.testing.assert_array_equal(one("clip_grad", [x, np.ones(5)], {"min": -1.0, "max": 2.0}), [0, 1, 1, 1, 0])
    np.testing.assert_array_equal(one("clip", [x], {"min": None, "max": 2.0}), [-2, -1, 0, 2, 2])
    np.testing.assert_array_equal(one("clip", [x], {"min": None, "max": None}), x)
    np.testing.assert_array_equal(one("clip", [np.array([1, 5, 9])], {"min": 2, "max": 6}), [2, 5, 6])


def test_tests_of_values() -> None:
    x = np.array([1.0, np.nan, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(one("is_nan", [x]), [False, True, False, False])
    np.testing.assert_array_equal(one("is_inf", [x]), [False, False, True, True])
    np.testing.assert_array_equal(one("not", [np.array([True, False])]), [False, True])


@pytest.mark.parametrize("kind", ["relu", "gelu", "erf", "clip", "abs", "neg"])
def test_scalars_and_arrays_of_no_elements(kind: str) -> None:
    attrs = {"approximate": "none", "min": 0.0, "max": 1.0}
    assert one(kind, [np.array(-2.0, np.float32)], attrs).shape == ()
    assert one(kind, [np.zeros((0, 4), np.float32)], attrs).shape == (0, 4)
