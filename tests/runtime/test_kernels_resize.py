"""Resize in every mode against onnxruntime; its gradient as an adjoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runtime_support import close, normal, one, onnx_run

COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
SHAPE = (2, 3, 5, 6)
SIZES = [(2, 3, 10, 12), (2, 3, 8, 7), (2, 3, 4, 4), (2, 3, 1, 9)]


def _attrs(sizes: tuple[int, ...], **others: Any) -> dict[str, Any]:
    scales = [out / size for out, size in zip(sizes, SHAPE, strict=True)]
    return {"sizes": list(sizes), "scales": scales, "cubic_coeff": -0.75, "exclude_outside": False, **others}


def _expected(x: Any, sizes: tuple[int, ...], **attributes: Any) -> Any:
    return onnx_run("Resize", [x, None, None, np.array(sizes)], opset=19, **attributes)[0]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(sizes: tuple[int, ...], coordinate: str, nearest: str) -> None:
    x = normal(*SHAPE)
    attrs = _attrs(sizes, mode="nearest", coordinate_mode=coordinate, nearest_mode=nearest)
    expected = _expected(x, sizes, mode="nearest", coordinate_transformation_mode=coordinate, nearest_mode=nearest)
    np.testing.assert_array_equal(one("resize", [x], attrs), expected)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_linear_and_cubic(sizes: tuple[int, ...], coordinate: str, mode: str) -> None:
    x = normal(*SHAPE)
    attrs = _attrs(sizes, mode=mode, coordinate_mode=coordinate, nearest_mode="floor")
    close(one("resize", [x], attrs), _expected(x, sizes, mode=mode, coordinate_transformation_mode=coordinate), 2e-6)


@pytest.mark.parametrize("sizes", SIZES)
def test_cubic_without_what_is_outside(sizes: tuple[int, ...]) -> None:
    x = normal(*SHAPE)
    attrs = _attrs(sizes, mode="cubic", coordinate_mode="half_pixel", cubic_coeff=-0.5, exclude_outside=True)
    expected = _expected(x, sizes, mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1)
    close(one("resize", [x], attrs), expected, 2e-6)


def test_scales_that_do_not_divide() -> None:
    x = normal(1, 1, 4, 4)
    scales = np.array([1, 1, 0.6, 1.7], np.float32)
    (expected,) = onnx_run("Resize", [x, None, scales], opset=13, mode="linear")
    attrs = {
        "sizes": list(expected.shape),
        "scales": [float(s) for s in scales],
        "mode": "linear",
        "coordinate_mode": "half_pixel",
        "nearest_mode": "floor",
        "cubic_coeff": -0.75,
        "exclude_outside": False,
    }
    close(one("resize", [x], attrs), expected)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinate", COORDINATES)
def test_the_gradient_is_the_adjoint(sizes: tuple[int, ...], mode: str, coordinate: str) -> None:
    x = normal(*SHAPE, dtype=np.float64)
    attrs = _attrs(sizes, mode=mode, coordinate_mode=coordinate, nearest_mode="round_prefer_floor")
    y = one("resize", [x], attrs)
    dy = normal(*y.shape, seed=1, dtype=np.float64)
    dx = one("resize_grad", [dy], {**attrs, "shape": list(SHAPE)})
    np.testing.assert_allclose(np.vdot(x, dx), np.vdot(y, dy), rtol=1e-12)


def test_the_same_size_is_a_copy() -> None:
    x = normal(*SHAPE)
    attrs = _attrs(SHAPE, mode="linear", coordinate_mode="half_pixel", nearest_mode="floor")
    np.testing.assert_array_equal(one("resize", [x], attrs), x)
    np.testing.assert_array_equal(one("resize_grad", [x], {**attrs, "shape": list(SHAPE)}), x)
