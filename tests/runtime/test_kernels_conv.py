"""Convolutions against onnxruntime, and their gradients as adjoints: <A x, y> = <x, A^T y>."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from runtime_support import BFLOAT16, close, normal, one, onnx_run

from snplan.runtime.numpy import conv as conv_module


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A convolution: shapes of x and w, and attributes."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int = 1

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the op."""
        lists = {"strides": list(self.strides), "pads": list(self.pads), "dilations": list(self.dilations)}
        return {**lists, "group": self.group}


CASES = {
    "plain_1x1": Case(x=(2, 6, 5, 4), w=(8, 6, 1, 1), strides=(1, 1), pads=(0,) * 4, dilations=(1, 1)),
    "strided_1x1": Case(x=(2, 6, 7, 8), w=(4, 6, 1, 1), strides=(2, 3), pads=(0,) * 4, dilations=(1, 1)),
    "padded_1x1": Case(x=(2, 3, 4, 4), w=(4, 3, 1, 1), strides=(1, 1), pads=(1, 0, 0, 2), dilations=(1, 1)),
    "3x3_same": Case(x=(3, 4, 9, 7), w=(5, 4, 3, 3), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1)),
    "7x7_stride_2": Case(x=(2, 3, 23, 20), w=(4, 3, 7, 7), strides=(2, 2), pads=(3,) * 4, dilations=(1, 1)),
    "asymmetric": Case(x=(2, 3, 8, 9), w=(4, 3, 3, 2), strides=(2, 1), pads=(0, 1, 2, 0), dilations=(1, 1)),
    "dilated": Case(x=(2, 3, 12, 11), w=(4, 3, 3, 3), strides=(1, 2), pads=(2, 1, 2, 1), dilations=(2, 3)),
    "grouped": Case(x=(2, 6, 7, 7), w=(9, 2, 3, 3), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), group=3),
    "grouped_1x1": Case(x=(2, 6, 5, 5), w=(4, 3, 1, 1), strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), group=2),
    "depthwise": Case(x=(2, 5, 8, 8), w=(5, 1, 3, 3), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), group=5),
    "depthwise_times_3": Case(
        x=(2, 4, 8, 9), w=(12, 1, 3, 3), strides=(2, 2), pads=(1, 0, 1, 1), dilations=(1, 2), group=4
    ),
    "one_dimension": Case(x=(2, 3, 20), w=(4, 3, 5), strides=(3,), pads=(2, 1), dilations=(2,)),
    "one_dimension_depthwise": Case(x=(2, 3, 11), w=(3, 1, 4), strides=(1,), pads=(3, 0), dilations=(1,), group=3),
    "three_dimensions": Case(
        x=(2, 2, 6, 7, 5), w=(3, 2, 3, 2, 3), strides=(1, 2, 1), pads=(1, 0, 1, 1, 1, 0), dilations=(1, 1, 2)
    ),
    "unread_tail": Case(x=(1, 2, 8, 8), w=(2, 2, 3, 3), strides=(3, 3), pads=(0,) * 4, dilations=(1, 1)),
    "one_channel_one_group": Case(x=(2, 1, 6, 6), w=(3, 1, 3, 3), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1)),
}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@every_case
@pytest.mark.parametrize("bias", [False, True])
def test_conv_is_onnxruntimes(case: Case, bias: bool) -> None:
    inputs = [normal(*case.x), normal(*case.w, seed=1)] + [normal(case.w[0], seed=2)] * bias
    (expected,) = onnx_run("Conv", inputs, **case.attrs)
    close(one("conv", inputs, case.attrs), expected)


@every_case
def test_gradients_are_adjoints(case: Case) -> None:
    x, w = normal(*case.x, dtype=np.float64), normal(*case.w, seed=1, dtype=np.float64)
    y = one("conv", [x, w], case.attrs)
    dy = normal(*y.shape, seed=2, dtype=np.float64)
    dx = one("conv_transpose", [dy, w], {**case.attrs, "shape": list(case.x)})
    dw = one("conv_filter", [x, dy], {**case.attrs, "shape": list(case.w)})
    np.testing.assert_allclose(np.vdot(x, dx), np.vdot(y, dy), rtol=1e-12)
    np.testing.assert_allclose(np.vdot(w, dw), np.vdot(y, dy), rtol=1e-12)


@every_case
def test_gradients_in_float32_are_those_in_float64(case: Case) -> None:
    x, w = normal(*case.x), normal(*case.w, seed=1)
    dy = normal(*one("conv", [x, w], case.attrs).shape, seed=2)
    for kind, inputs, shape in (("conv_transpose", [dy, w], case.x), ("conv_filter", [x, dy], case.w)):
        attrs = {**case.attrs, "shape": list(shape)}
        exact = one(kind, [a.astype(np.float64) for a in inputs], attrs)
        close(one(kind, inputs, attrs), exact, 1e-6)


@pytest.mark.parametrize(("channels", "group"), [(4, 1), (4, 4)])
def test_no_window_fits_into_an_axis_without_elements(channels: int, group: int) -> None:
    x, w = np.zeros((2, channels, 0, 5), np.float32), normal(8, channels // group, 3, 2)
    attrs = {"strides": [2, 2], "pads": [0] * 4, "dilations": [2, 1], "group": group}
    y = one("conv", [x, w], attrs)
    assert y.shape == (2, 8, 0, 2)
    assert one("conv_transpose", [y, w], {**attrs, "shape": list(x.shape)}).shape == x.shape
    np.testing.assert_array_equal(one("conv_filter", [x, y], {**attrs, "shape": list(w.shape)}), np.zeros_like(w))


@pytest.mark.parametrize("name", ["3x3_same", "grouped", "7x7_stride_2", "strided_1x1"])
def test_conv_transpose_is_onnx_conv_transpose(name: str) -> None:
    case = CASES[name]
    y = one("conv", [normal(*case.x), normal(*case.w)], case.attrs)
    x, w = normal(*y.shape, seed=3), normal(*case.w, seed=4)
    whole = [
        s * (n - 1) + k - b - e
        for s, n, k, b, e in zip(case.strides, y.shape[2:], case.w[2:], case.pads[:2], case.pads[2:], strict=True)
    ]
    padding = [n - m for n, m in zip(case.x[2:], whole, strict=True)]
    (expected,) = onnx_run("ConvTranspose", [x, w], **case.attrs, output_padding=padding)
    close(one("conv_transpose", [x, w], {**case.attrs, "shape": list(case.x)}), expected)


@pytest.mark.parametrize("name", ["3x3_same", "grouped", "plain_1x1", "depthwise"])
@pytest.mark.parametrize("images", [1, 2])
def test_images_taken_in_parts_give_the_same_result(name: str, images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    x, w = normal(*case.x), normal(*case.w, seed=1)
    y = one("conv", [x, w], case.attrs)
    dy = normal(*y.shape, seed=2)
    calls = {
        "conv": ([x, w], case.attrs),
        "conv_transpose": ([dy, w], {**case.attrs, "shape": list(case.x)}),
        "conv_filter": ([x, dy], {**case.attrs, "shape": list(case.w)}),
    }
    whole = {kind: one(kind, *call) for kind, call in calls.items()}
    one_image = x[0].size * int(np.prod(case.w[2:])) * 4
    monkeypatch.setattr(conv_module, "_COLUMN_BYTES", one_image * images)
    for kind, call in calls.items():
        close(one(kind, *call), whole[kind], 1e-6)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16])
def test_half_precision_sums_in_float32(dtype: Any) -> None:
    # 1 + 4096 x 2^-12 loses every small term in 16 bits; float32 sums give exactly 2.
    x = np.concatenate([np.ones(1), np.full(4096, 2.0**-12)]).astype(dtype).reshape(1, -1, 1, 1)
    attrs = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1}
    y = one("conv", [x, np.ones((1, 4097, 1, 1), dtype)], attrs)
    assert y.dtype == dtype
    assert float(y.reshape(-1)[0]) == 2.0


def test_no_images_and_no_channels() -> None:
    attrs = {"strides": [1, 1], "pads": [1] * 4, "dilations": [1, 1], "group": 1}
    assert one("conv", [normal(0, 3, 4, 4), normal(2, 3, 3, 3)], attrs).shape == (0, 2, 4, 4)
    dw = one("conv_filter", [normal(0, 3, 4, 4), normal(0, 2, 4, 4)], {**attrs, "shape": [2, 3, 3, 3]})
    np.testing.assert_array_equal(dw, np.zeros((2, 3, 3, 3)))
