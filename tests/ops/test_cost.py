"""Arithmetic and traffic of kinds where neither is "one an element" or "all bytes once", by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from snplan.ir import DType, Spec
from snplan.ops import KINDS, infer


def f32(*shape: int) -> Spec:
    return Spec(DType.FLOAT32, shape)


def i64(*shape: int) -> Spec:
    return Spec(DType.INT64, shape)


MATMUL = {"trans_a": False, "trans_b": False, "alpha": 1.0}
CONV = {"strides": [2, 2], "pads": [3, 3, 3, 3], "dilations": [1, 1], "group": 1}
GROUPED = {"strides": [1], "pads": [1, 1], "dilations": [1], "group": 4}
LABELS = {"axis": 1, "reduction": "mean", "ignore_index": None}
POOL = {"kernel": [3, 3], "strides": [2, 2], "pads": [1] * 4, "dilations": [1, 1], "sizes": [56, 56]}
IMAGE, FILTER, RESULT = (8, 3, 224, 224), (64, 3, 7, 7), (8, 64, 112, 112)
CONV_FLOPS = 2 * 8 * 64 * 112 * 112 * 3 * 49

FLOPS: list[tuple[str, Sequence[Spec], Mapping[str, Any], int]] = [
    ("matmul", [f32(5, 2, 3), f32(3, 7)], MATMUL, 2 * 5 * 2 * 3 * 7),
    ("matmul", [f32(3, 2), f32(3, 7)], {**MATMUL, "trans_a": True}, 2 * 2 * 3 * 7),
    ("matmul", [f32(2, 3), f32(3, 7), f32(7)], MATMUL, 2 * 2 * 3 * 7 + 2 * 7),
    ("conv", [f32(*IMAGE), f32(*FILTER)], CONV, CONV_FLOPS),
    ("conv", [f32(*IMAGE), f32(*FILTER), f32(64)], CONV, CONV_FLOPS + 8 * 64 * 112 * 112),
    ("conv_transpose", [f32(*RESULT), f32(*FILTER)], {**CONV, "shape": [*IMAGE]}, CONV_FLOPS),
    ("conv_filter", [f32(*IMAGE), f32(*RESULT)], {**CONV, "shape": [*FILTER]}, CONV_FLOPS),
    ("conv", [f32(2, 8, 10), f32(4, 2, 3)], GROUPED, 2 * 2 * 4 * 10 * 2 * 3),
    ("max_pool", [f32(1, 64, 112, 112)], POOL, 64 * 56 * 56 * 9),
    ("reduce_sum", [f32(10, 20)], {"axes": [0, 1], "keepdims": False}, 200),
    ("add", [f32(10, 20), f32(20)], {}, 200),
    ("softmax", [f32(10, 20)], {"axis": 1}, 1000),
    ("transpose", [f32(10, 20)], {"perm": [1, 0]}, 0),
    ("sgd_update", [f32(10), f32(10)], {"lr": 0.1, "weight_decay": 0.0}, 40),
    ("nll_loss", [f32(10, 20), i64(10)], LABELS, 10),
    (
        "resize",
        [f32(1, 1, 4, 4)],
        {"mode": "linear", "sizes": [1, 1, 8, 8], "scales": [1.0, 1.0, 2.0, 2.0]},
        2 * 4 * 64,
    ),
]

TRAFFIC: list[tuple[str, Sequence[Spec], Mapping[str, Any], int]] = [
    ("relu", [f32(100)], {}, 800),
    ("constant", [], {"dtype": "float32", "shape": [100], "values": [0]}, 400),
    ("gather", [f32(50000, 64), i64(2, 3)], {"axis": 0}, 48 + 2 * 6 * 64 * 4),
    ("gather_grad", [i64(2, 3), f32(2, 3, 64)], {"axis": 0, "shape": [100, 64]}, 48 + 3 * 6 * 64 * 4 + 100 * 64 * 4),
    ("slice", [f32(1000)], {"starts": [0], "steps": [1], "sizes": [10]}, 80),
    ("nll_loss", [f32(10, 20), i64(10)], LABELS, 80 + 40 + 4),
    ("batch_norm_train", [f32(10, 4), f32(4), f32(4)], {"epsilon": 1e-5}, 3 * 160 + 4 * 16),
    ("adam_update", [f32(100)] * 4, {"lr": 0.1, "beta1": 0.9, "beta2": 0.9, "epsilon": 0.1, "weight_decay": 0}, 2800),
]


@pytest.mark.parametrize(("kind", "specs", "attrs", "expected"), FLOPS, ids=lambda value: str(value)[:30])
def test_flops(kind: str, specs: Sequence[Spec], attrs: Mapping[str, Any], expected: int) -> None:
    assert KINDS[kind].flops(specs, infer(kind, specs, attrs), attrs) == expected


@pytest.mark.parametrize(("kind", "specs", "attrs", "expected"), TRAFFIC, ids=lambda value: str(value)[:30])
def test_traffic(kind: str, specs: Sequence[Spec], attrs: Mapping[str, Any], expected: int) -> None:
    assert KINDS[kind].traffic(specs, infer(kind, specs, attrs), attrs) == expected
