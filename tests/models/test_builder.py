"""The graph builder: names, shared constants, weights, light weights."""

import math

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, checker, numpy_helper

from snplan.models.builder import IR_VERSION, LIGHT_ELEMENTS, OPSET, GraphBuilder


def _builder(*, light: bool = False, seed: int = 0) -> GraphBuilder:
    return GraphBuilder("g", batch=2, light=light, seed=seed)


def _weight(builder: GraphBuilder, name: str) -> np.ndarray:
    tensors = {tensor.name: tensor for tensor in builder.model().graph.initializer}
    return numpy_helper.to_array(tensors[name])


def _nodes(model: ModelProto, kind: str) -> list[NodeProto]:
    return [node for node in model.graph.node if node.op_type == kind]


def test_fresh_names_count_up_within_their_scope() -> None:
    builder = _builder()
    assert [builder.fresh("relu") for _ in range(3)] == ["relu", "relu_1", "relu_2"]
    with builder.scope("layer1"), builder.scope("0"):
        assert [builder.fresh("relu") for _ in range(2)] == ["layer1.0.relu", "layer1.0.relu_1"]
    assert builder.fresh("relu") == "relu_3"


def test_fresh_steps_over_a_name_that_a_counted_one_took() -> None:
    builder = _builder()
    assert [builder.fresh(name) for name in ("relu_1", "relu", "relu", "relu")] == [
        "relu_1", "relu", "relu_1_1", "relu_2",
    ]  # fmt: skip


def test_a_scope_ends_on_an_exception() -> None:
    builder = _builder()
    with pytest.raises(KeyError), builder.scope("inner"):
        raise KeyError
    assert builder.fresh("x") == "x"


def test_node_is_named_as_its_output_and_leaves_out_none() -> None:
    builder = _builder()
    x = builder.input("x", (2, 3))
    y = builder.node("Relu", [x], (2, 3))
    builder.output(builder.node("LeakyRelu", [y], (2, 3), name="act", alpha=0.5, beta=None))
    first, second = builder.model().graph.node
    assert (first.name, list(first.output)) == ("relu", ["relu"])
    assert (second.name, [attribute.name for attribute in second.attribute]) == ("act", ["alpha"])
    assert builder.shape("act") == (2, 3)


def test_equal_constants_share_a_node_and_types_keep_apart() -> None:
    builder = _builder()
    same = [builder.constant([0, -1]), builder.constant((0, -1))]
    other = [builder.constant(1, np.float32), builder.constant(True, np.bool_), builder.constant(1)]
    assert same[0] == same[1]
    assert len({*same, *other}) == 4
    constants = _nodes(builder.model(), "Constant")
    assert [node.attribute[0].t.data_type for node in constants] == [
        TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64,
    ]  # fmt: skip


def test_model_is_valid_and_declares_its_versions() -> None:
    builder = _builder()
    x = builder.input("x", (2, 3))
    tokens = builder.integers("ids", [[0, 1]])
    builder.output(builder.node("Gather", [x, tokens], (2, 1, 2), name="y", axis=1))
    model = builder.model()
    checker.check_model(model, full_check=True)
    assert (model.ir_version, model.opset_import[0].version, model.producer_name) == (IR_VERSION, OPSET, "snplan")
    assert [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim] == [2, 1, 2]


def test_random_weight_has_its_deviation_and_bounds() -> None:
    builder = _builder()
    builder.weight("w", (200, 300), std=0.1)
    values = _weight(builder, "w")
    assert values.dtype == np.float32
    assert float(values.std()) == pytest.approx(0.1, rel=0.01)
    assert abs(float(values.mean())) < 0.001
    assert float(np.abs(values).max()) <= 0.1 * math.sqrt(3) * (1 + 1e-6)


def test_weights_differ_by_index_and_seed_but_not_by_run() -> None:
    first, again, seeded = _builder(), _builder(), _builder(seed=1)
    for builder in (first, again, seeded):
        builder.weight("a", (5, 5), std=1.0)
        builder.weight("b", (5, 5), std=1.0)
    assert np.array_equal(_weight(first, "a"), _weight(again, "a"))
    assert not np.array_equal(_weight(first, "a"), _weight(first, "b"))
    assert not np.array_equal(_weight(first, "a"), _weight(seeded, "a"))


def test_filled_weight_is_constant() -> None:
    builder = _builder()
    builder.weight("scale", (100,), fill=1.0)
    assert np.array_equal(_weight(builder, "scale"), np.ones(100, np.float32))


def test_light_weight_is_a_constant_of_shape_behind_its_shape() -> None:
    builder = _builder(light=True)
    builder.weight("w", (13, 5), std=0.1)
    builder.weight("scale", (100,), fill=1.0)
    model = builder.model()
    assert _weight(builder, "w__SHAPE").tolist() == [13, 5]
    assert _weight(builder, "w__SHAPE").dtype == np.int64
    large, scale = _nodes(model, "ConstantOfShape")
    assert (list(large.input), list(large.output)) == (["w__SHAPE"], ["w"])
    assert numpy_helper.to_array(large.attribute[0].t) == pytest.approx([0.01])
    assert numpy_helper.to_array(scale.attribute[0].t).tolist() == [1.0]
    assert builder.shape("w") == (13, 5)


def test_light_keeps_small_weights_and_integers() -> None:
    builder = _builder(light=True)
    builder.weight("w", (LIGHT_ELEMENTS,), std=1.0)
    builder.integers("ids", [list(range(100))])
    assert _weight(builder, "w").shape == (64,)
    assert _weight(builder, "ids").tolist() == [list(range(100))]
    assert not _nodes(builder.model(), "ConstantOfShape")


def test_light_changes_no_other_weight() -> None:
    """A small weight behind a large one has the same values in both forms: its stream is keyed by its index."""
    plain, light = _builder(), _builder(light=True)
    for builder in (plain, light):
        builder.weight("large", (100,), std=1.0)
        builder.weight("small", (10,), std=1.0)
    assert np.array_equal(_weight(plain, "small"), _weight(light, "small"))
