"""Values known at compile time: folded as onnxruntime computes them, within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from frontend_support import BOOL, FLOAT, INT64, evaluate, imported, info, ints, kinds, model, node, ort_run, tensor
from onnx import ModelProto, TensorProto, helper

from snplan.errors import ModelError
from snplan.frontend import import_model, load_model
from snplan.frontend.folding import FOLDS
from snplan.frontend.tensors import MOST_ELEMENTS

INTS, FLOATS, BOOLS = np.int64, np.float32, np.bool_
A = np.array([[7, -7, 3], [-2, 5, 1]])
C = np.array([2, -3, 4])
Given = tuple[Any, Any]
"""Values and their type."""

CASES: list[tuple[str, list[Given], dict[str, Any]]] = [
    *((op, [(A, INTS), (C, INTS)], {}) for op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")),
    *((op, [(A, FLOATS), (C, FLOATS)], {}) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum")),
    *((op, [(A, INTS), (C, INTS)], {}) for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")),
    *((op, [([1, 1, 0, 0], BOOLS), ([1, 0, 1, 0], BOOLS)], {}) for op in ("And", "Or", "Xor")),
    ("Not", [([1, 0], BOOLS)], {}),
    ("Mod", [(A, FLOATS), (C, FLOATS)], {"fmod": 1}),
    *((op, [(A, INTS)], {}) for op in ("Neg", "Abs", "Sign", "Identity", "Transpose", "NonZero")),
    *(
        (op, [([1.5, 2.5, -0.5], FLOATS)], {})
        for op in ("Floor", "Ceil", "Round", "Exp", "Sin", "Cos", "Erf", "Reciprocal")
    ),
    *((op, [([1.5, 2.5, 0.5], FLOATS)], {}) for op in ("Sqrt", "Log")),
    ("Pow", [(A, FLOATS), (2, FLOATS)], {}),
    ("Pow", [(A, INTS), (2, INTS)], {}),
    ("Clip", [(A, INTS), (-1, INTS), (4, INTS)], {}),
    ("Cast", [([1.7, -1.7], FLOATS)], {"to": INT64}),
    ("Cast", [([0, 3], INTS)], {"to": BOOL}),
    ("CastLike", [(A, INTS), (1, FLOATS)], {}),
    ("Where", [([1, 0, 1], BOOLS), (A, INTS), (C, INTS)], {}),
    *((op, [(A, INTS)], {"axes": [1], "keepdims": 0}) for op in ("ReduceMax", "ReduceMin", "ReduceProd")),
    ("ReduceSum", [(A, INTS), ([0], INTS)], {}),
    ("ReduceSum", [(A, INTS)], {}),
    ("ReduceMean", [(A, FLOATS)], {"axes": [-1]}),
    ("ArgMax", [(A, INTS)], {"axis": 1}),
    ("ArgMin", [(A, FLOATS)], {"keepdims": 0}),
    ("CumSum", [(A, INTS), (1, INTS)], {}),
    ("Concat", [(A, INTS), (A, INTS)], {"axis": -1}),
    ("ConstantOfShape", [([2, 3], INTS)], {"value": tensor("", [4], np.int64)}),
    ("Expand", [(C, INTS), ([2, 1], INTS)], {}),
    ("Flatten", [(A, INTS)], {"axis": 0}),
    ("Gather", [(A, INTS), ([[1, -2]], INTS)], {"axis": 0}),
    ("Gather", [(C, INTS), (-1, INTS)], {}),
    ("GatherElements", [(A, INTS), ([[0, -1, 1]], INTS)], {"axis": 0}),
    ("GatherND", [(A, INTS), ([[1, 2], [0, -1]], INTS)], {}),
    ("OneHot", [([0, -1, 2], INTS), (4, INTS), ([5, 9], INTS)], {"axis": 0}),
    ("OneHot", [([0, 7], INTS), (4, INTS), ([5.0, 9.0], FLOATS)], {}),
    ("Range", [(2, INTS), (11, INTS), (3, INTS)], {}),
    ("Range", [(3.0, FLOATS), (0.0, FLOATS), (-0.5, FLOATS)], {}),
    ("Reshape", [(A, INTS), ([3, -1], INTS)], {}),
    ("ScatterElements", [(A, INTS), ([[1, 0, -1]], INTS), ([[50, 60, 70]], INTS)], {"axis": 0}),
    ("ScatterND", [(A, INTS), ([[1]], INTS), ([[8, 8, 8]], INTS)], {}),
    ("Slice", [(A, INTS), ([-1], INTS), ([-9], INTS), ([1], INTS), ([-2], INTS)], {}),
    ("Slice", [(C, INTS), ([1], INTS), ([100], INTS)], {}),
    ("Split", [(A, INTS), ([1, 2], INTS)], {"axis": 1}),
    ("Squeeze", [([[7]], INTS)], {}),
    ("Unsqueeze", [(C, INTS), ([0, -1], INTS)], {}),
    ("Tile", [(A, INTS), ([2, 1], INTS)], {}),
    ("Trilu", [(A, INTS), (1, INTS)], {"upper": 0}),
    ("Trilu", [(A, INTS)], {}),
]


def constant(name: str, values: Any, dtype: Any) -> Any:
    """A Constant node."""
    return node("Constant", [], [name], value=tensor("", values, dtype))


def constant_model(op: str, given: Sequence[Given], attributes: dict[str, Any]) -> ModelProto:
    """The operator on Constant nodes alone."""
    names = [f"c{i}" for i in range(len(given))]
    outputs = ["y", "z"] if op == "Split" else ["y"]
    nodes = [constant(name, *value) for name, value in zip(names, given, strict=True)]
    nodes.append(node(op, names, outputs, "n", **attributes))
    return model(nodes, [], outputs)


@pytest.mark.parametrize(("op", "given", "attributes"), CASES)
def test_a_node_of_constants_folds_to_what_onnxruntime_computes(
    op: str, given: list[Given], attributes: dict[str, Any]
) -> None:
    proto = constant_model(op, given, attributes)
    forward = import_model(
        load_model(proto.SerializeToString()), mode="infer", targets=[o.name for o in proto.graph.output]
    )
    assert set(kinds(forward)) == {"constant"}
    for output in proto.graph.output:
        dtype = helper.np_dtype_to_tensor_dtype(np.dtype(forward.graph.tensors[output.name].dtype.value))
        output.type.tensor_type.elem_type = dtype
    wanted = ort_run(proto, {})
    found = evaluate(forward, {})
    for name, values in wanted.items():
        assert found[name].shape == values.shape
        np.testing.assert_allclose(found[name], values, rtol=1e-6)


def test_every_evaluator_is_tested() -> None:
    assert set(FOLDS) == {op for op, _, _ in CASES}


@pytest.mark.parametrize(
    ("op", "given", "attributes"),
    [
        ("Expand", [(1, INTS), ([5000], INTS)], {}),
        ("Tile", [([1], INTS), ([5000], INTS)], {}),
        ("Range", [(0, INTS), (5000, INTS), (1, INTS)], {}),
        ("Add", [(np.ones((100, 1)), INTS), (np.ones((1, 100)), INTS)], {}),
        ("ConstantOfShape", [([5000], INTS)], {}),
        ("Gather", [(np.arange(100).reshape(1, 100), INTS), (np.zeros(100), INTS)], {"axis": 0}),
        ("OneHot", [(np.arange(100), INTS), (100, INTS), ([0, 1], INTS)], {}),
        ("Concat", [(np.arange(4000), INTS), (np.arange(4000), INTS)], {"axis": 0}),
    ],
)
def test_large_results_stay_ops_so_that_plans_stay_small(
    op: str, given: list[Given], attributes: dict[str, Any]
) -> None:
    forward = import_model(load_model(constant_model(op, given, attributes).SerializeToString()), targets=["y"])
    assert forward.graph.tensors["y"].spec.elements > MOST_ELEMENTS
    for each in forward.graph.ops:
        listed = each.attrs.get("values")
        assert listed is None or (isinstance(listed, list) and len(listed) <= MOST_ELEMENTS)


def test_a_fill_of_gigabytes_takes_no_memory() -> None:
    proto = constant_model("ConstantOfShape", [([1 << 20, 1 << 12], INTS)], {})
    forward = import_model(load_model(proto.SerializeToString()), targets=["y"])
    assert forward.graph.tensors["y"].bytes == 1 << 34


def test_values_of_parameters_serve_shapes_but_are_never_baked_in() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Cast", ["s"], ["f"], to=FLOAT),
        node("Mul", ["f", "factor"], ["g"]),
        node("Floor", ["g"], ["h"]),
        node("Cast", ["h"], ["sizes"], to=INT64),
        node("Resize", ["x", "", "", "sizes"], ["r"], mode="nearest"),
        node("Mul", ["r", "factor"], ["y"]),
    ]
    forward = imported(model(nodes, [info("x", [1, 1, 2, 2])], ["y"], [tensor("factor", [1.0, 1.0, 2.0, 2.0])]))
    assert kinds(forward) == ["resize", "mul"]
    assert forward.graph.ops[1].inputs[1] == "factor"
    assert forward.graph.tensors["y"].shape == (1, 1, 4, 4)


def test_a_chain_of_parameters_is_lowered_as_it_is() -> None:
    nodes = [node("Exp", ["w"], ["e"]), node("Mul", ["x", "e"], ["y"])]
    assert kinds(imported(model(nodes, [info("x", [3])], ["y"], [tensor("w", [1.0])]))) == ["exp", "mul"]


def test_scalars_of_constant_nodes_become_attributes_and_those_of_initializers_do_not() -> None:
    nodes = [constant("c", 3.0, FLOATS), node("Sub", ["c", "x"], ["h"]), node("Mul", ["h", "p"], ["y"])]
    forward = imported(model(nodes, [info("x", [3])], ["y"], [tensor("p", 2.0)]))
    assert forward.graph.ops[0].attrs == {"scalar": 3.0, "reverse": True}
    assert forward.graph.ops[1].inputs == ("h", "p")


def test_equal_constants_are_one_op_right_before_its_first_reader() -> None:
    nodes = [
        constant("a", [1, 2, 3], FLOATS),
        constant("b", [1, 2, 3], FLOATS),
        node("Relu", ["x"], ["r"]),
        node("Add", ["r", "a"], ["s"]),
        node("Mul", ["s", "b"], ["y"]),
    ]
    assert kinds(imported(model(nodes, [info("x", [3])], ["y"]))) == ["relu", "constant", "add", "mul"]


def test_equal_values_of_other_types_are_other_constants() -> None:
    nodes = [
        constant("a", [1, 2, 3], FLOATS),
        constant("b", [1, 2, 3], INTS),
        node("Add", ["x", "a"], ["s"]),
        node("Gather", ["s", "b"], ["y"]),
    ]
    assert kinds(imported(model(nodes, [info("x", [9, 3])], ["y"]))).count("constant") == 2


def test_numbers_that_are_not_finite_are_text() -> None:
    nodes = [constant("c", [np.inf, -np.inf, 1], FLOATS), node("Add", ["x", "c"], ["y"])]
    forward = imported(model(nodes, [info("x", [3])], ["y"]))
    assert forward.graph.ops[0].attrs["values"] == ["inf", "-inf", 1.0]


def test_small_integer_initializers_and_stand_ins_are_values() -> None:
    nodes = [
        node("ConstantOfShape", ["z__SHAPE"], ["z"], value=tensor("", [0], np.int64)),
        node("Gather", ["table", "z"], ["g"]),
        node("Reshape", ["g", "s"], ["y"]),
    ]
    stored = [ints("z__SHAPE", 100), ints("s", -1), tensor("table", np.ones((4, 2)))]
    forward = imported(model(nodes, [], ["y"], stored))
    assert kinds(forward) == ["constant", "gather", "view"]
    assert forward.graph.ops[0].attrs["values"] == [0]
    assert forward.initializers == ("table",)


def test_an_index_out_of_range_is_an_error() -> None:
    for op, given in (("Gather", [(C, INTS), (3, INTS)]), ("GatherElements", [(C, INTS), ([-4], INTS)])):
        proto = constant_model(op, given, {})
        with pytest.raises(ModelError) as caught:
            import_model(load_model(proto.SerializeToString()), targets=["y"])
        assert caught.value.code == "SNP-I016"
        assert "out of range" in caught.value.message


def test_division_by_zero_folds_without_a_warning() -> None:
    import_model(load_model(constant_model("Div", [(A, FLOATS), (0, FLOATS)], {}).SerializeToString()), targets=["y"])
    import_model(load_model(constant_model("Div", [(A, INTS), (0, INTS)], {}).SerializeToString()), targets=["y"])


def test_shape_with_start_and_end_and_size() -> None:
    nodes = [
        node("Shape", ["x"], ["s"], start=-2, end=3),
        node("Size", ["x"], ["n"]),
        node("Concat", ["s", "m"], ["y"], axis=0),
    ]
    nodes.insert(2, node("Unsqueeze", ["n", "zero"], ["m"]))
    proto = model(nodes, [info("x", [2, 3, 4])], [info("y", None, INT64)], [ints("zero", 0)])
    forward = imported(proto, mode="infer")
    assert forward.graph.ops[0].attrs["values"] == [3, 4, 24]
    assert forward.inputs == ()


def test_constants_by_attribute() -> None:
    forms: list[tuple[dict[str, Any], list[Any], int]] = [
        ({"value_int": 3}, [3], INT64),
        ({"value_ints": [3, 4]}, [3, 4], INT64),
        ({"value_float": 0.5}, [0.5], FLOAT),
        ({"value_floats": [0.5, 0.25]}, [0.5, 0.25], FLOAT),
    ]
    for attributes, values, dtype in forms:
        proto = model([node("Constant", [], ["y"], **attributes)], [], [info("y", None, dtype)])
        assert imported(proto, mode="infer").graph.ops[0].attrs["values"] == values
    with pytest.raises(ModelError, match="strings"):
        imported(
            model([node("Constant", [], ["y"], value_string=b"a")], [], [info("y", None, TensorProto.STRING)]),
            mode="infer",
        )
