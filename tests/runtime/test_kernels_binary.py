"""Elementwise kernels of two inputs, choices, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runtime_support import BFLOAT16, close, normal, one, onnx_run

ARITHMETIC = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min"}
COMPARISONS = {
    "equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
}


@pytest.mark.parametrize("kind", [*ARITHMETIC, *COMPARISONS])
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((2, 1, 4), (3, 1)), ((), (2, 3)), ((1,), (0, 2))])
def test_two_inputs_broadcast_as_in_onnx(kind: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (
        np.asarray(np.round(normal(*shape, seed=i) * 2) + 0.5 * (kind == "div"), np.float32)
        for i, shape in enumerate(shapes)
    )
    (expected,) = onnx_run({**ARITHMETIC, **COMPARISONS}[kind], [a, b])
    np.testing.assert_array_equal(one(kind, [a, b]), expected)


def test_integer_division_truncates_towards_zero() -> None:
    a, b = np.array([7, -7, 7, -7, 6, 0]), np.array([2, 2, -2, -2, -3, 5])
    np.testing.assert_array_equal(one("div", [a, b]), [3, -3, -3, 3, -2, 0])
    np.testing.assert_array_equal(one("div", [a], {"scalar": 2}), [3, -3, 3, -3, 3, 0])


def test_mod_takes_the_sign_of_the_divisor_and_fmod_that_of_the_dividend() -> None:
    a, b = np.array([7, -7, 7, -7]), np.array([3, 3, -3, -3])
    np.testing.assert_array_equal(one("mod", [a, b]), [1, 2, -2, -1])
    np.testing.assert_array_equal(one("mod", [a, b], {"fmod": True}), [1, -1, 1, -1])


def test_logic() -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    np.testing.assert_array_equal(one("and", [a, b]), [True, False, False, False])
    np.testing.assert_array_equal(one("or", [a, b]), [True, True, True, False])
    np.testing.assert_array_equal(one("xor", [a, b]), [False, True, True, False])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, BFLOAT16])
def test_a_scalar_does_not_change_the_type(dtype: Any) -> None:
    x = np.array([1.0, 2.0, 4.0]).astype(dtype)
    for kind, attrs, expected in (
        ("add", {"scalar": 1}, [2, 3, 5]),
        ("sub", {"scalar": 1.0, "reverse": True}, [0, -1, -3]),
        ("div", {"scalar": 4.0, "reverse": True}, [4, 2, 1]),
        ("pow", {"scalar": 2.0}, [1, 4, 16]),
        ("pow", {"scalar": 2.0, "reverse": True}, [2, 4, 16]),
        ("max", {"scalar": 2.5}, [2.5, 2.5, 4]),
    ):
        y = one(kind, [x], attrs)
        assert y.dtype == dtype
        np.testing.assert_array_equal(y.astype(np.float64), expected)


@pytest.mark.parametrize("exponent", [-2.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 2.5])
def test_powers_and_their_slopes(exponent: float) -> None:
    x = np.array([0.5, 1.0, 2.0, 3.7])
    np.testing.assert_allclose(one("pow", [x], {"scalar": exponent}), [v**exponent for v in x], rtol=1e-14)
    slope = [exponent * v ** (exponent - 1) for v in x]
    np.testing.assert_allclose(one("pow_grad_a", [x, np.ones(4)], {"scalar": exponent}), slope, rtol=1e-14)
    both = one("pow_grad_a", [x, np.full(4, exponent), np.ones(4)])
    np.testing.assert_allclose(both, slope, rtol=1e-14)


def test_power_slopes_at_zero_are_numbers() -> None:
    a, b, dy = np.array([0.0, 0.0, 0.0]), np.array([0.0, 1.0, 2.0]), np.ones(3)
    np.testing.assert_array_equal(one("pow_grad_a", [a, b, dy]), [0, 1, 0])
    y = one("pow", [a, b])
    np.testing.assert_array_equal(one("pow_grad_b", [a, y, dy]), [0, 0, 0])


def test_the_slope_in_the_exponent() -> None:
    a, b = np.array([0.5, 2.0, 3.0]), np.array([2.0, -1.0, 0.5])
    y, dy = a**b, np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(one("pow_grad_b", [a, y, dy]), dy * y * np.log(a))
    y = 2.0**b
    np.testing.assert_allclose(one("pow_grad_b", [y, dy], {"scalar": 2.0, "reverse": True}), dy * y * np.log(2.0))


def test_integer_powers() -> None:
    a = np.array([2, 3, -2], np.int32)
    np.testing.assert_array_equal(one("pow", [a], {"scalar": 3}), [8, 27, -8])
    np.testing.assert_array_equal(one("pow", [a, np.array([0, 1, 2], np.int32)]), [1, 3, 4])


def test_slopes_of_quotients() -> None:
    a, b, dy = np.array([3.0, -1.0]), np.array([2.0, 4.0]), np.array([1.0, 5.0])
    np.testing.assert_allclose(one("div_grad_b", [b, a / b, dy]), -dy * a / b**2)
    np.testing.assert_allclose(one("reverse_div_grad", [b, dy], {"scalar": 3.0}), -dy * 3.0 / b**2)
    broadcast = one("div_grad_b", [np.array([[2.0], [4.0]]), np.ones((2, 3)), np.ones((2, 3))])
    np.testing.assert_allclose(broadcast, np.array([[-0.5] * 3, [-0.25] * 3]))


@pytest.mark.parametrize(
    ("of", "first", "second"), [("max", [0, 4, 1.5], [2, 0, 1.5]), ("min", [2, 0, 1.5], [0, 4, 1.5])]
)
def test_the_winner_takes_the_gradient_and_ties_share_it(of: str, first: list[float], second: list[float]) -> None:
    a, b, dy = np.array([1.0, 5.0, 2.0]), np.array([4.0, 1.0, 2.0]), np.array([2.0, 4.0, 3.0])
    np.testing.assert_array_equal(one("extremum_grad", [a, b, dy], {"of": of, "input": 0}), first)
    np.testing.assert_array_equal(one("extremum_grad", [a, b, dy], {"of": of, "input": 1}), second)


def test_the_winner_against_a_scalar() -> None:
    x, dy = np.array([-1.0, 0.0, 2.0], np.float32), np.ones(3, np.float32)
    np.testing.assert_array_equal(one("extremum_grad", [x, dy], {"of": "max", "scalar": 0.0}), [0, 0.5, 1])


def test_where_and_mask() -> None:
    c = np.array([[True], [False]])
    a, b = normal(2, 3), normal(1, 3, seed=1)
    np.testing.assert_array_equal(one("where", [c, a, b]), np.where(c, a, b))
    np.testing.assert_array_equal(one("mask", [c, b], {"keep": True}), np.where(c, b, 0))
    np.testing.assert_array_equal(one("mask", [c, b.astype(BFLOAT16)], {"keep": False})[1], b[0].astype(BFLOAT16))


def test_prelu_and_its_gradients() -> None:
    x, slope, dy = normal(2, 3, 4), normal(3, 1, seed=1), normal(2, 3, 4, seed=2)
    (expected,) = onnx_run("PRelu", [x, slope])
    close(one("prelu", [x, slope]), expected)
    np.testing.assert_array_equal(one("prelu_grad_x", [x, slope, dy]), np.where(x < 0, slope * dy, dy))
    np.testing.assert_array_equal(one("prelu_grad_slope", [x, dy]), np.where(x < 0, x * dy, 0))


def test_casts() -> None:
    x = np.array([-1.7, 0.0, 2.9], np.float32)
    np.testing.assert_array_equal(one("cast", [x], {"to": "int32"}), [-1, 0, 2])
    np.testing.assert_array_equal(one("cast", [x], {"to": "bool"}), [True, False, True])
    assert one("cast", [x], {"to": "bfloat16"}).dtype == BFLOAT16
    assert one("cast", [x.astype(BFLOAT16)], {"to": "float32"}).dtype == np.float32
    np.testing.assert_array_equal(one("cast", [np.array([True, False])], {"to": "float32"}), [1, 0])
    assert one("cast", [x.astype(BFLOAT16)], {"to": "bool"}).tolist() == [True, False, True]


def test_constants_and_ranges() -> None:
    filled = one("constant", [], {"dtype": "float32", "shape": [2, 3], "values": [1.5]})
    np.testing.assert_array_equal(filled, np.full((2, 3), 1.5, np.float32))
    listed = one("constant", [], {"dtype": "int64", "shape": [2, 2], "values": [1, 2, 3, 2**62 + 1]})
    assert listed.tolist() == [[1, 2], [3, 2**62 + 1]]
    assert one("constant", [], {"dtype": "bool", "shape": [], "values": [True]}).tolist() is True
    assert one("range", [], {"dtype": "int64", "start": 5, "step": -2, "size": 3}).tolist() == [5, 3, 1]
    np.testing.assert_allclose(
        one("range", [], {"dtype": "float32", "start": 0.5, "step": 0.25, "size": 3}), [0.5, 0.75, 1]
    )


def test_copies_and_views_have_memory_of_their_own() -> None:
    x = normal(2, 6)
    np.testing.assert_array_equal(one("copy", [x]), x)
    np.testing.assert_array_equal(one("view", [x], {"shape": [3, 4]}), x.reshape(3, 4))
