"""Pooling against onnxruntime, with windows past the end; gradients as adjoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runtime_support import BFLOAT16, close, normal, one, onnx_run, run_kernel

CASES: dict[str, dict[str, Any]] = {
    "2x2": {"shape": (2, 3, 8, 6), "kernel": [2, 2], "strides": [2, 2], "pads": [0] * 4, "dilations": [1, 1]},
    "3x3_padded": {"shape": (2, 3, 7, 8), "kernel": [3, 3], "strides": [2, 2], "pads": [1] * 4, "dilations": [1, 1]},
    "overlapping": {
        "shape": (1, 2, 6, 5),
        "kernel": [3, 2],
        "strides": [1, 1],
        "pads": [1, 0, 0, 1],
        "dilations": [1, 1],
    },
    "dilated": {"shape": (1, 2, 9, 9), "kernel": [2, 3], "strides": [1, 2], "pads": [1, 2, 0, 1], "dilations": [3, 2]},
    "one_axis": {"shape": (2, 2, 11), "kernel": [4], "strides": [3], "pads": [2, 1], "dilations": [1]},
    "three_axes": {
        "shape": (1, 2, 5, 4, 6),
        "kernel": [2, 3, 2],
        "strides": [2, 1, 2],
        "pads": [0, 1, 1, 1, 1, 0],
        "dilations": [1, 1, 1],
    },
}
every_case = pytest.mark.parametrize("name", CASES)


def _geometry(name: str, ceil: bool) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The input, the op's attributes and the ONNX node's."""
    case = CASES[name]
    x = normal(*case["shape"])
    node = {"kernel_shape": case["kernel"], "strides": case["strides"], "pads": case["pads"], "ceil_mode": int(ceil)}
    sizes = onnx_run("MaxPool", [x], opset=19, **node, dilations=case["dilations"])[0].shape[2:]
    attrs = {key: case[key] for key in ("kernel", "strides", "pads", "dilations")}
    return x, {**attrs, "sizes": list(sizes)}, node


@every_case
@pytest.mark.parametrize("ceil", [False, True])
def test_max_pool(name: str, ceil: bool) -> None:
    x, attrs, node = _geometry(name, ceil)
    (expected,) = onnx_run("MaxPool", [x], opset=19, **node, dilations=attrs["dilations"])
    y, indices = run_kernel("max_pool", [x], attrs)
    np.testing.assert_array_equal(y, expected)
    dy = normal(*y.shape, seed=1)
    dx = one("max_pool_grad", [indices, dy], {**attrs, "shape": list(x.shape)})
    np.testing.assert_allclose(np.vdot(x, dx), np.vdot(y, dy), rtol=1e-4)
    # All that flows in flows out somewhere.
    np.testing.assert_allclose(dx.sum(), dy.sum(), rtol=1e-4)


@every_case
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("include", [False, True])
def test_average_pool(name: str, ceil: bool, include: bool) -> None:
    x, attrs, node = _geometry(name, ceil)
    attrs["count_include_pad"] = include
    (expected,) = onnx_run(
        "AveragePool", [x], opset=19, **node, dilations=attrs["dilations"], count_include_pad=int(include)
    )
    y = one("average_pool", [x], attrs)
    close(y, expected, 1e-6)
    dy = normal(*y.shape, seed=1)
    dx = one("average_pool_grad", [dy], {**attrs, "shape": list(x.shape)})
    np.testing.assert_allclose(np.vdot(x, dx), np.vdot(y, dy), rtol=1e-4)


def test_windows_past_the_padded_end_do_not_count() -> None:
    attrs: dict[str, Any] = {"kernel": [3], "strides": [3], "pads": [0, 0], "dilations": [1], "sizes": [2]}
    x = np.array([[[1.0, 2.0, 3.0, 4.0]]])
    np.testing.assert_array_equal(one("average_pool", [x], {**attrs, "count_include_pad": True}), [[[2.0, 4.0]]])
    padded = {**attrs, "pads": [0, 1], "count_include_pad": True}
    np.testing.assert_array_equal(one("average_pool", [x], padded), [[[2.0, 2.0]]])


def test_the_first_of_equal_ones_is_the_largest() -> None:
    attrs = {"kernel": [2, 2], "strides": [2, 2], "pads": [0] * 4, "dilations": [1, 1], "sizes": [1, 2]}
    x = np.array([[[[1.0, 1.0, 0.0, 2.0], [1.0, 0.0, 2.0, 2.0]]]])
    y, indices = run_kernel("max_pool", [x], attrs)
    assert y.tolist() == [[[[1.0, 2.0]]]]
    assert indices.dtype == np.uint8
    assert indices.tolist() == [[[[0, 1]]]]


def test_windows_of_the_lowest_value_point_inside() -> None:
    attrs = {"kernel": [3, 3], "strides": [2, 2], "pads": [1] * 4, "dilations": [1, 1], "sizes": [2, 2]}
    y, indices = run_kernel("max_pool", [np.full((1, 1, 3, 3), -np.inf, np.float32)], attrs)
    assert np.isneginf(y).all()
    # The windows start one before the input: their first position inside is 4, 3, 1 and 0.
    assert indices.reshape(-1).tolist() == [4, 3, 1, 0]
    dx = one("max_pool_grad", [indices, np.ones((1, 1, 2, 2))], {**attrs, "shape": [1, 1, 3, 3]})
    assert dx.sum() == 4.0


def test_nan_wins() -> None:
    attrs = {"kernel": [3], "strides": [3], "pads": [0, 0], "dilations": [1], "sizes": [1]}
    y, indices = run_kernel("max_pool", [np.array([[[1.0, np.nan, 5.0]]], np.float32)], attrs)
    assert np.isnan(y).all()
    assert indices.tolist() == [[[1]]]


def test_windows_of_more_than_256_positions() -> None:
    attrs = {"kernel": [17, 16], "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "sizes": [1, 1]}
    x = np.zeros((1, 1, 17, 16), np.float32)
    x[0, 0, 16, 15] = 1.0
    y, indices = run_kernel("max_pool", [x], attrs)
    assert indices.dtype == np.int32
    assert indices.tolist() == [[[[271]]]]
    assert y.tolist() == [[[[1.0]]]]


def test_integers_and_halves() -> None:
    attrs = {"kernel": [2], "strides": [2], "pads": [0, 0], "dilations": [1], "sizes": [2]}
    y, _ = run_kernel("max_pool", [np.array([[[-5, -9, 7, 8]]], np.int8)], attrs)
    assert y.tolist() == [[[-5, 8]]]
    half, _ = run_kernel("max_pool", [np.array([[[-5, -9, 7, 8]]]).astype(BFLOAT16)], attrs)
    assert half.dtype == BFLOAT16
    assert half.tolist() == [[[-5, 8]]]
