"""Operators whose attributes became inputs: both forms mean the same, each in its opsets only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frontend_support import imported, info, ints, model, node, tensor
from onnx import ModelProto, TensorProto

from snplan.errors import ModelError
from snplan.ir import Forward

Form = tuple[str, tuple[int, ...], dict[str, Any], list[TensorProto]]
"""Operator, shape of x, attributes, further inputs."""

PAIRS: dict[str, tuple[int, int, Form, Form]] = {
    "Squeeze": (
        11,
        13,
        ("Squeeze", (1, 1, 3), {"axes": [1]}, []),
        ("Squeeze", (1, 1, 3), {}, [ints("axes", 1)]),
    ),
    "Unsqueeze": (11, 13, ("Unsqueeze", (3,), {"axes": [0, 2]}, []), ("Unsqueeze", (3,), {}, [ints("axes", 0, 2)])),
    "ReduceSum": (
        11,
        13,
        ("ReduceSum", (2, 3), {"axes": [1], "keepdims": 0}, []),
        ("ReduceSum", (2, 3), {"keepdims": 0}, [ints("axes", 1)]),
    ),
    "ReduceMean": (
        17,
        18,
        ("ReduceMean", (2, 3), {"axes": [-1]}, []),
        ("ReduceMean", (2, 3), {}, [ints("axes", -1)]),
    ),
    "Clip": (
        6,
        11,
        ("Clip", (4,), {"min": -1.0, "max": 2.0}, []),
        ("Clip", (4,), {}, [tensor("min", -1.0), tensor("max", 2.0)]),
    ),
    "Pad": (
        10,
        11,
        ("Pad", (2, 3), {"pads": [0, 1, 0, 2], "value": 5.0}, []),
        ("Pad", (2, 3), {}, [ints("pads", 0, 1, 0, 2), tensor("value", 5.0)]),
    ),
    "Dropout": (
        11,
        12,
        ("Dropout", (4,), {"ratio": 0.25}, []),
        ("Dropout", (4,), {}, [tensor("ratio", 0.25)]),
    ),
    "Split": (
        11,
        13,
        ("Split", (4, 2), {"split": [1, 3], "axis": 0}, []),
        ("Split", (4, 2), {"axis": 0}, [ints("split", 1, 3)]),
    ),
    "Slice": (
        9,
        10,
        ("Slice", (4, 5), {"starts": [1], "ends": [-1], "axes": [1]}, []),
        ("Slice", (4, 5), {}, [ints("starts", 1), ints("ends", -1), ints("axes", 1)]),
    ),
    "TopK": (9, 10, ("TopK", (4, 5), {"k": 2}, []), ("TopK", (4, 5), {}, [ints("k", 2)])),
    "Upsample": (
        8,
        9,
        ("Upsample", (1, 1, 2, 2), {"scales": [1.0, 1.0, 2.0, 3.0]}, []),
        ("Upsample", (1, 1, 2, 2), {}, [tensor("scales", [1, 1, 2, 3])]),
    ),
}
OUTPUTS = {"Split": ["y", "z"], "TopK": ["y", "z"]}


def proto_of(form: Form, opset: int) -> ModelProto:
    """A model of one node in that form."""
    op, shape, attributes, stored = form
    inputs = ["x", *(t.name for t in stored)]
    outputs = OUTPUTS.get(op, ["y"])
    return model([node(op, inputs, outputs, "n", **attributes)], [info("x", shape)], outputs, stored, opset=opset)


def forward_of(form: Form, opset: int) -> Forward:
    """Its forward graph in training."""
    return imported(proto_of(form, opset), loss="output:y", train_batchnorm=True)


@pytest.mark.parametrize("op", PAIRS)
def test_both_forms_are_one_op(op: str) -> None:
    before, since, attribute_form, input_form = PAIRS[op]
    assert forward_of(attribute_form, before).graph.ops == forward_of(input_form, since).graph.ops


@pytest.mark.parametrize("op", PAIRS)
def test_the_form_of_another_opset_is_an_error(op: str) -> None:
    before, since, attribute_form, input_form = PAIRS[op]
    for form, opset in ((attribute_form, since), (input_form, before)):
        with pytest.raises(ModelError) as caught:
            forward_of(form, opset)
        assert caught.value.code == "SNP-I015", op
        assert "'n'" in caught.value.message
        assert f"opset {opset}" in caught.value.message


def test_squeeze_of_one_axis_leaves_the_others() -> None:
    for form, opset in ((PAIRS["Squeeze"][2], 11), (PAIRS["Squeeze"][3], 13)):
        assert forward_of(form, opset).graph.tensors["y"].shape == (1, 3)


def test_squeeze_without_axes_takes_all() -> None:
    assert forward_of(("Squeeze", (1, 1, 3), {}, []), 13).graph.tensors["y"].shape == (3,)


def test_broadcast_by_attributes_ended_with_opset_6() -> None:
    nodes = [node("Add", ["x", "b"], ["y"], broadcast=1, axis=1)]
    inputs = [info("x", [2, 3, 4, 5]), info("b", [3, 4])]
    forward = imported(model(nodes, inputs, ["y"], opset=6))
    assert forward.graph.tensors["y"].shape == (2, 3, 4, 5)
    assert forward.graph.ops[0].attrs == {"shape": [3, 4, 1]}
    with pytest.raises(ModelError) as caught:
        imported(model(nodes, inputs, ["y"], opset=7))
    assert caught.value.code == "SNP-I015"


def test_softmax_before_opset_13_is_over_all_later_axes() -> None:
    x = info("x", [2, 3, 4])
    old = imported(model([node("Softmax", ["x"], ["y"])], [x], ["y"], opset=11))
    new = imported(model([node("Softmax", ["x"], ["y"])], [x], ["y"], opset=13))
    last = imported(model([node("Softmax", ["x"], ["y"], axis=2)], [x], ["y"], opset=11))
    assert [op.kind for op in old.graph.ops] == ["view", "softmax", "view"]
    assert old.graph.ops[0].attrs["shape"] == [2, 12]
    assert new.graph.ops == last.graph.ops
    assert new.graph.ops[0].attrs == {"axis": 2}


def test_wrong_types_of_attributes_are_clear_errors() -> None:
    for attributes in ({"axis": 1.5}, {"axis": "one"}, {"axis": [1]}):
        with pytest.raises(ModelError) as caught:
            imported(model([node("Softmax", ["x"], ["y"], **attributes)], [info("x", [2, 3])], ["y"]))
        assert caught.value.code == "SNP-I016"
        assert "attribute axis must be an int" in caught.value.message


def test_a_missing_input_or_attribute_is_a_clear_error() -> None:
    for broken in (node("Add", ["x"], ["y"]), node("Cast", ["x"], ["y"]), node("Gemm", ["x", ""], ["y"])):
        with pytest.raises(ModelError) as caught:
            imported(model([broken], [info("x", [2, 3])], ["y"]))
        assert caught.value.code == "SNP-I016"
        assert "missing" in caught.value.message


def test_dropout_keeps_what_the_graph_says() -> None:
    stored = [tensor("ratio", 0.5), tensor("yes", True, np.bool_), tensor("no", False, np.bool_)]
    for flag, wanted in (("yes", ["dropout"]), ("no", []), ("", [])):
        nodes = [node("Dropout", ["x", "ratio", flag], ["h"]), node("Exp", ["h"], ["y"])]
        forward = imported(model(nodes, [info("x", [4])], ["y"], stored))
        assert [op.kind for op in forward.graph.ops] == [*wanted, "exp"]
        assert bool(forward.warnings) == (not wanted)


def test_the_mask_of_a_dropout_draws_the_same_numbers() -> None:
    stored = [tensor("ratio", 0.5), tensor("yes", True, np.bool_)]
    nodes = [node("Dropout", ["x", "ratio", "yes"], ["y", "m"]), node("Dropout", ["y", "ratio", "yes"], ["z"])]
    forward = imported(model(nodes, [info("x", [4])], ["z", "m"], stored), targets=["z", "m"])
    assert [(op.kind, op.rng) for op in forward.graph.ops] == [("dropout", 0), ("dropout_mask", 0), ("dropout", 1)]
