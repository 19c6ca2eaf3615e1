"""Shape rules against the kernels' results, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import broadcastable_shapes, mutually_broadcastable_shapes
from op_cases import Case, differentiable_cases, flat_cases, ids, values
from step_support import spec_of

from snplan.ir import DType, Spec
from snplan.ops import KINDS, ShapeError, infer
from snplan.ops.shapes import broadcast, broadcasts_to
from snplan.runtime.numpy import KERNELS, Context

BOOLS = values(2, 3) > 0
CASES = [
    *differentiable_cases(),
    *flat_cases(),
    Case(kind="not", inputs=(BOOLS,)),
    Case(kind="is_nan", inputs=(values(2, 3),)),
    Case(kind="is_inf", inputs=(values(2, 3).astype(np.float16),)),
    *(Case(kind=kind, inputs=(BOOLS, BOOLS[:1])) for kind in ("and", "or", "xor", "equal")),
    *(
        Case(kind=kind, inputs=(ids(2, 1, below=9), ids(3, below=9)))
        for kind in ("less", "less_equal", "greater", "greater_equal", "equal", "add", "mod", "div")
    ),
    *(Case(kind=kind, inputs=(values(2, 3),), attrs={"scalar": 0.5}) for kind in ("less", "greater")),
    *(
        Case(kind=kind, inputs=(values(2, 3),), attrs={"axis": 1, "keepdims": keep, "last": keep})
        for kind in ("arg_max", "arg_min")
        for keep in (True, False)
    ),
    Case(kind="one_hot", inputs=(ids(2, 3, below=4), np.array([0.0, 1.0])), attrs={"axis": 1, "depth": 4}),
    Case(kind="constant", inputs=(), attrs={"dtype": "int64", "shape": [2, 3], "values": [7]}),
    Case(kind="constant", inputs=(), attrs={"dtype": "float32", "shape": [2], "values": [1.5, 2.5]}),
    Case(kind="constant", inputs=(), attrs={"dtype": "float32", "shape": [0, 2], "values": []}),
    Case(kind="range", inputs=(), attrs={"dtype": "int64", "start": 2, "step": -3, "size": 4}),
    Case(kind="cast", inputs=(values(2, 3),), attrs={"to": "bool"}),
    Case(kind="dropout_mask", inputs=(), attrs={"ratio": 0.5, "shape": [4, 4]}, rng=1),
    Case(kind="random_uniform", inputs=(), attrs={"dtype": "float16", "shape": [4], "low": 0.0, "high": 1.0}, rng=1),
    Case(kind="random_normal", inputs=(), attrs={"dtype": "float64", "shape": [], "mean": 0.0, "scale": 1.0}, rng=1),
    Case(kind="batch_norm_update", inputs=tuple(values(3, seed=i) for i in range(4)), attrs={"momentum": 0.9}),
    Case(kind="sgd_update", inputs=(values(3), values(3)), attrs={"lr": 0.1, "weight_decay": 0.0}),
]


@pytest.mark.parametrize("case", [case for case in CASES if case.kind != "view"], ids=str)
def test_rule_gives_what_the_kernel_gives(case: Case) -> None:
    outputs = KERNELS[case.kind]([*case.inputs], case.attrs, Context(stream=case.rng or 0))
    assert list(infer(case.kind, [spec_of(x) for x in case.inputs], case.attrs)) == [spec_of(y) for y in outputs]


HALVES = [case for case in differentiable_cases() if "loss" not in case.kind and "cross" not in case.kind]


@pytest.mark.parametrize("case", [case for case in HALVES if case.kind not in ("view", "cast")], ids=str)
def test_half_precision_follows_the_rule(case: Case) -> None:
    """float16 inputs: results are float16, statistics float32."""
    inputs = [x.astype(np.float16) if x.dtype.kind == "f" else x for x in case.inputs]
    outputs = KERNELS[case.kind](inputs, case.attrs, Context(stream=case.rng or 0))
    assert list(infer(case.kind, [spec_of(x) for x in inputs], case.attrs)) == [spec_of(y) for y in outputs]


def f32(*shape: int) -> Spec:
    return Spec(DType.FLOAT32, shape)


def i64(*shape: int) -> Spec:
    return Spec(DType.INT64, shape)


def boolean(*shape: int) -> Spec:
    return Spec(DType.BOOL, shape)


MATMUL = {"trans_a": False, "trans_b": False, "alpha": 1.0}
CONV: dict[str, Any] = {"strides": [1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1], "group": 1}
POOL = {"kernel": [2, 2], "strides": [2, 2], "pads": [0] * 4, "dilations": [1, 1], "sizes": [2, 2]}
LABELS = {"axis": 1, "reduction": "mean", "ignore_index": None}
EPS = {"epsilon": 1e-5}
SLICE = {"starts": [0], "steps": [1], "sizes": [3]}

REFUSED: list[tuple[str, Sequence[Spec], Mapping[str, Any], str]] = [
    ("relu", [], {}, "takes 1 inputs, got 0"),
    ("relu", [boolean(2)], {}, "real number type, it is bool\\[2\\]"),
    ("exp", [i64(2)], {}, "float64, float32, float16 or bfloat16, it is int64\\[2\\]"),
    ("relu_grad", [f32(2), f32(3)], {}, "saved value and dy must have the same type and shape"),
    ("not", [f32(2)], {}, "must be bool, it is float32"),
    ("add", [f32(2, 3), f32(2)], {}, "shapes \\[2, 3\\] and \\[2\\] do not broadcast"),
    ("add", [f32(2), i64(2)], {}, "one element type, they are float32\\[2\\], int64\\[2\\]"),
    ("add", [f32(2), f32(2)], {"scalar": 1.0}, "takes 1 inputs, got 2"),
    ("and", [f32(2), f32(2)], {}, "must be bool"),
    ("where", [f32(2), f32(2), f32(2)], {}, "the condition must be bool"),
    ("prelu", [f32(2, 3), f32(4)], {}, "slope float32\\[4\\] does not broadcast to x"),
    ("div_grad_b", [f32(4), f32(2, 3), f32(2, 3)], {}, "does not broadcast to dy"),
    ("extremum_grad", [f32(2), f32(2), f32(2)], {"of": "mean"}, "of is 'mean'; it must be one of max, min"),
    ("reduce_sum", [f32(2, 3)], {"axes": [1, 0], "keepdims": False}, "axes \\[1, 0\\] must be ascending"),
    ("reduce_sum", [f32(2, 3)], {"axes": [2], "keepdims": False}, "in range for rank 2"),
    ("reduce_sum", [f32(2, 3)], {"axes": "all"}, "axes must be a list of integers"),
    ("reduce_prod_grad", [f32(2, 3), f32(2)], {"axes": [0], "keepdims": False}, "must be of shape \\[3\\]"),
    ("arg_max", [f32(2, 0)], {"axis": 1}, "axis 1 has no elements"),
    ("cum_sum", [f32(2)], {"axis": -1}, "axis -1 is out of range for rank 1"),
    ("top_k", [f32(2)], {"axis": 0, "k": 3}, "k is 3, but axis 0 has 2 elements"),
    ("constant", [], {"dtype": "float32", "shape": [3], "values": [1, 2]}, "one value or 3"),
    ("constant", [], {"dtype": "float99", "shape": [3], "values": [1]}, "unknown element type 'float99'"),
    ("range", [], {"dtype": "int64", "start": 0, "step": 1, "size": -1}, "size must be 0 or more"),
    ("view", [f32(2, 3)], {"shape": [4]}, "float32\\[2, 3\\] cannot be viewed as \\[4\\]"),
    ("view", [f32(2, 3)], {"shape": [-1, 6]}, "negative size"),
    ("transpose", [f32(2, 3)], {"perm": [0, 0]}, "perm \\[0, 0\\] does not fit"),
    ("concat", [], {"axis": 0}, "at least one input"),
    ("concat", [f32(2, 3), f32(2, 4)], {"axis": 0}, "differ in another axis than 0"),
    ("split", [f32(4)], {"axis": 0, "sizes": [1, 2]}, "do not add up to axis 0"),
    ("slice", [f32(3)], {**SLICE, "starts": [1]}, "3 elements from 1 by 1 do not lie in 3"),
    ("slice", [f32(3, 3)], SLICE, "must have 2 entries"),
    ("slice_grad", [f32(2)], {"starts": [2], "steps": [1], "shape": [3]}, "do not lie in 3"),
    ("pad", [f32(2)], {"before": [-3], "after": [0], "mode": "constant"}, "leaves nothing"),
    ("pad", [f32(2)], {"before": [2], "after": [0], "mode": "reflect"}, "reflect padding by 2 needs more than 2"),
    ("pad", [f32(0)], {"before": [1], "after": [0], "mode": "edge"}, "edge padding"),
    ("pad", [f32(2)], {"before": [2], "after": [0], "mode": "mirror"}, "mode is 'mirror'"),
    ("pad_grad", [f32(3)], {"before": [2], "after": [0], "mode": "constant", "shape": [2]}, "must be of shape \\[4\\]"),
    ("expand", [f32(2)], {"shape": [3]}, "does not broadcast to \\[3\\]"),
    ("tile", [f32(2)], {"repeats": [1, 2]}, "repeats must have 1 entries"),
    ("trilu", [f32(2)], {"k": 0}, "rank 2 or more"),
    ("gather", [f32(2), f32(2)], {"axis": 0}, "indices must be int64 or int32"),
    ("gather_elements", [f32(2, 3), i64(3, 3)], {"axis": 1}, "do not fit \\[2, 3\\] along axis 1"),
    ("gather_nd", [f32(2, 3), i64(1, 3)], {"batch_dims": 0}, "too deep"),
    ("gather_nd", [f32(2, 3), i64(3, 1)], {"batch_dims": 1}, "differ in the batch axes"),
    ("gather_grad", [i64(2), f32(3, 3)], {"axis": 0, "shape": [5, 3]}, "dy must be of shape \\[2, 3\\]"),
    ("scatter_nd", [f32(4), i64(2, 1), f32(3)], {"reduction": "none"}, "updates must be of shape \\[2\\]"),
    ("scatter_elements", [f32(4), i64(2), f32(2)], {"axis": 0, "reduction": "avg"}, "reduction is 'avg'"),
    ("one_hot", [i64(2), f32(3)], {"axis": 0, "depth": 3}, "values must be of shape \\[2\\]"),
    ("resize", [f32(1, 2)], {"mode": "linear", "sizes": [1], "scales": [1.0]}, "sizes must have 2 entries"),
    ("resize", [f32(0)], {"mode": "linear", "sizes": [2], "scales": [2.0]}, "an empty axis cannot grow"),
    ("matmul", [f32(2, 3), f32(4, 5)], MATMUL, "inner sizes 3 of a \\[2, 3\\] and 4 of b \\[4, 5\\] differ"),
    ("matmul", [f32(3), f32(3, 5)], MATMUL, "a must be of rank 2 or more"),
    ("matmul", [f32(2, 3), f32(3, 5), f32(2, 1, 5)], MATMUL, "bias .* does not broadcast to y"),
    ("matmul", [f32(2, 3), f32(3, 5)], {"trans_a": False, "trans_b": False}, "alpha must be a number"),
    ("conv", [f32(1, 3, 4, 4), f32(2, 2, 3, 3)], CONV, "x has 3 channels, w takes 2 x 1 groups"),
    ("conv", [f32(1, 3, 4, 4), f32(2, 3, 5, 5)], CONV, "larger than the padded input"),
    ("conv", [f32(1, 4, 4, 4), f32(3, 2, 3, 3)], {**CONV, "group": 2}, "3 output channels do not divide into 2 groups"),
    ("conv", [f32(1, 3, 4, 4), f32(2, 3, 3, 3), f32(3)], CONV, "bias must be of shape \\[2\\]"),
    ("conv", [f32(1, 3, 4), f32(2, 3, 3, 3)], CONV, "of one rank"),
    ("conv_transpose", [f32(1, 2, 3, 3), f32(2, 3, 3, 3)], {**CONV, "shape": [1, 3, 4, 4]}, "gives \\[1, 2, 2, 2\\]"),
    ("conv_filter", [f32(1, 3, 4, 4), f32(1, 2, 3, 3)], {**CONV, "shape": [2, 3, 3, 3]}, "gives \\[1, 2, 2, 2\\]"),
    ("max_pool", [f32(1, 1, 4)], POOL, "must have 1 entries, pads 2"),
    ("max_pool", [f32(1, 1, 2, 2)], POOL, "starts past the padded end 2"),
    ("average_pool", [f32(1, 1, 4, 4)], {**POOL, "strides": [0, 1]}, "must be positive"),
    ("average_pool_grad", [f32(1, 1, 3, 3)], {**POOL, "shape": [1, 1, 4, 4]}, "dy must be of shape"),
    ("max_pool_grad", [i64(1, 1, 2, 2), f32(1, 1, 2, 2)], {**POOL, "shape": [1, 1, 4, 4]}, "uint8"),
    ("batch_norm_train", [f32(2, 3), f32(2), f32(3)], EPS, "scale must be of shape \\[3\\]"),
    ("batch_norm_train", [f32(2), f32(2), f32(2)], EPS, "rank 2 or more"),
    ("batch_norm_update", [f32(3), f32(3), f32(2), f32(3)], {"momentum": 0.9}, "mean must be of shape \\[3\\]"),
    ("layer_norm", [f32(2, 3), f32(2)], {**EPS, "axis": 1}, "scale must be of shape \\[3\\]"),
    ("layer_norm_grad", [f32(2, 3), f32(2, 1), f32(2), f32(2, 3)], {"axis": 1}, "statistics"),
    ("layer_norm_grad", [f32(2, 3), f32(2, 1), f32(2, 1), f32(2, 3)], {"axis": 1, "has_bias": True}, "has a scale"),
    ("group_norm", [f32(2, 3, 4), f32(3), f32(3)], {**EPS, "groups": 2}, "3 channels do not divide into 2 groups"),
    ("lrn", [f32(2, 3)], {"size": 0, "alpha": 1.0, "beta": 1.0, "bias": 1.0}, "size must be positive"),
    ("softmax", [f32(2)], {"axis": 1}, "axis 1 is out of range for rank 1"),
    ("softmax_cross_entropy", [f32(2, 3), i64(3)], LABELS, "labels must be of shape \\[2\\], it is int64\\[3\\]"),
    ("softmax_cross_entropy", [f32(2, 3), f32(2)], LABELS, "labels must be int64 or int32"),
    ("nll_loss", [f32(2, 3), i64(2), f32(2)], LABELS, "weights must be of shape \\[3\\]"),
    ("softmax_cross_entropy_grad", [f32(2, 3), i64(2), f32(2)], LABELS, "dy and the loss"),
    ("dropout", [f32(2)], {"ratio": 1.0}, "ratio must be in \\[0, 1\\)"),
    ("random_normal", [], {"dtype": "int64", "shape": [2]}, "the result must be float64"),
    ("sgd_update", [f32(2), f32(3)], {"lr": 0.1, "weight_decay": 0.0}, "every input must be of shape \\[2\\]"),
    ("adam_update", [f32(2), f32(2)], {}, "takes 4 inputs, got 2"),
]


@pytest.mark.parametrize(("kind", "specs", "attrs", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused(kind: str, specs: Sequence[Spec], attrs: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(ShapeError, match=f"^{kind}: .*{reason}"):
        infer(kind, specs, attrs)


@given(mutually_broadcastable_shapes(num_shapes=3, max_dims=4, min_side=0, max_side=3))
def test_broadcast_is_numpys(shapes: Any) -> None:
    assert broadcast(*shapes.input_shapes) == shapes.result_shape
    assert all(broadcasts_to(shape, shapes.result_shape) for shape in shapes.input_shapes)


@given(st.lists(st.lists(st.integers(0, 3), max_size=3).map(tuple), min_size=2, max_size=3))
def test_broadcast_refuses_what_numpy_refuses(shapes: list[tuple[int, ...]]) -> None:
    try:
        expected: tuple[int, ...] | None = np.broadcast_shapes(*shapes)
    except ValueError:
        expected = None
    if expected is None:
        with pytest.raises(ShapeError, match="do not broadcast"):
            broadcast(*shapes)
    else:
        assert broadcast(*shapes) == expected


@given(st.lists(st.integers(0, 3), max_size=3).map(tuple), st.data())
def test_broadcasts_to_is_numpys(target: tuple[int, ...], data: st.DataObject) -> None:
    shape = data.draw(broadcastable_shapes(target, max_dims=4, min_side=0))
    assert broadcasts_to(shape, target) == (np.broadcast_shapes(shape, target) == target)


def test_zero_size_tensors() -> None:
    """faults of zero-size arrays: shapes are right, traffic and arithmetic are counted as they are."""
    (spec,) = infer("concat", [f32(0, 4), f32(3, 4)], {"axis": 0})
    assert spec == f32(3, 4)
    assert KINDS["concat"].traffic([f32(0, 4), f32(3, 4)], [spec], {}) == 2 * 48
    assert infer("matmul", [f32(2, 0), f32(0, 3)], MATMUL) == (f32(2, 3),)
    assert infer("conv", [f32(0, 3, 4, 4), f32(2, 3, 3, 3)], CONV) == (f32(0, 2, 2, 2),)


def test_more_than_2_to_the_31_elements() -> None:
    (spec,) = infer("relu", [f32(262144, 8960)], {})
    assert (spec.elements, spec.bytes) == (2_348_810_240, 9_395_240_960)
