"""Values of weights in every form that a file can hold them in."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from frontend_support import FLOAT, imported, info, ints, load, model, node, tensor
from onnx import TensorProto, helper, numpy_helper

from snplan.errors import ModelError
from snplan.frontend import import_model, read_weights
from snplan.frontend.weights import decoded
from snplan.ir import DType, Role, Spec


def stored(*tensors: TensorProto) -> Any:
    """A loaded model with these initializers."""
    return load(model([node("Relu", ["x"], ["y"])], [info("x", [1])], ["y"], tensors))


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (np.float64, [1.5, -2]),
        (np.float32, [1.5, -2]),
        (np.float16, [1.5, -2]),
        (ml_dtypes.bfloat16, [1.5, -2]),
        (ml_dtypes.float8_e4m3fn, [1.5, -2]),
        (ml_dtypes.float8_e5m2, [1.5, -2]),
        (np.int64, [1, -2]),
        (np.int32, [1, -2]),
        (np.int16, [1, -2]),
        (np.int8, [1, -2]),
        (ml_dtypes.int4, [1, -2, 7]),
        (np.uint64, [1, 2]),
        (np.uint8, [1, 250]),
        (ml_dtypes.uint4, [1, 15, 9]),
        (np.bool_, [True, False]),
        (np.complex64, [1 + 2j, -1j]),
    ],
)
@pytest.mark.parametrize("raw", [True, False])
def test_element_types_as_raw_and_as_typed_data(dtype: Any, values: list[Any], raw: bool) -> None:
    array = np.array(values, dtype)
    number = helper.np_dtype_to_tensor_dtype(array.dtype)
    typed = helper.make_tensor("w", number, array.shape, array.tolist())
    proto = numpy_helper.from_array(array, "w") if raw else typed
    found = read_weights(stored(proto), ["w"])["w"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_sizes_of_small_types() -> None:
    proto = model(
        [node("Cast", [n], [f"{n}2"], to=FLOAT) for n in ("a", "b", "c")],
        [info("a", [2], TensorProto.BFLOAT16), info("b", [3], TensorProto.INT4), info("c", [0], TensorProto.INT4)],
        ["a2", "b2", "c2"],
        opset=21,
        ir=10,
    )
    tensors = imported(proto, mode="infer").graph.tensors
    assert [tensors[name].bytes for name in ("a", "b", "c")] == [4, 2, 0]


def test_packed_elements_start_with_the_lower_half() -> None:
    assert decoded(bytes([0x21, 0x0F]), Spec(DType.UINT4, (3,))).tolist() == [1, 2, 15]
    assert decoded(bytes([0xF1, 0x08]), Spec(DType.INT4, (3,))).tolist() == [1, -1, -8]


def light() -> Any:
    """Weights stripped to their shapes: of an initializer, and of a Constant node; and a large Constant."""
    fill = tensor("", [0.5])
    nodes = [
        node("ConstantOfShape", ["w__SHAPE"], ["w"], value=fill),
        node("ConstantOfShape", ["i__SHAPE"], ["i"], value=tensor("", [3], np.int64)),
        node("Constant", [], ["c"], value=tensor("t", np.arange(5000))),
        node("MatMul", ["x", "w"], ["h"]),
        node("Gather", ["h", "i"], ["g"], axis=1),
        node("Add", ["g", "c"], ["y"]),
    ]
    return load(model(nodes, [info("x", [2, 4])], ["y"], [ints("w__SHAPE", 4, 8), ints("i__SHAPE", 5000)]))


def test_stand_ins_are_sources_of_their_own_names() -> None:
    loaded = light()
    forward = import_model(loaded)
    assert forward.inputs == ("x",)
    assert forward.initializers == ("w", "i")
    assert forward.graph.sources == ("x", "w", "i", "c")
    assert {forward.graph.tensors[name].role for name in ("w", "i", "c")} == {Role.CONSTANT}
    found = read_weights(loaded, ["w", "i", "c"])
    np.testing.assert_array_equal(found["w"], np.full((4, 8), 0.5, np.float32))
    np.testing.assert_array_equal(found["i"], np.full(5000, 3, np.int64))
    np.testing.assert_array_equal(found["c"], np.arange(5000, dtype=np.float32))


def test_a_stand_in_without_a_value_is_zero() -> None:
    nodes = [node("ConstantOfShape", ["w__SHAPE"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    loaded = load(model(nodes, [info("x", [2, 4])], ["y"], [ints("w__SHAPE", 4, 8)]))
    assert import_model(loaded).initializers == ("w",)
    np.testing.assert_array_equal(read_weights(loaded, ["w"])["w"], np.zeros((4, 8), np.float32))


def test_a_fill_of_a_computed_shape_is_no_weight() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("ConstantOfShape", ["s"], ["ones"], value=tensor("", [1.0])),
        node("Sub", ["ones", "x"], ["y"]),
    ]
    forward = imported(model(nodes, [info("x", [100, 100])], ["y"]))
    assert forward.initializers == ()
    assert forward.graph.ops[0].attrs == {"dtype": "float32", "shape": [100, 100], "values": [1.0]}


def test_a_name_without_values() -> None:
    with pytest.raises(ModelError) as caught:
        read_weights(stored(), ["gone"])
    assert caught.value.code == "SNP-I021"


def test_data_that_does_not_fit_the_shape() -> None:
    short = TensorProto(name="w", data_type=FLOAT, dims=[3], raw_data=bytes(8))
    for tensor_ in (
        short,
        TensorProto(name="w", data_type=FLOAT, dims=[3], float_data=[1.0]),
        TensorProto(name="w", data_type=FLOAT, dims=[3]),
    ):
        with pytest.raises(ModelError) as caught:
            read_weights(stored(tensor_), ["w"])
        assert caught.value.code == "SNP-I020"
        assert "'w'" in caught.value.message


def test_planning_needs_no_values_at_all() -> None:
    bare = TensorProto(name="w", data_type=FLOAT, dims=[4, 8])
    proto = model([node("MatMul", ["x", "w"], ["y"])], [info("x", [2, 4])], ["y"], [bare])
    assert imported(proto).graph.tensors["w"].bytes == 128


def test_strings_are_refused_where_they_are_needed() -> None:
    text = TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"a"])
    proto = model([node("Relu", ["w"], ["y"])], [], ["y"], [text])
    with pytest.raises(ModelError, match="it holds strings"):
        imported(proto)


def tied(copy: np.ndarray | None) -> Any:
    """A language model's first and last layer: one weight, or with a folded transpose two."""
    table = np.random.default_rng(3).standard_normal((100, 16)).astype(np.float32)
    nodes = [node("Gather", ["table", "x"], ["h"])]
    weights = [tensor("table", table)]
    if copy is None:
        nodes += [node("Transpose", ["table"], ["flat"], perm=[1, 0]), node("MatMul", ["h", "flat"], ["y"])]
    else:
        nodes += [node("MatMul", ["h", "head"], ["y"])]
        weights.append(tensor("head", table.T if copy.size == 0 else copy))
    return imported(model(nodes, [info("x", [2, 5], TensorProto.INT64)], ["y"], weights))


def test_tied_weights_stay_one_and_untied_ones_are_noted() -> None:
    together = tied(None)
    assert together.initializers == ("table",)
    assert [op.kind for op in together.graph.ops] == ["gather", "view", "matmul", "view"]
    assert together.graph.ops[2].attrs["trans_b"] is True
    assert together.warnings == ()
    apart = tied(np.zeros(0))
    assert apart.initializers == ("table", "head")
    assert len(apart.warnings) == 1
    assert "head is table transposed" in apart.warnings[0]
    assert tied(np.ones((16, 100), np.float32)).warnings == ()


def many_tables(count: int, same: bool) -> tuple[str, ...]:
    """The warnings about `count` tables of 3 x 3, each with its transpose and its copy, or all of them `same`."""
    rng = np.random.default_rng(5)
    numbers = rng.standard_normal((count, 3, 3)).astype(np.float32)
    numbers = np.broadcast_to(numbers[:1], numbers.shape) if same else numbers
    nodes, weights = [], []
    for i, table in enumerate(numbers):
        nodes += [node("Gather", [f"table{i}", "x"], [f"g{i}"]), node("MatMul", [f"g{i}", f"flat{i}"], [f"h{i}"])]
        nodes.append(node("MatMul", [f"h{i}", f"copy{i}"], [f"y{i}"]))
        weights += [tensor(f"table{i}", table), tensor(f"flat{i}", table.T), tensor(f"copy{i}", table)]
    nodes.append(node("Sum", [f"y{i}" for i in range(count)], ["y"]))
    return imported(model(nodes, [info("x", [2], TensorProto.INT64)], ["y"], weights)).warnings


def test_many_untied_tables() -> None:
    """Each pair of 4,000 tables and 8,000 matrices compared would be 32 million comparisons of 32 reads."""
    found = many_tables(4000, same=False)
    assert [text.split(":")[0] for text in found[:2]] == ["flat0 is table0 transposed", "copy0 is a copy of table0"]
    assert len(found) == 8000
    assert found[-1].startswith("copy3999 is a copy of table3999: ")


def test_of_equal_tables_the_first_is_named() -> None:
    found = many_tables(3, same=True)
    assert [text.split(":")[0] for text in found] == [
        "flat0 is table0 transposed",
        "copy0 is a copy of table0",
        "flat1 is table0 transposed",
        "copy1 is a copy of table0",
        "flat2 is table0 transposed",
        "copy2 is a copy of table0",
    ]


def test_a_table_that_a_product_reads_too_is_no_copy_of_itself() -> None:
    """The second table is a copy of the first, which is read both ways: one warning, about the first."""
    numbers = np.random.default_rng(6).standard_normal((3, 3)).astype(np.float32)
    nodes = [
        node("Gather", ["a", "x"], ["g"]),
        node("Gather", ["b", "x"], ["h"]),
        node("MatMul", ["g", "a"], ["p"]),
        node("Add", ["p", "h"], ["y"]),
    ]
    weights = [tensor("a", numbers), tensor("b", numbers)]
    found = imported(model(nodes, [info("x", [2], TensorProto.INT64)], ["y"], weights)).warnings
    assert [text.split(":")[0] for text in found] == ["a is a copy of b"]
