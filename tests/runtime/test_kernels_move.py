"""Kernels that move data, their adjoints, and indices: against onnxruntime, NumPy, and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runtime_support import BFLOAT16, inner, normal, one, onnx_run, run_kernel

from snplan.runtime.numpy import KERNELS, Context


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16, np.int64, np.bool_])
def test_moves_keep_types_and_bits(dtype: Any) -> None:
    x = (normal(2, 3, 4) > 0).astype(dtype) if dtype == np.bool_ else (normal(2, 3, 4) * 10).astype(dtype)
    np.testing.assert_array_equal(one("transpose", [x], {"perm": [2, 0, 1]}), np.transpose(x, (2, 0, 1)))
    np.testing.assert_array_equal(one("transpose", [x], {"perm": [0, 1, 2]}), x)
    np.testing.assert_array_equal(one("concat", [x, x[:, :1]], {"axis": 1}), np.concatenate([x, x[:, :1]], 1))
    np.testing.assert_array_equal(one("expand", [x[:, :1]], {"shape": [5, 2, 3, 4]})[4], np.repeat(x[:, :1], 3, 1))
    np.testing.assert_array_equal(one("tile", [x], {"repeats": [2, 1, 3]}), np.tile(x, (2, 1, 3)))


def test_split() -> None:
    x = normal(2, 6)
    parts = run_kernel("split", [x], {"axis": 1, "sizes": [1, 0, 3, 2]})
    assert [part.shape for part in parts] == [(2, 1), (2, 0), (2, 3), (2, 2)]
    np.testing.assert_array_equal(np.concatenate(parts, 1), x)


SLICES = [
    ([0, 1], [1, 2], [3, 3]),
    ([2, 6], [-1, -3], [3, 3]),
    ([0, 6], [1, -1], [2, 7]),
    ([1, 3], [1, 1], [1, 0]),
]


@pytest.mark.parametrize(("starts", "steps", "sizes"), SLICES)
def test_slices_and_their_adjoints(starts: list[int], steps: list[int], sizes: list[int]) -> None:
    x = normal(3, 7)
    attrs = {"starts": starts, "steps": steps, "sizes": sizes}
    y = one("slice", [x], attrs)
    assert y.shape == tuple(sizes)
    for i, j in np.ndindex(*sizes):
        assert y[i, j] == x[starts[0] + i * steps[0], starts[1] + j * steps[1]]
    dy = normal(*sizes, seed=1)
    dx = one("slice_grad", [dy], {"starts": starts, "steps": steps, "shape": [3, 7]})
    np.testing.assert_allclose(inner(x, dx), inner(y, dy), rtol=1e-5)


PADS = [([1, 0], [2, 3]), ([0, 0], [0, 0]), ([2, 1], [0, 2]), ([-1, 2], [1, -2])]


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(("before", "after"), PADS)
def test_pads_are_onnxruntimes_and_their_gradients_adjoints(mode: str, before: list[int], after: list[int]) -> None:
    x = normal(4, 5)
    attrs = {"before": before, "after": after, "mode": mode, "value": 0.0}
    y = one("pad", [x], attrs)
    if min(*before, *after) >= 0 or mode == "constant":
        (expected,) = onnx_run("Pad", [x, np.array([*before, *after])], opset=19, mode=mode)
        np.testing.assert_array_equal(y, expected)
    dy = normal(*y.shape, seed=1)
    dx = one("pad_grad", [dy], {"before": before, "after": after, "mode": mode, "shape": [4, 5]})
    np.testing.assert_allclose(inner(x, dx), inner(y, dy), rtol=1e-4)


def test_pads_with_a_value_of_any_type() -> None:
    attrs = {"before": [1], "after": [0], "mode": "constant", "value": 7}
    assert one("pad", [np.array([1, 2])], attrs).tolist() == [7, 1, 2]
    assert one("pad", [np.array([1, 2]).astype(BFLOAT16)], attrs).tolist() == [7, 1, 2]
    assert one("pad", [np.array([True])], {**attrs, "value": 0}).tolist() == [False, True]


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("k", [-2, -1, 0, 1, 5])
def test_triangles(upper: bool, k: int) -> None:
    x = normal(2, 3, 4)
    (expected,) = onnx_run("Trilu", [x, np.array(k)], upper=int(upper))
    np.testing.assert_array_equal(one("trilu", [x], {"upper": upper, "k": k}), expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_one_hot(axis: int) -> None:
    indices, values = np.array([0, 3, -1, 9]), np.array([2.0, 5.0], np.float32)
    (expected,) = onnx_run("OneHot", [indices, np.array(4), values], axis=axis)
    np.testing.assert_array_equal(one("one_hot", [indices, values], {"axis": axis, "depth": 4}), expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_gather_and_its_gradient(axis: int, dtype: Any) -> None:
    x, indices = normal(4, 5, 6), np.array([[0, -1], [3, 3]], dtype)
    (expected,) = onnx_run("Gather", [x, indices], axis=axis)
    y = one("gather", [x, indices], {"axis": axis})
    np.testing.assert_array_equal(y, expected)
    dy = normal(*y.shape, seed=1)
    dx = one("gather_grad", [indices, dy], {"axis": axis, "shape": [4, 5, 6]})
    np.testing.assert_allclose(inner(x, dx), inner(y, dy), rtol=1e-5)


def test_gather_of_one_and_of_none() -> None:
    x = normal(3, 4)
    np.testing.assert_array_equal(one("gather", [x, np.array(2)], {"axis": 0}), x[2])
    np.testing.assert_array_equal(
        one("gather_grad", [np.array(-1), np.ones(4)], {"axis": 0, "shape": [2, 4]})[1], np.ones(4)
    )
    none = np.zeros((0,), np.int64)
    assert one("gather", [x, none], {"axis": 1}).shape == (3, 0)
    np.testing.assert_array_equal(
        one("gather_grad", [none, np.zeros((3, 0))], {"axis": 1, "shape": [3, 4]}), np.zeros((3, 4))
    )


def test_many_reads_of_one_row_sum_exactly() -> None:
    count = 100_000
    dx = one(
        "gather_grad", [np.zeros(count, np.int64), np.full((count, 1), 0.1, np.float32)], {"axis": 0, "shape": [2, 1]}
    )
    np.testing.assert_allclose(dx, np.array([[float(np.float32(0.1)) * count], [0.0]]), rtol=1e-7)


def test_an_index_out_of_range_is_an_error() -> None:
    with pytest.raises(IndexError, match="index 4 is out of range: the axis has 4 entries"):
        KERNELS["gather"]([normal(4, 2), np.array([0, 4])], {"axis": 0}, Context())
    with pytest.raises(IndexError, match="index -5"):
        KERNELS["gather"]([normal(4, 2), np.array([-5])], {"axis": 0}, Context())


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_elements_and_scatter_add(axis: int) -> None:
    x, indices = normal(4, 5), np.array([[0, -1, 2], [3, 3, 0]])
    (expected,) = onnx_run("GatherElements", [x, indices], axis=axis)
    y = one("gather_elements", [x, indices], {"axis": axis})
    np.testing.assert_array_equal(y, expected)
    dy = normal(2, 3, seed=1)
    dx = one("scatter_add", [indices, dy], {"axis": axis, "shape": [4, 5]})
    np.testing.assert_allclose(inner(x, dx), inner(y, dy), rtol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1])
def test_scatter_elements(reduction: str, axis: int) -> None:
    x, updates = normal(4, 5), normal(2, 3, seed=1)
    indices = np.array([[0, 1, 2], [3, -2, 0]]) if reduction == "none" else np.array([[0, 1, 2], [0, 1, -4]])
    (expected,) = onnx_run("ScatterElements", [x, indices, updates], axis=axis, reduction=reduction)
    y = one("scatter_elements", [x, indices, updates], {"axis": axis, "reduction": reduction})
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("indices", "batch_dims"),
    [
        ([[0, 1], [1, -1]], 0),
        ([[1], [0]], 0),
        ([[[0, 0, 1], [1, 2, 3]]], 0),
        ([[1], [-1]], 1),
        ([[[0, 1]], [[2, 3]]], 1),
    ],
)
def test_gather_nd_and_its_gradient(indices: Any, batch_dims: int) -> None:
    x, where = normal(2, 3, 4), np.array(indices)
    (expected,) = onnx_run("GatherND", [x, where], batch_dims=batch_dims)
    y = one("gather_nd", [x, where], {"batch_dims": batch_dims})
    np.testing.assert_array_equal(y, expected)
    dy = normal(*y.shape, seed=1)
    dx = one("gather_nd_grad", [where, dy], {"batch_dims": batch_dims, "shape": [2, 3, 4]})
    np.testing.assert_allclose(inner(x, dx), inner(y, dy), rtol=1e-5)


def test_gather_nd_and_scatter_nd_of_slices_without_elements() -> None:
    x, where = np.zeros((3, 0, 4), np.float32), np.array([[2], [0]])
    assert one("gather_nd", [x, where], {"batch_dims": 0}).shape == (2, 0, 4)
    assert one("gather_nd_grad", [where, x[:2]], {"batch_dims": 0, "shape": [3, 0, 4]}).shape == (3, 0, 4)
    assert one("scatter_nd", [x, where, x[:2]], {"reduction": "none"}).shape == (3, 0, 4)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_nd(reduction: str) -> None:
    x, updates = normal(4, 3, 2), normal(2, 2, seed=1)
    indices = np.array([[0, 1], [3, -1]])
    (expected,) = onnx_run("ScatterND", [x, indices, updates], reduction=reduction)
    y = one("scatter_nd", [x, indices, updates], {"reduction": reduction})
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_concat_with_an_input_of_no_rows() -> None:
    a, b = np.zeros((0, 4), np.float32), normal(3, 4)
    np.testing.assert_array_equal(one("concat", [a, b], {"axis": 0}), b)
    parts = run_kernel("split", [b], {"axis": 0, "sizes": [0, 3]})
    assert [part.shape for part in parts] == [(0, 4), (3, 4)]
