"""Every lowering against onnxruntime: one node, random data, all the forms that matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from frontend_support import BOOL, INT64, assert_same_as_ort, imported, info, ints, kinds, model, node, run, tensor
from onnx import ModelProto, TensorProto

Case = tuple[str, Sequence[Sequence[int]], dict[str, Any], Sequence[TensorProto], int]
"""Operator, shapes of the float inputs, attributes, stored inputs after them, opset."""

SAME = "SAME_UPPER"
X4 = (2, 3, 7, 6)


def case(
    op: str, *shapes: Sequence[int], stored: Sequence[TensorProto] = (), opset: int = 17, **attributes: Any
) -> Case:
    """One case."""
    return op, shapes, attributes, stored, opset


def conv_weight(*shape: int) -> TensorProto:
    """A filter."""
    return tensor("w", np.random.default_rng(5).standard_normal(shape) / 3)


CASES = [
    *(case(op, (3, 4)) for op in ("Relu", "Tanh", "Sigmoid", "Exp", "Abs", "Neg", "Sign", "Floor", "Ceil", "Round")),
    *(case(op, (3, 4)) for op in ("Erf", "Softplus", "Softsign", "Sin", "Cos", "Tan", "Atan", "Sinh", "Asinh")),
    *(case(op, (3, 4)) for op in ("LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "ThresholdedRelu")),
    case("Mish", (3, 4), opset=18),
    case("Shrink", (3, 4), bias=0.1, lambd=0.3),
    case("Gelu", (3, 4), opset=20),
    case("Gelu", (3, 4), opset=20, approximate="tanh"),
    case("LeakyRelu", (3, 4), alpha=0.3),
    case("Clip", (3, 4), stored=[tensor("lo", -0.2), tensor("hi", 0.6)]),
    case("Add", (3, 4), (4,)),
    case("Sub", (3, 1), (1, 4)),
    case("Mul", (3, 4), stored=[tensor("s", 2.5)]),
    case("Div", (3, 4), stored=[tensor("s", [2.5])]),
    case("Pow", (3, 4), stored=[tensor("e", 3.0)]),
    case("Pow", (3, 4), stored=[tensor("e", 2, np.int64)]),
    case("Pow", (3, 4), stored=[tensor("e", [1, 2, 3, 0], np.int32)]),
    case("Mod", (3, 4), (3, 4), fmod=1),
    case("Sum", (3, 4), (4,), (3, 1)),
    case("Mean", (3, 4), (4,), (3, 1)),
    case("Max", (3, 4), (4,), (1,)),
    case("Min", (3, 4)),
    case("PRelu", (2, 3, 4), stored=[tensor("slope", [[0.1], [0.2], [0.3]])]),
    *(case(op, (3, 4)) for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1")),
    *(case(op, (2, 3, 4), axes=[0, 2], keepdims=0) for op in ("ReduceL2", "ReduceLogSumExp", "ReduceSumSquare")),
    case("ReduceMean", (2, 3, 4), stored=[ints("axes", -1)], opset=18),
    case("ReduceSum", (2, 3), stored=[ints("axes")], noop_with_empty_axes=1),
    case("ReduceMax", (2, 1, 3), axes=[1], keepdims=0),
    case("CumSum", (3, 4), stored=[tensor("axis", 1, np.int64)], exclusive=1),
    case("CumSum", (3, 4), stored=[tensor("axis", -2, np.int32)], reverse=1),
    case("Transpose", (2, 3, 4)),
    case("Transpose", (1, 3, 1, 4), perm=[1, 0, 3, 2]),
    case("Concat", (2, 3), (2, 2), axis=-1),
    case("Slice", (5, 6), stored=[ints("s", 4, 1), ints("e", -100, 5), ints("a", 0, 1), ints("t", -2, 2)]),
    case("Slice", (5, 6), stored=[ints("s", -3), ints("e", 1 << 62)]),
    *(case("Pad", (3, 4), stored=[ints("p", 1, 2, 0, 1)], mode=mode) for mode in ("constant", "reflect", "edge")),
    case("Pad", (3, 4), stored=[ints("p", 1, 2), tensor("v", 1.5), ints("a", 1)], opset=18),
    case("Pad", (3, 4), stored=[ints("p", -1, 1, 0, -1)]),
    case("Expand", (3, 1), stored=[ints("s", 2, 1, 4)]),
    case("Tile", (2, 3), stored=[ints("r", 2, 3)]),
    case("Tile", (1, 3), stored=[ints("r", 4, 1)]),
    case("Flatten", (2, 3, 4), axis=-1),
    case("Flatten", (2, 3, 4), axis=0),
    case("DepthToSpace", (1, 8, 2, 3), blocksize=2),
    case("DepthToSpace", (1, 8, 2, 3), blocksize=2, mode="CRD"),
    case("SpaceToDepth", (1, 2, 4, 6), blocksize=2),
    case("Trilu", (3, 4), upper=0),
    case("Trilu", (3, 4), stored=[tensor("k", 1, np.int64)]),
    case("Gather", (3, 4), stored=[tensor("i", [[0, -1], [2, 0]], np.int64)], axis=0),
    case("Gather", (3, 4), stored=[tensor("i", -2, np.int64)], axis=1),
    case("GatherElements", (3, 4), stored=[tensor("i", [[0, -1, 2, 0]], np.int64)], axis=0),
    case("GatherND", (3, 4), stored=[tensor("i", [[0, 1], [2, -1]], np.int64)]),
    case("GatherND", (2, 3, 4), stored=[tensor("i", [[1], [2]], np.int64)], batch_dims=1),
    case("MatMul", (4,), (4,)),
    case("MatMul", (4,), (4, 3)),
    case("MatMul", (2, 3, 4), (4,)),
    case("MatMul", (2, 3, 4), (4, 5)),
    case("MatMul", (3, 4), (2, 4, 5)),
    case("MatMul", (5, 1, 3, 4), (2, 4, 2)),
    case("MatMul", (4,), (2, 4, 5)),
    case("Gemm", (3, 4), (4, 5), (5,)),
    case("Gemm", (4, 3), (5, 4), (3, 1), transA=1, transB=1, alpha=0.5, beta=2.0),
    case("Gemm", (3, 4), (4, 5), (3, 5), beta=0.0),
    case("Einsum", (2, 3), (3, 4), equation="ij,jk->ik"),
    case("Einsum", (2, 5, 3), (2, 4, 3), equation="bid, bjd -> bij"),
    case("Einsum", (2, 5, 3), (2, 5, 4), equation="bki,bkj->bij"),
    case("Einsum", (2, 3, 4, 5), equation="abcd->dacb"),
    case("Einsum", (2, 3, 4), equation="abc->b"),
    case("Einsum", (3,), (4,), equation="i,j->ij"),
    case("Einsum", (2, 6, 3), (2, 6, 3), equation="...ab,...ab->...a"),
    case("Einsum", (2, 3), (3, 4), (4, 5), equation="ij,jk,kl->il"),
    case("Einsum", (3, 4), (4, 2), equation="ij,jk"),
    case("Einsum", (2, 4, 3), (5, 6, 3), equation="bij,hwj->bhwi"),
    case("Conv", X4, stored=[conv_weight(4, 3, 3, 3), tensor("b", np.arange(4))], pads=[1, 0, 2, 1], strides=[2, 1]),
    case("Conv", (1, 4, 9, 9), stored=[conv_weight(8, 2, 3, 3)], group=2, dilations=[2, 3]),
    case("Conv", (1, 2, 9), stored=[conv_weight(3, 2, 4)], auto_pad=SAME, strides=[2]),
    case("Conv", (1, 2, 9), stored=[conv_weight(3, 2, 4)], auto_pad="SAME_LOWER", strides=[2]),
    case("Conv", (1, 2, 9), stored=[conv_weight(3, 2, 4)], auto_pad="VALID"),
    case("Conv", (1, 2, 4, 5, 6), stored=[conv_weight(3, 2, 2, 3, 2)], pads=[1, 1, 1, 0, 0, 1]),
    case("ConvTranspose", (1, 3, 4, 5), stored=[conv_weight(3, 2, 3, 3), tensor("b", [1, 2])], strides=[2, 3]),
    case(
        "ConvTranspose", (1, 4, 4), stored=[conv_weight(4, 3, 5)], strides=[3], pads=[2, 1], output_padding=[1], group=2
    ),
    case("ConvTranspose", (1, 3, 4, 5), stored=[conv_weight(3, 2, 3, 3)], strides=[2, 2], output_shape=[8, 10]),
    case("ConvTranspose", (1, 3, 4, 5), stored=[conv_weight(3, 2, 3, 3)], strides=[2, 2], auto_pad=SAME),
    case("ConvTranspose", (1, 3, 4, 5), stored=[conv_weight(3, 2, 3, 3)], dilations=[2, 1]),
    case("MaxPool", X4, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    case("MaxPool", X4, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("MaxPool", X4, kernel_shape=[2, 2], dilations=[2, 3]),
    case("MaxPool", X4, kernel_shape=[2, 3], strides=[2, 2], auto_pad=SAME),
    case("AveragePool", X4, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    case("AveragePool", X4, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], count_include_pad=1),
    case("AveragePool", X4, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, opset=19),
    case("AveragePool", (1, 2, 9), kernel_shape=[3], dilations=[2], opset=19),
    case("LpPool", X4, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0]),
    *(case(op, X4) for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")),
    case("BatchNormalization", X4, stored=[tensor(n, [1, 2, 3]) for n in "sbmv"], epsilon=0.01),
    case("LayerNormalization", (2, 3, 4), stored=[tensor("s", [1, 2, 3, 4]), tensor("b", [0, 1, 0, 1])]),
    case("LayerNormalization", (2, 3, 4), stored=[tensor("s", np.ones((3, 4)))], axis=1),
    case("InstanceNormalization", X4, stored=[tensor("s", [1, 2, 3]), tensor("b", [0, 1, 0])]),
    case("GroupNormalization", (2, 4, 3), stored=[tensor("s", [1, 2]), tensor("b", [0, 1])], num_groups=2, opset=18),
    case("GroupNormalization", (2, 4, 3), stored=[tensor(n, [1, 2, 3, 4]) for n in "sb"], num_groups=2, opset=21),
    case("RMSNormalization", (2, 3, 4), stored=[tensor("s", [1, 2, 3, 4])], opset=23),
    case("LpNormalization", (2, 3, 4), axis=1, p=1),
    case("LpNormalization", (2, 3, 4)),
    case("MeanVarianceNormalization", X4),
    case("LRN", X4, size=3, alpha=0.01, beta=0.6, bias=2.0),
    case("Softmax", (2, 3, 4)),
    case("Softmax", (2, 3, 4), axis=1),
    case("LogSoftmax", (2, 3, 4), opset=11, axis=1),
    case("Softmax", (2, 3, 4), opset=11, axis=-1),
    case("Hardmax", (2, 3, 4), axis=1),
    *(
        case(
            "Resize",
            (1, 2, 4, 5),
            stored=[tensor("roi", []), tensor("sc", [1, 1, 1.7, 2.4])],
            mode=mode,
            coordinate_transformation_mode=place,
        )
        for mode in ("nearest", "linear", "cubic")
        for place in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    ),
    case("Resize", (1, 2, 4, 5), stored=[tensor("roi", []), tensor("sc", []), ints("z", 1, 2, 7, 3)], mode="linear"),
    case("Resize", (1, 2, 4, 5), stored=[tensor("sc", [1, 1, 2, 3])], mode="linear", opset=10),
    case("Upsample", (1, 2, 4, 5), stored=[tensor("sc", [1, 1, 2, 3])], opset=9),
    case("com.microsoft::FusedMatMul", (2, 3, 4), (2, 3, 5), transA=1, alpha=0.5),
    case("com.microsoft::QuickGelu", (3, 4)),
    case("com.microsoft::FastGelu", (3, 4), (4,)),
    case("com.microsoft::BiasGelu", (3, 4), (4,)),
    case(
        "com.microsoft::FusedConv", X4, stored=[conv_weight(4, 3, 3, 3), tensor("b", np.arange(4))], activation="Relu"
    ),
]


def proto_of(given: Case) -> ModelProto:
    """A model of the one node."""
    op, shapes, attributes, stored, opset = given
    domain, _, name = op.rpartition("::")
    inputs = [info(f"x{i}", shape) for i, shape in enumerate(shapes)]
    names = [value.name for value in inputs] + [value.name for value in stored]
    if op == "Resize" and len(stored) == 3:
        names[1] = names[2] = ""
    if op == "Pad" and len(stored) == 1:
        names.append("")
    nodes = [node(name, names, ["y"], "n", **({"domain": domain} if domain else {}), **attributes)]
    kept = [value for value in stored if value.name in names]
    domains = {domain: 1} if domain else {}
    return model(nodes, inputs, ["y"], kept, opset=opset, ir=10, domains=domains)


@pytest.mark.parametrize("given", CASES, ids=lambda given: f"{given[0]}-{given[4]}")
def test_a_node_means_what_onnxruntime_says(given: Case) -> None:
    rng = np.random.default_rng(11)
    feeds = {f"x{i}": rng.standard_normal(shape).astype(np.float32) for i, shape in enumerate(given[1])}
    assert_same_as_ort(proto_of(given), feeds)


@pytest.mark.parametrize("op", ["Sqrt", "Log", "Reciprocal", "Acos", "Asin", "Atanh", "Acosh", "Cosh"])
def test_functions_of_a_narrow_domain(op: str) -> None:
    x = np.linspace(0.05, 0.95, 7, dtype=np.float32) + (op == "Acosh")
    assert_same_as_ort(model([node(op, ["x"], ["y"])], [info("x", [7])], ["y"]), {"x": x})


@pytest.mark.parametrize("op", ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"])
def test_comparisons(op: str) -> None:
    proto = model([node(op, ["a", "b"], ["y"])], [info("a", [2, 3]), info("b", [3])], [info("y", None, BOOL)])
    a = np.array([[1, 2, 3], [3, 2, 1]], np.float32)
    assert_same_as_ort(proto, {"a": a, "b": np.array([2, 2, 2], np.float32)})


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op: str) -> None:
    nodes = [node(op, ["a", "b"], ["h"]), node("Not", ["h"], ["y"])]
    proto = model(nodes, [info("a", [4], BOOL), info("b", [4], BOOL)], [info("y", None, BOOL)])
    assert_same_as_ort(proto, {"a": np.array([1, 1, 0, 0], bool), "b": np.array([1, 0, 1, 0], bool)})


ONE_SIGN: list[tuple[str, dict[str, Any]]] = [
    ("IsNaN", {}),
    ("IsInf", {}),
    ("IsInf", {"detect_negative": 0}),
    ("IsInf", {"detect_positive": 0}),
]


@pytest.mark.parametrize(("op", "attributes"), ONE_SIGN)
def test_tests_for_what_is_no_number(op: str, attributes: dict[str, Any]) -> None:
    proto = model([node(op, ["x"], ["y"], **attributes)], [info("x", [4])], [info("y", None, BOOL)])
    assert_same_as_ort(proto, {"x": np.array([1, np.nan, np.inf, -np.inf], np.float32)})


def test_where_with_minus_infinity() -> None:
    stored = [tensor("low", -np.inf)]
    proto = model([node("Where", ["c", "x", "low"], ["y"])], [info("c", [3], BOOL), info("x", [3])], ["y"], stored)
    assert_same_as_ort(proto, {"c": np.array([1, 0, 1], bool), "x": np.array([1, 2, 3], np.float32)})


def test_integer_arithmetic() -> None:
    nodes = [
        node("Div", ["a", "three"], ["q"]),
        node("Mod", ["a", "three"], ["m"]),
        node("Mul", ["q", "b"], ["p"]),
        node("Sub", ["three", "p"], ["s"]),
        node("Add", ["s", "m"], ["y"]),
    ]
    proto = model(
        nodes, [info("a", [4], INT64), info("b", [4], INT64)], [info("y", None, INT64)], [tensor("three", 3, np.int64)]
    )
    assert_same_as_ort(proto, {"a": np.array([7, -7, 2, -2]), "b": np.array([1, 2, 3, 4])})


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_arg(op: str, last: int) -> None:
    proto = model(
        [node(op, ["x"], ["y"], axis=-1, keepdims=0, select_last_index=last)],
        [info("x", [2, 4])],
        [info("y", None, INT64)],
    )
    assert_same_as_ort(proto, {"x": np.array([[1, 3, 3, 1], [2, 2, 2, 2]], np.float32)})


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(largest: int) -> None:
    proto = model(
        [node("TopK", ["x", "k"], ["v", "i"], axis=0, largest=largest)],
        [info("x", [5, 2])],
        ["v", info("i", None, INT64)],
        [ints("k", 3)],
    )
    assert_same_as_ort(proto, {"x": np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    stored = [tensor("d", 4, np.int64), tensor("v", [0.5, 2.0])]
    proto = model([node("OneHot", ["i", "d", "v"], ["y"], axis=axis)], [info("i", [3], INT64)], ["y"], stored)
    assert_same_as_ort(proto, {"i": np.array([0, -1, 2])})


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter(reduction: str) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    stored = [
        tensor("i", [[0, 1, 2, 0]], np.int64),
        tensor("u", [[5, -6, 7, 8]]),
        tensor("n", [[2], [0]], np.int64),
        tensor("t", np.ones((2, 4))),
    ]
    nodes = [
        node("ScatterElements", ["x", "i", "u"], ["h"], axis=0, reduction=reduction),
        node("ScatterND", ["h", "n", "t"], ["y"], reduction=reduction),
    ]
    assert_same_as_ort(model(nodes, [info("x", [3, 4])], ["y"], stored, opset=18), {"x": x})


def test_split_in_equal_parts_with_a_smaller_last_one() -> None:
    proto = model(
        [node("Split", ["x"], ["a", "b", "c"], num_outputs=3)], [info("x", [8, 2])], ["a", "b", "c"], opset=18
    )
    assert_same_as_ort(proto, {"x": np.arange(16, dtype=np.float32).reshape(8, 2)})


def test_casts() -> None:
    nodes = [
        node("Cast", ["x"], ["i"], to=INT64),
        node("Cast", ["i"], ["b"], to=BOOL),
        node("CastLike", ["b", "x"], ["f"]),
        node("Cast", ["f"], ["y"], to=TensorProto.FLOAT16),
    ]
    proto = model(nodes, [info("x", [3])], [info("y", None, TensorProto.FLOAT16), info("i", None, INT64)])
    assert_same_as_ort(proto, {"x": np.array([-1.7, 0, 2.5], np.float32)})


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses(reduction: str, weighted: bool) -> None:
    rng = np.random.default_rng(2)
    stored = [tensor("w", [0.5, 1, 2])] if weighted else []
    weight = ["w"] if weighted else []
    nodes = [
        node("SoftmaxCrossEntropyLoss", ["x", "t", *weight], ["loss", "log"], reduction=reduction, ignore_index=1),
        node("NegativeLogLikelihoodLoss", ["log", "t", *weight], ["again"], reduction=reduction),
    ]
    proto = model(nodes, [info("x", [4, 3, 2]), info("t", [4, 2], INT64)], ["loss", "log", "again"], stored)
    feeds = {"x": rng.standard_normal((4, 3, 2)).astype(np.float32), "t": rng.integers(0, 3, (4, 2))}
    assert_same_as_ort(proto, feeds)


@pytest.mark.parametrize("axis", [None, 1])
def test_quantize_and_back(axis: int | None) -> None:
    scale, zero = (
        (tensor("s", 0.1), tensor("z", 3, np.int8))
        if axis is None
        else (tensor("s", [0.1, 0.2, 0.3]), tensor("z", [0, 3, -4], np.int8))
    )
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    proto = model(nodes, [info("x", [2, 3, 4])], ["y", info("q", None, TensorProto.INT8)], [scale, zero])
    x = np.random.default_rng(0).uniform(-20, 20, (2, 3, 4)).astype(np.float32)
    assert_same_as_ort(proto, {"x": x})


def test_attention_of_the_standard_is_expanded() -> None:
    nodes = [node("Attention", ["q", "k", "v"], ["y"], q_num_heads=4, kv_num_heads=2, is_causal=1)]
    inputs = [info("q", [2, 5, 32]), info("k", [2, 5, 16]), info("v", [2, 5, 16])]
    rng = np.random.default_rng(4)
    feeds = {
        name: rng.standard_normal((2, 5, size)).astype(np.float32) for name, size in (("q", 32), ("k", 16), ("v", 16))
    }
    assert_same_as_ort(model(nodes, inputs, ["y"], opset=23, ir=11), feeds)


def test_rotary_embedding_of_the_standard_is_expanded() -> None:
    rng = np.random.default_rng(4)
    stored = [tensor("cos", rng.random((8, 4))), tensor("sin", rng.random((8, 4)))]
    nodes = [node("RotaryEmbedding", ["x", "cos", "sin", "p"], ["y"])]
    proto = model(nodes, [info("x", [2, 3, 5, 8]), info("p", [2, 5], INT64)], ["y"], stored, opset=23, ir=11)
    feeds = {"x": rng.standard_normal((2, 3, 5, 8)).astype(np.float32), "p": np.tile(np.arange(5), (2, 1))}
    assert_same_as_ort(proto, feeds)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_recurrent_nodes_are_unrolled(op: str, lengths: bool, direction: str) -> None:
    rng = np.random.default_rng(6)
    gates, ways, hidden, steps, batch, size = (
        {"RNN": 1, "GRU": 3, "LSTM": 4}[op],
        1 + (direction == "bidirectional"),
        4,
        5,
        3,
        2,
    )
    stored = [
        tensor("w", rng.standard_normal((ways, gates * hidden, size))),
        tensor("r", rng.standard_normal((ways, gates * hidden, hidden))),
        tensor("b", rng.standard_normal((ways, 2 * gates * hidden))),
        tensor("h", rng.standard_normal((ways, batch, hidden))),
    ]
    names = ["x", "w", "r", "b", "n" if lengths else "", "h"]
    outputs = ["y", "yh", "yc"][: 3 if op == "LSTM" else 2]
    more = {"linear_before_reset": 1} if op == "GRU" and direction == "reverse" else {}
    inputs = [info("x", [steps, batch, size])] + ([info("n", [batch], TensorProto.INT32)] if lengths else [])
    proto = model(
        [node(op, names, outputs, "n", hidden_size=hidden, direction=direction, **more)], inputs, outputs, stored
    )
    feeds: dict[str, Any] = {"x": rng.standard_normal((steps, batch, size)).astype(np.float32)}
    if lengths:
        feeds["n"] = np.array([5, 2, 4], np.int32)
    assert_same_as_ort(proto, feeds)


def test_lstm_with_peepholes_and_batch_first_gru() -> None:
    rng = np.random.default_rng(6)
    shapes = {"w": (1, 12, 2), "r": (1, 12, 3), "b": (1, 24), "h": (1, 2, 3), "c": (1, 2, 3), "p": (1, 9)}
    stored = [tensor(name, rng.standard_normal(shape)) for name, shape in shapes.items()]
    names = ["x", "w", "r", "b", "", "h", "c", "p"]
    proto = model([node("LSTM", names, ["y", "yh"], hidden_size=3)], [info("x", [4, 2, 2])], ["y", "yh"], stored)
    assert_same_as_ort(proto, {"x": rng.standard_normal((4, 2, 2)).astype(np.float32)})


def test_softmax_of_half_precision_keeps_its_type() -> None:
    half = TensorProto.FLOAT16
    proto = model([node("Softmax", ["x"], ["y"])], [info("x", [2, 3], half)], [info("y", None, half)])
    assert_same_as_ort(proto, {"x": np.array([[1, 2, 3], [3, 2, 1]], np.float16)}, rtol=2e-3)


def test_an_expand_before_a_broadcasting_op_is_left_out_where_it_changes_nothing() -> None:
    nodes = [
        node("Expand", ["a", "s"], ["e"]),
        node("Add", ["e", "b"], ["h"]),
        node("Mul", ["e", "a"], ["k"]),
        node("Add", ["h", "k"], ["y"]),
    ]
    proto = model(nodes, [info("a", [1, 4]), info("b", [3, 4])], ["y"], [ints("s", 3, 4)])
    forward = imported(proto)
    assert kinds(forward) == ["expand", "add", "mul", "add"]
    assert forward.graph.ops[1].inputs == ("a", "b")
    rng = np.random.default_rng(0)
    assert_same_as_ort(proto, {"a": rng.random((1, 4), np.float32), "b": rng.random((3, 4), np.float32)})


def test_a_transpose_into_a_product_is_a_flag() -> None:
    nodes = [node("Transpose", ["b"], ["t"], perm=[0, 2, 1]), node("MatMul", ["a", "t"], ["y"])]
    proto = model(nodes, [info("a", [2, 3, 4]), info("b", [2, 5, 4])], ["y"])
    forward = imported(proto)
    assert kinds(forward) == ["matmul"]
    assert forward.graph.ops[0].attrs == {"trans_a": False, "trans_b": True, "alpha": 1.0}
    rng = np.random.default_rng(0)
    assert_same_as_ort(proto, {"a": rng.random((2, 3, 4), np.float32), "b": rng.random((2, 5, 4), np.float32)})


def test_a_stack_times_one_matrix_is_one_product() -> None:
    forward = imported(model([node("MatMul", ["a", "b"], ["y"])], [info("a", [2, 3, 4]), info("b", [4, 5])], ["y"]))
    assert kinds(forward) == ["view", "matmul", "view"]
    assert forward.graph.ops[0].attrs["shape"] == [6, 4]


def test_views_of_views_are_one_and_views_to_the_same_shape_are_none() -> None:
    nodes = [
        node("Reshape", ["x", "flat"], ["a"]),
        node("Reshape", ["a", "square"], ["b"]),
        node("Flatten", ["b"], ["c"]),
        node("Relu", ["c"], ["y"]),
    ]
    stored = [ints("flat", -1), ints("square", 4, 3)]
    assert kinds(imported(model(nodes, [info("x", [2, 6])], ["y"], stored))) == ["view", "relu"]
    assert kinds(imported(model(nodes, [info("x", [4, 3])], ["y"], stored))) == ["relu"]


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_infinities_of_half_types(dtype: int) -> None:
    nodes = [
        node("Cast", ["x"], ["h"], to=dtype),
        node("CastLike", ["low", "h"], ["l"]),
        node("Where", ["c", "h", "l"], ["k"]),
    ]
    nodes.append(node("Cast", ["k"], ["y"], to=TensorProto.FLOAT))
    nodes.insert(0, node("Constant", [], ["low"], value=tensor("", [-np.inf, np.inf, 1])))
    proto = model(nodes, [info("x", [3]), info("c", [3], BOOL)], ["y"], opset=19)
    feeds = {"x": np.ones(3, np.float32), "c": np.array([False, False, True])}
    assert run(proto, feeds)["y"].tolist() == [-np.inf, np.inf, 1]


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_grid_sample(mode: str, padding: str, align: int) -> None:
    nodes = [node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=align)]
    proto = model(nodes, [info("x", [2, 3, 5, 7]), info("g", [2, 4, 6, 2])], ["y"], opset=20)
    rng = np.random.default_rng(8)
    feeds = {
        "x": rng.standard_normal((2, 3, 5, 7)).astype(np.float32),
        "g": rng.uniform(-1.8, 1.8, (2, 4, 6, 2)).astype(np.float32),
    }
    assert_same_as_ort(proto, feeds)


@pytest.mark.parametrize("place", ["half_pixel", "output_half_pixel"])
def test_roi_align(place: str) -> None:
    attributes: dict[str, Any] = {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.5}
    nodes = [node("RoiAlign", ["x", "r", "b"], ["y"], coordinate_transformation_mode=place, **attributes)]
    inputs = [info("x", [2, 3, 9, 8]), info("r", [4, 4]), info("b", [4], INT64)]
    rois = [[0, 0, 10, 12], [2, 3, 9, 17], [-5, -4, 30, 40], [4, 4, 4.5, 4.2]]
    feeds = {
        "x": np.random.default_rng(8).standard_normal((2, 3, 9, 8)).astype(np.float32),
        "r": np.array(rois, np.float32),
        "b": np.array([0, 1, 0, 1]),
    }
    assert_same_as_ort(model(nodes, inputs, ["y"], opset=16), feeds)


@pytest.mark.parametrize(("shape", "axis", "length"), [((2, 7, 1), 1, 7), ((2, 5, 3, 2), 1, 8), ((1, 9, 1), 1, 4)])
@pytest.mark.parametrize("kind", ["plain", "onesided", "inverse"])
def test_dft(shape: tuple[int, ...], axis: int, length: int, kind: str) -> None:
    if kind == "onesided" and shape[-1] == 2:
        pytest.skip("a complex signal has two sides")
    attributes: dict[str, Any] = {} if kind == "plain" else {kind: 1}
    proto = model(
        [node("DFT", ["x", "n"], ["y"], axis=axis, **attributes)],
        [info("x", shape)],
        ["y"],
        [tensor("n", length, np.int64)],
    )
    x = np.random.default_rng(9).standard_normal(shape).astype(np.float32)
    complex_x = x[..., 0] + 1j * (x[..., 1] if shape[-1] == 2 else 0)
    turned = (np.fft.ifft if kind == "inverse" else np.fft.fft)(complex_x, length, axis)
    if kind == "onesided":
        turned = np.take(turned, range(length // 2 + 1), axis)
    np.testing.assert_allclose(
        run(proto, {"x": x})["y"], np.stack([turned.real, turned.imag], -1), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(onesided: int) -> None:
    window = np.hanning(8)
    nodes = [node("STFT", ["x", "step", "w"], ["y"], onesided=onesided)]
    proto = model(nodes, [info("x", [2, 30, 1])], ["y"], [tensor("step", 3, np.int64), tensor("w", window)])
    assert_same_as_ort(proto, {"x": np.random.default_rng(9).standard_normal((2, 30, 1)).astype(np.float32)})


@pytest.mark.parametrize("p", [1, 2])
def test_a_row_of_norm_zero_stays_zero(p: int) -> None:
    proto = model([node("LpNormalization", ["x"], ["y"], axis=1, p=p)], [info("x", [2, 2])], ["y"])
    assert_same_as_ort(proto, {"x": np.array([[0, 0], [3, -4]], np.float32)})
