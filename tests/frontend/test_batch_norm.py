"""BatchNormalization: many forms, two meanings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frontend_support import evaluate, imported, info, kinds, load, model, node, tensor, weights_of
from onnx import ModelProto

from snplan.errors import ModelError
from snplan.frontend import import_model
from snplan.ir import Phase

STATISTICS = ["scale", "bias", "mean", "var"]


def layer(opset: int, outputs: int, **attributes: Any) -> ModelProto:
    """One normalisation of x[4, 3, 2]."""
    stored = [tensor(name, [1.0, 2.0, 3.0]) for name in STATISTICS]
    names = ["y", "mean2", "var2", "m", "v"][:outputs]
    nodes = [node("BatchNormalization", ["x", *STATISTICS], names, "bn", **attributes)]
    return model(nodes, [info("x", [4, 3, 2])], ["y"], stored, opset=opset)


TRAINING = [
    (9, 5, {}),
    (13, 5, {}),
    (6, 1, {}),
    (6, 5, {}),
    (15, 3, {"training_mode": 1}),
    (14, 3, {"training_mode": 1}),
]
EVALUATION = [(9, 1, {}), (13, 1, {}), (6, 1, {"is_test": 1}), (15, 1, {}), (15, 1, {"training_mode": 0}), (14, 3, {})]


@pytest.mark.parametrize(("opset", "outputs", "attributes"), TRAINING)
def test_training_forms(opset: int, outputs: int, attributes: dict[str, Any]) -> None:
    forward = imported(layer(opset, outputs, **attributes))
    assert kinds(forward) == ["batch_norm_train", "batch_norm_update"]
    assert forward.graph.ops[1].phase is Phase.UPDATE
    assert forward.state_updates == {"mean": "mean:next", "var": "var:next"}
    assert forward.warnings == ()


@pytest.mark.parametrize(("opset", "outputs", "attributes"), EVALUATION)
def test_evaluation_forms(opset: int, outputs: int, attributes: dict[str, Any]) -> None:
    forward = imported(layer(opset, outputs, **attributes))
    assert kinds(forward) == ["batch_norm_eval"]
    assert forward.state_updates == {}
    assert len(forward.warnings) == 1
    assert "1 BatchNormalization" in forward.warnings[0]
    assert imported(layer(opset, outputs, **attributes), mode="infer").warnings == ()


@pytest.mark.parametrize(("opset", "outputs", "attributes"), EVALUATION)
def test_evaluation_forms_can_be_switched_to_training(opset: int, outputs: int, attributes: dict[str, Any]) -> None:
    forward = imported(layer(opset, outputs, **attributes), train_batchnorm=True)
    assert kinds(forward) == ["batch_norm_train", "batch_norm_update"]
    assert forward.warnings == ()


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_nothing_in_the_step_reads_updated_running_statistics(mode: str) -> None:
    proto = layer(15, 3, training_mode=1)
    proto.graph.node.append(node("ReduceSum", ["mean2"], ["z"], "sum"))
    proto.graph.output[0].name = "z"
    with pytest.raises(ModelError, match="when the step has ended") as caught:
        imported(proto, mode=mode)
    assert caught.value.code == "SNP-I014"
    assert "'bn'" in caught.value.message


@pytest.mark.parametrize("outputs", [1, 2])
def test_training_mode_without_outputs_for_the_statistics_is_invalid(outputs: int) -> None:
    with pytest.raises(ModelError) as caught:
        imported(layer(15, outputs, training_mode=1))
    assert caught.value.code == "SNP-I019"
    assert "'bn'" in caught.value.message


def test_all_training_forms_are_one_op() -> None:
    found = [imported(layer(*form[:2], **form[2])).graph.ops for form in TRAINING]
    meant = [[(op.name, op.kind, op.inputs[:2], op.attrs, op.phase) for op in ops] for ops in found]
    assert all(each == meant[0] for each in meant)


def test_values_of_the_training_form() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 3, 2)).astype(np.float32)
    loaded = load(layer(15, 3, training_mode=1, momentum=0.8, epsilon=1e-3))
    forward = import_model(loaded)
    found = evaluate(forward, {"x": x, **weights_of(loaded, forward)})
    mean, var = x.mean(axis=(0, 2)), x.var(axis=(0, 2))
    weight = np.array([1, 2, 3], np.float32)
    wanted = (x - mean[:, None]) / np.sqrt(var[:, None] + 1e-3) * weight[:, None] + weight[:, None]
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["mean:next"], 0.8 * weight + 0.2 * mean, rtol=1e-5)
    np.testing.assert_allclose(found["var:next"], 0.8 * weight + 0.2 * var, rtol=1e-5)


def test_a_normalisation_that_the_result_does_not_need_updates_nothing() -> None:
    proto = layer(15, 3, training_mode=1)
    proto.graph.node.append(node("Relu", ["x"], ["z"]))
    proto.graph.output.append(info("z", None))
    assert kinds(imported(proto, loss="output:z")) == ["relu"]


def test_two_layers_that_share_statistics_update_them_one_after_the_other() -> None:
    stored = [tensor(name, [1.0, 2.0, 3.0]) for name in STATISTICS]
    nodes = [
        node("BatchNormalization", ["x", *STATISTICS], ["h", "a", "b"], "one", training_mode=1),
        node("BatchNormalization", ["h", *STATISTICS], ["y", "c", "d"], "two", training_mode=1),
    ]
    forward = imported(model(nodes, [info("x", [4, 3, 2])], ["y"], stored, opset=15))
    first, second = (op for op in forward.graph.ops if op.kind == "batch_norm_update")
    assert first.inputs[:2] == ("mean", "var")
    assert second.inputs[:2] == first.outputs
    assert forward.state_updates == {"mean": second.outputs[0], "var": second.outputs[1]}
    assert second.outputs == ("mean:next", "var:next")


def test_weights_normalised_by_a_batch_norm_have_no_state() -> None:
    fill = [tensor(name, [0.0, 0.0, 0.0]) for name in ("scale", "bias")]
    zeros = [node("Constant", [], [name], value=tensor("", [0.0, 0.0, 0.0])) for name in ("mean", "var")]
    nodes = [*zeros, node("BatchNormalization", ["w", *STATISTICS], ["y", "a", "b"], "std", training_mode=1)]
    forward = imported(model(nodes, [], ["y"], [*fill, tensor("w", np.ones((4, 3, 2)))], opset=15))
    assert kinds(forward) == ["batch_norm_train"]
    assert forward.state_updates == {}


def test_running_statistics_of_each_activation_are_refused() -> None:
    with pytest.raises(ModelError, match="spatial=0"):
        imported(layer(7, 1, spatial=0))
