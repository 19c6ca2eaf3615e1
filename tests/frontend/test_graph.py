"""Names and order of nodes, results that are wanted, what is not supported."""

from __future__ import annotations

import re

import numpy as np
import pytest
from frontend_support import INT64, imported, info, kinds, model, node, run, tensor

from snplan.errors import ModelError, UsageError
from snplan.frontend.order import ordered


def error_of(*args: object, **options: object) -> ModelError:
    """The error that importing a model ends in."""
    with pytest.raises(ModelError) as caught:
        imported(*args, **options)  # type: ignore[arg-type]
    return caught.value


def test_nodes_out_of_order_are_sorted_with_a_note() -> None:
    first, second = node("Relu", ["x"], ["h"], "first"), node("Exp", ["h"], ["y"], "second")
    straight = imported(model([first, second], [info("x", [2])], ["y"]))
    turned = imported(model([second, first], [info("x", [2])], ["y"]))
    assert turned.graph == straight.graph
    assert [op.name for op in turned.graph.ops] == ["first", "second"]
    assert straight.warnings == ()
    assert "sorted" in turned.warnings[0]


def test_unnamed_nodes_get_the_same_names_sorted_or_not() -> None:
    nodes = [node("Relu", ["x"], ["h"]), node("Exp", ["h"], ["y"])]
    straight = imported(model(nodes, [info("x", [2])], ["y"]))
    turned = imported(model(nodes[::-1], [info("x", [2])], ["y"]))
    assert turned.graph == straight.graph
    assert [op.name for op in straight.graph.ops] == ["Relu_0", "Exp_1"]


def test_a_cycle_is_listed() -> None:
    nodes = [node("Add", ["x", "b"], ["a"], "one"), node("Exp", ["a"], ["b"], "two"), node("Relu", ["b"], ["y"], "out")]
    error = error_of(model(nodes, [info("x", [2])], ["y"]))
    assert error.code == "SNP-I009"
    assert "one -> two -> one" in error.message or "two -> one -> two" in error.message


def test_a_long_cycle_is_shortened() -> None:
    nodes = [node("Exp", [f"t{i}"], [f"t{(i + 1) % 100}"], f"n{i}") for i in range(100)]
    error = error_of(model(nodes, [], ["t0"]))
    assert error.code == "SNP-I009"
    assert "100 nodes" in error.message
    assert len(error.message) < 400


def test_two_writers_of_one_name_are_both_named() -> None:
    nodes = [node("Relu", ["a"], ["b"], "left"), node("Neg", ["a"], ["b"], "right")]
    error = error_of(model(nodes, [info("a", [2])], ["b"]))
    assert error.code == "SNP-I010"
    assert "'left'" in error.message
    assert "'right'" in error.message


def test_a_node_may_not_write_an_input_or_an_initializer() -> None:
    for name in ("x", "w"):
        proto = model([node("Relu", ["x"], [name], "r")], [info("x", [2])], [name], [tensor("w", [1.0, 2.0])])
        assert error_of(proto).code == "SNP-I010"


def test_two_initializers_or_inputs_of_one_name() -> None:
    twice = [tensor("w", [1.0]), tensor("w", [2.0])]
    assert error_of(model([node("Relu", ["w"], ["y"])], [], ["y"], twice)).code == "SNP-I010"
    assert error_of(model([node("Relu", ["x"], ["y"])], [info("x", [1])] * 2, ["y"])).code == "SNP-I010"


def test_a_name_that_nothing_writes() -> None:
    error = error_of(model([node("Add", ["x", "gone"], ["y"], "sum")], [info("x", [2])], ["y"]))
    assert error.code == "SNP-I011"
    assert "'sum'" in error.message
    assert "'gone'" in error.message
    assert error_of(model([], [info("x", [2])], ["y"])).code == "SNP-I011"


def test_ten_thousand_nodes_in_reverse() -> None:
    nodes = [node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(10_000)]
    order, moved = ordered(nodes[::-1], ["t0"])
    assert moved
    assert order == list(range(10_000))[::-1]


def test_left_out_inputs_are_no_tensor_and_no_cycle() -> None:
    nodes = [
        node("Dropout", ["a", "", ""], ["b", ""]),
        node("Clip", ["b", "", "most"], ["c"]),
        node("Resize", ["c", "", "twice"], ["y"], mode="nearest"),
    ]
    stored = [tensor("most", 3.0), tensor("twice", [1, 1, 2, 2])]
    forward = imported(model(nodes, [info("a", [1, 1, 2, 2])], ["y"], stored))
    assert "" not in forward.graph.tensors
    assert forward.graph.tensors["y"].shape == (1, 1, 4, 4)
    assert kinds(forward) == ["clip", "resize"]


def test_only_what_the_result_needs_is_kept() -> None:
    nodes = [
        node("Relu", ["x"], ["y"]),
        node("Exp", ["x"], ["unused"]),
        node("MatMul", ["unused", "w"], ["z"]),
    ]
    forward = imported(model(nodes, [info("x", [2, 2]), info("u", [9])], ["y"], [tensor("w", np.eye(2))]))
    assert kinds(forward) == ["relu"]
    assert forward.inputs == ("x",)
    assert forward.initializers == ()


def test_a_node_off_the_path_need_not_be_supported() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("NoSuchThing", ["x"], ["z"])]
    assert kinds(imported(model(nodes, [info("x", [2])], ["y", "z"]), loss="output:y")) == ["relu"]


def test_everything_unsupported_is_listed_once_with_the_path() -> None:
    nodes = [
        node("Abs", ["x"], ["a"], "abs"),
        node("Strange", ["a"], ["b"], "s1"),
        node("Stranger", ["b", "x"], ["c"], "t1"),
        node("Strange", ["x"], ["d"], "s2"),
        node("Add", ["b", "d"], ["e"], "sum"),
        node("Add", ["e", "b"], ["y"], "last"),
    ]
    error = error_of(model(nodes, [info("x", [2])], ["y", "c"]))
    assert error.code == "SNP-I014"
    assert "Strange x2" in error.message
    for name in ("s1", "s2"):
        assert len(re.findall(f"Strange '{name}'", error.message)) == 1
    assert "s1 -> sum -> last -> y" in error.message
    assert "Stranger" not in error.message
    assert error.details["nodes"] == ["s1", "s2"]


def test_a_first_output_that_is_not_supported_is_an_error_not_a_reason_to_take_the_second() -> None:
    nodes = [node("Strange", ["x"], ["y"]), node("Relu", ["x"], ["z"])]
    assert error_of(model(nodes, [info("x", [2])], ["y", "z"])).code == "SNP-I014"


def test_the_loss_is_the_scalar_output_else_the_first_float() -> None:
    nodes = [node("ArgMax", ["x"], ["i"]), node("Exp", ["x"], ["y"]), node("ReduceSum", ["x"], ["s"], keepdims=0)]
    proto = model(nodes, [info("x", [2, 3])], [info("i", None, INT64), "y", "s"])
    assert imported(proto).graph.outputs == ("s",)
    assert imported(proto, loss="mse").graph.outputs == ("y",)
    assert imported(proto, loss="output:y").graph.outputs == ("y",)
    assert imported(proto, targets=["i", "s"]).graph.outputs == ("i", "s")
    assert imported(proto, mode="infer").graph.outputs == ("i", "y", "s")
    with pytest.raises(UsageError) as caught:
        imported(proto, loss="output:gone")
    assert caught.value.code == "SNP-U062"


def test_no_float_output() -> None:
    proto = model([node("ArgMax", ["x"], ["i"])], [info("x", [2, 3])], [info("i", None, INT64)])
    assert error_of(proto).code == "SNP-I018"


def test_results_that_are_the_input_a_constant_or_one_tensor_twice() -> None:
    nodes = [
        node("Identity", ["x"], ["same"]),
        node("Constant", [], ["c"], value=tensor("", [1.0, 2.0])),
        node("Relu", ["x"], ["r"]),
        node("Identity", ["r"], ["again"]),
        node("Identity", ["w"], ["weight"]),
    ]
    proto = model(nodes, [info("x", [2])], ["same", "c", "r", "again", "weight", "r"], [tensor("w", [5.0])])
    found = run(proto, {"x": np.array([-1, 3], np.float32)})
    assert {name: values.tolist() for name, values in found.items()} == {
        "same": [-1, 3],
        "c": [1, 2],
        "r": [0, 3],
        "again": [0, 3],
        "weight": [5],
    }


def test_stale_shapes_in_the_file_do_not_count_but_are_noted() -> None:
    nodes = [node("Relu", ["x"], ["h"]), node("Exp", ["h"], ["y"])]
    proto = model(nodes, [info("x", ["N", 3])], [info("y", [7, 3])], value_info=[info("h", [4, 9])])
    forward = imported(proto, batch=2)
    assert forward.graph.tensors["y"].shape == (2, 3)
    assert len(forward.warnings) == 1
    assert "2 tensors" in forward.warnings[0]
    assert "'h' says [4, 9], it is [2, 3]" in forward.warnings[0]


def test_right_and_symbolic_shapes_are_not_noted() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [info("x", ["N", 3])], [info("y", ["M", 3])])
    assert imported(proto, batch=2).warnings == ()


def test_helper_tensors_never_take_the_name_of_another() -> None:
    nodes = [node("ReduceL2", ["x"], ["y"], "n", keepdims=0), node("Relu", ["y"], ["n:mul"], "m")]
    forward = imported(model(nodes, [info("x", [3])], ["n:mul"]))
    assert len({*forward.graph.tensors}) == len(forward.graph.tensors) == 5


def test_many_nodes_of_one_name_stay_fast_and_unique() -> None:
    nodes = [node("Relu", [f"t{i}"], [f"t{i + 1}"], "same") for i in range(3000)]
    forward = imported(model(nodes, [info("t0", [1])], ["t3000"]))
    assert len({op.name for op in forward.graph.ops}) == 3000
    assert forward.graph.ops[0].nodes == ("same",)
