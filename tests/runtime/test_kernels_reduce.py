"""Reductions, running sums and selections, against onnxruntime and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runtime_support import BFLOAT16, close, normal, one, onnx_run, run_kernel

REDUCTIONS = {
    "reduce_sum": "ReduceSum",
    "reduce_mean": "ReduceMean",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
    "reduce_log_sum_exp": "ReduceLogSumExp",
}


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("axes", [[0], [1], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("keepdims", [True, False])
def test_values_are_onnxruntimes(kind: str, axes: list[int], keepdims: bool) -> None:
    x = normal(3, 4, 5)
    (expected,) = onnx_run(REDUCTIONS[kind], [x, np.array(axes)], opset=18, keepdims=int(keepdims))
    close(one(kind, [x], {"axes": axes, "keepdims": keepdims}), np.asarray(expected))


def test_sums_of_many_small_numbers_are_exact() -> None:
    x = np.full((1 << 20, 2), 0.1, np.float32)
    exact = float(np.float32(0.1)) * (1 << 20)
    for kind, expected in (("reduce_sum", exact), ("reduce_mean", float(np.float32(0.1)))):
        y = one(kind, [x], {"axes": [0], "keepdims": False})
        np.testing.assert_allclose(y, expected, rtol=1e-7)
    assert float(one("reduce_sum", [np.ones(300, BFLOAT16)], {"axes": [0]})) == 300.0


def test_no_axes_and_no_elements() -> None:
    x = normal(2, 3)
    np.testing.assert_array_equal(one("reduce_sum", [x], {"axes": [], "keepdims": False}), x)
    empty = np.zeros((0, 3), np.float32)
    attrs = {"axes": [0], "keepdims": False}
    np.testing.assert_array_equal(one("reduce_sum", [empty], attrs), np.zeros(3))
    np.testing.assert_array_equal(one("reduce_prod", [empty], attrs), np.ones(3))
    np.testing.assert_array_equal(one("reduce_max", [empty], attrs), np.full(3, -np.inf))


def test_integers_keep_their_type() -> None:
    x = np.array([[2**40, 1], [3, -7]])
    assert one("reduce_sum", [x], {"axes": [1]}).tolist() == [2**40 + 1, -4]
    assert one("reduce_max", [x], {"axes": [0]}).tolist() == [2**40, 1]
    assert one("reduce_prod", [x], {"axes": [1]}).tolist() == [2**40, -21]


def test_log_sum_exp_does_not_overflow() -> None:
    x = np.array([[1000.0, 1000.0], [-1000.0, -1000.0], [-np.inf, -np.inf]], np.float32)
    y = one("reduce_log_sum_exp", [x], {"axes": [1]})
    np.testing.assert_allclose(y, [1000 + np.log(2), -1000 + np.log(2), -np.inf], rtol=1e-6)


def test_gradients_of_extrema_are_shared_by_ties() -> None:
    x = np.array([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]])
    attrs = {"axes": [1], "keepdims": False}
    y = one("reduce_max", [x], attrs)
    dx = one("reduce_extremum_grad", [x, y, np.array([4.0, 5.0])], attrs)
    np.testing.assert_array_equal(dx, [[0, 2, 2], [5, 0, 0]])


@pytest.mark.parametrize("axes", [[0], [1], [0, 2], [1, 2], [0, 1, 2]])
@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradient_of_products_also_beside_zeros(axes: list[int], keepdims: bool, zeros: int) -> None:
    x = normal(2, 3, 2, dtype=np.float64)
    x.reshape(-1)[:zeros] = 0.0
    attrs = {"axes": axes, "keepdims": keepdims}
    dy = normal(*one("reduce_prod", [x], attrs).shape, seed=1, dtype=np.float64)
    expected = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        # A product is linear in each factor.
        low, high = x.copy(), x.copy()
        low[place], high[place] = 0.0, 1.0
        expected[place] = np.vdot(dy, one("reduce_prod", [high], attrs) - one("reduce_prod", [low], attrs))
    np.testing.assert_allclose(one("reduce_prod_grad", [x, dy], attrs), expected, rtol=1e-12, atol=1e-14)


def test_gradient_of_log_sum_exp_is_softmax() -> None:
    x = normal(3, 4, dtype=np.float64)
    attrs = {"axes": [1], "keepdims": False}
    y = one("reduce_log_sum_exp", [x], attrs)
    dx = one("reduce_log_sum_exp_grad", [x, y, np.array([1.0, 2.0, 3.0])], attrs)
    np.testing.assert_allclose(dx, np.exp(x) / np.exp(x).sum(1, keepdims=True) * [[1.0], [2.0], [3.0]])


@pytest.mark.parametrize(("kind", "op"), [("arg_max", "ArgMax"), ("arg_min", "ArgMin")])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("keepdims", [False, True])
def test_positions_of_extrema(kind: str, op: str, last: bool, keepdims: bool) -> None:
    x = np.array([[1, 5, 5, 0, 0], [2, 2, 2, 2, 2]], np.float32)
    (expected,) = onnx_run(op, [x], axis=1, select_last_index=int(last), keepdims=int(keepdims))
    y = one(kind, [x], {"axis": 1, "keepdims": keepdims, "last": last})
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_running_sums(exclusive: bool, reverse: bool, axis: int) -> None:
    x = normal(4, 5)
    (expected,) = onnx_run("CumSum", [x, np.array(axis)], exclusive=int(exclusive), reverse=int(reverse))
    close(one("cum_sum", [x], {"axis": axis, "exclusive": exclusive, "reverse": reverse}), expected)


def test_running_sums_are_exclusive_beside_infinities() -> None:
    y = one("cum_sum", [np.array([1.0, np.inf, 2.0])], {"axis": 0, "exclusive": True, "reverse": False})
    np.testing.assert_array_equal(y, [0, 1, np.inf])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("axis", [0, 1])
def test_top_k_is_onnxruntimes(largest: bool, dtype: Any, axis: int) -> None:
    x = np.round(normal(6, 7) * 2).astype(dtype)
    expected = onnx_run("TopK", [x, np.array([3])], outputs=2, axis=axis, largest=int(largest), sorted=1)
    values, indices = run_kernel("top_k", [x], {"axis": axis, "k": 3, "largest": largest, "sorted": True})
    np.testing.assert_array_equal(values, expected[0])
    np.testing.assert_array_equal(indices, expected[1])


def test_top_k_of_bfloat16() -> None:
    x = np.array([1.0, 3.0, 2.0, 3.0]).astype(BFLOAT16)
    values, indices = run_kernel("top_k", [x], {"axis": 0, "k": 3, "largest": True, "sorted": True})
    assert values.dtype == BFLOAT16
    assert indices.tolist() == [1, 3, 2]
