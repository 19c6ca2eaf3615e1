"""Dimensions bound by --batch and --dim, and the shape arithmetic that follows from them."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_support import INT64, imported, info, ints, model, node, tensor
from onnx import ModelProto

from snplan.errors import ModelError, UsageError


def concat() -> ModelProto:
    """[N, 2] and [5, 2] behind one another."""
    return model([node("Concat", ["a", "b"], ["y"], axis=0)], [info("a", ["N", 2]), info("b", [5, 2])], ["y"])


def test_a_named_dimension_bound() -> None:
    assert imported(concat(), dims={"N": 7}).graph.tensors["y"].shape == (12, 2)
    assert imported(concat(), dims={"N": 7}).graph.tensors["y"].bytes == 96


def test_an_unbound_dimension_names_it_and_its_input() -> None:
    with pytest.raises(ModelError) as caught:
        imported(concat())
    assert caught.value.code == "SNP-I012"
    assert "'N'" in caught.value.message
    assert "'a'" in caught.value.message


def test_the_batch_binds_first_dimensions_wherever_their_symbol_stands() -> None:
    proto = model([node("MatMul", ["a", "b"], ["y"])], [info("a", ["N", 3]), info("b", [3, "N"])], ["y"])
    assert imported(proto, batch=4).graph.tensors["y"].shape == (4, 4)


def test_dims_win_over_the_batch() -> None:
    proto = model([node("Concat", ["a", "b"], ["y"], axis=0)], [info("a", ["N", 2]), info("b", ["M", 2])], ["y"])
    assert imported(proto, batch=4, dims={"M": 1}).graph.tensors["y"].shape == (5, 2)


def test_a_dimension_without_value_or_name_and_minus_one() -> None:
    for first in (None, -1):
        proto = model([node("Relu", ["x"], ["y"])], [info("x", [first, 3])], ["y"])
        assert imported(proto, batch=2).graph.tensors["y"].shape == (2, 3)
        assert imported(proto, dims={"x:0": 5}).graph.tensors["y"].shape == (5, 3)
        with pytest.raises(ModelError, match=r"x:0=N"):
            imported(proto)


def test_a_symbol_that_is_no_identifier() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [info("x", [1, "16*h16"])], ["y"])
    assert imported(proto, dims={"16*h16": 64}).graph.tensors["y"].shape == (1, 64)


def test_a_fixed_batch_that_all_inputs_share_is_replaced_and_everything_follows() -> None:
    nodes = [node("Shape", ["x"], ["s"]), node("Reshape", ["x", "s"], ["r"]), node("Add", ["r", "z"], ["y"])]
    proto = model(nodes, [info("x", [8, 3]), info("z", [8, 1])], [info("y", [8, 3])])
    forward = imported(proto, batch=2)
    assert forward.graph.tensors["y"].shape == (2, 3)
    assert forward.warnings == ()


def test_fixed_batches_that_differ_cannot_be_replaced() -> None:
    proto = model([node("MatMul", ["a", "b"], ["y"])], [info("a", [8, 3]), info("b", [3, 2])], ["y"])
    with pytest.raises(UsageError) as caught:
        imported(proto, batch=4)
    assert caught.value.code == "SNP-U061"
    assert imported(proto, dims={"a:0": 4}).graph.tensors["y"].shape == (4, 2)


@pytest.mark.parametrize(("batch", "dims"), [(0, {}), (-1, {}), (None, {"N": 0}), (None, {"M": 3}), (None, {"a:7": 3})])
def test_bindings_that_make_no_sense(batch: int | None, dims: dict[str, int]) -> None:
    with pytest.raises(UsageError) as caught:
        imported(concat(), batch=batch, dims=dims)
    assert caught.value.code == "SNP-U061"


def test_an_unranked_input_is_refused_only_where_it_is_needed() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Relu", ["u"], ["z"])]
    proto = model(nodes, [info("x", [2]), info("u", None)], ["y", "z"])
    assert imported(proto, loss="output:y").inputs == ("x",)
    with pytest.raises(ModelError, match="rank is not declared"):
        imported(proto, loss="output:z")


def test_a_reshape_to_a_computed_shape() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Concat", ["n1", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ]
    stored = [tensor("zero", 0, np.int64), ints("axes", 0), ints("rest", -1)]
    forward = imported(model(nodes, [info("x", ["N", 3, 4, 5])], ["y"], stored), batch=8)
    assert forward.graph.tensors["y"].shape == (8, 60)
    assert forward.graph.tensors["y"].bytes == 1920
    assert [op.kind for op in forward.graph.ops] == ["view"]


def test_a_zero_in_a_reshape_copies_a_dimension() -> None:
    proto = model([node("Reshape", ["x", "s"], ["y"])], [info("x", ["N", 3, 4, 5])], ["y"], [ints("s", 0, -1, 5)])
    assert imported(proto, batch=8).graph.tensors["y"].shape == (8, 12, 5)


def test_allowzero_makes_it_a_size() -> None:
    nodes = [node("Reshape", ["x", "s"], ["y"], allowzero=1)]
    assert imported(model(nodes, [info("x", [0, 3])], ["y"], [ints("s", 3, 0)])).graph.tensors["y"].shape == (3, 0)


@pytest.mark.parametrize("target", [(-1, 3, -1), (5, 5), (-1, 5), (-2, 12), (0, 0, 0, 0)])
def test_targets_that_cannot_be(target: tuple[int, ...]) -> None:
    proto = model([node("Reshape", ["x", "s"], ["y"], "r")], [info("x", [3, 4])], ["y"], [ints("s", *target)])
    with pytest.raises(ModelError) as caught:
        imported(proto)
    assert caught.value.code == "SNP-I016"
    assert "'r' (Reshape)" in caught.value.message
    assert str(list(target)) in caught.value.message


def test_a_target_that_is_an_input_of_the_graph() -> None:
    proto = model([node("Reshape", ["x", "s"], ["y"])], [info("x", [3, 4]), info("s", [2], INT64)], ["y"])
    with pytest.raises(ModelError, match="its target shape is computed from data"):
        imported(proto)


def test_empty_tensors_keep_their_shape() -> None:
    proto = model([node("Concat", ["a", "b"], ["y"], axis=0)], [info("a", [0, 4]), info("b", [3, 4])], ["y"])
    assert imported(proto).graph.tensors["y"].shape == (3, 4)
    assert imported(proto).graph.tensors["a"].bytes == 0
