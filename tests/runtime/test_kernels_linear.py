"""Matrix products against NumPy in float64 and onnxruntime's Gemm."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_support import BFLOAT16, close, normal, one, onnx_run

SHAPES = [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((1, 4), (3, 4, 1))]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_products(a: tuple[int, ...], b: tuple[int, ...], trans_a: bool, trans_b: bool) -> None:
    left, right = normal(*a), normal(*b, seed=1)
    exact = np.matmul(left.astype(np.float64), right.astype(np.float64))
    stored = [np.swapaxes(x, -1, -2) if flip else x for x, flip in ((left, trans_a), (right, trans_b))]
    attrs = {"trans_a": trans_a, "trans_b": trans_b, "alpha": 1.0}
    close(one("matmul", stored, attrs), exact, 1e-6)
    close(one("matmul", stored, {**attrs, "alpha": -0.5}), -0.5 * exact, 1e-6)


@pytest.mark.parametrize("bias", [(5,), (3, 1), (1, 5), (3, 5)])
def test_product_with_bias_is_onnx_gemm(bias: tuple[int, ...]) -> None:
    inputs = [normal(4, 3), normal(5, 4, seed=1), normal(*bias, seed=2)]
    (expected,) = onnx_run("Gemm", inputs, transA=1, transB=1, alpha=0.7)
    close(one("matmul", inputs, {"trans_a": True, "trans_b": True, "alpha": 0.7}), expected)


def test_integers_and_halves() -> None:
    a, b = np.array([[2, 3]], np.int32), np.array([[5], [7]], np.int32)
    attrs = {"trans_a": False, "trans_b": False, "alpha": 1.0}
    assert one("matmul", [a, b], attrs).tolist() == [[31]]
    ones = np.ones((1, 300), BFLOAT16)
    y = one("matmul", [ones, ones], {**attrs, "trans_b": True})
    assert y.dtype == BFLOAT16
    assert y.tolist() == [[300.0]]


def test_sums_over_nothing_are_zero() -> None:
    attrs = {"trans_a": False, "trans_b": False, "alpha": 1.0}
    np.testing.assert_array_equal(one("matmul", [np.zeros((2, 3, 0)), np.zeros((0, 4))], attrs), np.zeros((2, 3, 4)))
    assert one("matmul", [np.zeros((0, 3)), np.zeros((3, 4))], attrs).shape == (0, 4)
