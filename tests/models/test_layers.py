"""Layers: the shape each one tracks against onnx's own inference, its attributes, and its errors."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper, shape_inference

from snplan.models.layers import Network


def _network(seed: int = 0) -> Network:
    return Network("net", batch=2, light=False, seed=seed)


def _inferred(model: ModelProto, tensor: str) -> tuple[int, ...]:
    """The shape that onnx infers for a tensor, the declared output shapes taken away first."""
    del model.graph.output[:]
    model.graph.output.append(helper.make_empty_tensor_value_info(tensor))
    inferred = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    return tuple(dim.dim_value for dim in inferred.graph.output[0].type.tensor_type.shape.dim)


Layer = Callable[[Network, str], str]

IMAGE_LAYERS: dict[str, tuple[Layer, tuple[int, ...]]] = {
    "conv": (lambda n, x: n.conv(x, 8, 3), (2, 8, 11, 8)),
    "conv_same": (lambda n, x: n.conv(x, 8, 3, pad=1), (2, 8, 13, 10)),
    "conv_stride": (lambda n, x: n.conv(x, 8, 7, stride=2, pad=3), (2, 8, 7, 5)),
    "conv_row": (lambda n, x: n.conv(x, 8, (1, 7), pad=(0, 3), bias=False), (2, 8, 13, 10)),
    "conv_column": (lambda n, x: n.conv(x, 8, (7, 1)), (2, 8, 7, 10)),
    "conv_depthwise": (lambda n, x: n.conv(x, 6, 3, groups=6, pad=1), (2, 6, 13, 10)),
    "conv_transpose": (lambda n, x: n.conv_transpose(x, 4, 2), (2, 4, 26, 20)),
    "batch_norm": (lambda n, x: n.batch_norm(x), (2, 6, 13, 10)),
    "relu": (lambda n, x: n.relu(x), (2, 6, 13, 10)),
    "relu6": (lambda n, x: n.relu6(x), (2, 6, 13, 10)),
    "dropout": (lambda n, x: n.dropout(x, 0.5), (2, 6, 13, 10)),
    "max_pool": (lambda n, x: n.max_pool(x, 3, stride=2), (2, 6, 6, 4)),
    "max_pool_pad": (lambda n, x: n.max_pool(x, 3, stride=2, pad=1), (2, 6, 7, 5)),
    "max_pool_ceil": (lambda n, x: n.max_pool(x, 3, stride=2, ceil=True), (2, 6, 6, 5)),
    "max_pool_ceil_two": (lambda n, x: n.max_pool(x, 2, stride=2, ceil=True), (2, 6, 7, 5)),
    "average_pool": (lambda n, x: n.average_pool(x, 3, stride=1, pad=1), (2, 6, 13, 10)),
    "pooled_features": (lambda n, x: n.pooled_features(x), (2, 6)),
    "flatten": (lambda n, x: n.flatten(x), (2, 780)),
    "reshape": (lambda n, x: n.reshape(x, (0, 0, -1)), (2, 6, 130)),
    "reshape_rest": (lambda n, x: n.reshape(x, (-1, 10)), (156, 10)),
    "transpose": (lambda n, x: n.transpose(x, (0, 2, 3, 1)), (2, 13, 10, 6)),
    "concat": (lambda n, x: n.concat([x, n.conv(x, 2, 1), x]), (2, 14, 13, 10)),
    "add": (lambda n, x: n.add(x, n.weight("bias", (10,))), (2, 6, 13, 10)),
    "matmul": (lambda n, x: n.matmul(x, n.transpose(x, (0, 1, 3, 2))), (2, 6, 13, 13)),
    "project": (lambda n, x: n.project(x, 4, std=0.1, name="fc"), (2, 6, 13, 4)),
    "layer_norm": (lambda n, x: n.layer_norm(x, eps=1e-5, name="ln"), (2, 6, 13, 10)),
    "linear": (lambda n, x: n.linear(n.flatten(x), 5), (2, 5)),
}


@pytest.mark.parametrize("layer", IMAGE_LAYERS)
def test_tracked_shape_is_the_inferred_one(layer: str) -> None:
    write, shape = IMAGE_LAYERS[layer]
    net = _network()
    y = write(net, net.input("x", (2, 6, 13, 10)))
    net.output(y)
    assert net.shape(y) == shape
    assert _inferred(net.model(), y) == shape


def test_ceil_pool_drops_a_window_that_starts_in_the_trailing_padding() -> None:
    """Side 4, kernel 2, stride 3, padding 1: the third window would start at 5, behind the image."""
    net = _network()
    y = net.max_pool(net.input("x", (1, 1, 4, 4)), 2, stride=3, pad=1, ceil=True)
    assert net.shape(y) == (1, 1, 2, 2)


def test_conv_weights_are_he_scaled_by_fan_in() -> None:
    net = _network()
    net.conv(net.input("x", (1, 32, 8, 8)), 64, 3, groups=2)
    weight = numpy_helper.to_array(net.model().graph.initializer[0])
    assert weight.shape == (64, 16, 3, 3)
    assert float(weight.std()) == pytest.approx(math.sqrt(2 / (16 * 9)), rel=0.02)


def test_linear_keeps_the_scale_of_its_input() -> None:
    net = _network()
    net.linear(net.input("x", (1, 500)), 400, gain=1.0)
    weight, bias = (numpy_helper.to_array(tensor) for tensor in net.model().graph.initializer)
    assert weight.shape == (400, 500)
    assert float(weight.std()) == pytest.approx(math.sqrt(1 / 500), rel=0.02)
    assert not bias.any()


def test_batch_norm_is_in_training_form_with_the_next_statistics() -> None:
    net = _network()
    net.batch_norm(net.input("x", (2, 6, 4, 4)), eps=1e-3, name="bn1")
    (node,) = net.model().graph.node
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    assert list(node.input) == ["x", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var"]
    assert list(node.output) == ["bn1", "bn1.running_mean_next", "bn1.running_var_next"]
    assert attributes == {"epsilon": pytest.approx(1e-3), "momentum": pytest.approx(0.9), "training_mode": 1}
    values = [numpy_helper.to_array(tensor) for tensor in net.model().graph.initializer]
    assert [value.tolist() for value in values] == [[1] * 6, [0] * 6, [0] * 6, [1] * 6]


def test_dropout_is_in_training_form_and_absent_at_ratio_zero() -> None:
    net = _network()
    x = net.input("x", (2, 6))
    assert net.dropout(x, 0.0) == x
    net.dropout(x, 0.25)
    *constants, node = net.model().graph.node
    values = {constant.output[0]: numpy_helper.to_array(constant.attribute[0].t) for constant in constants}
    assert node.op_type == "Dropout"
    assert values[node.input[1]] == np.float32(0.25)
    assert values[node.input[2]].dtype == np.bool_
    assert values[node.input[2]]


def test_a_window_larger_than_the_image_is_refused_with_the_numbers() -> None:
    net = _network()
    x = net.input("x", (2, 6, 4, 4))
    with pytest.raises(ValueError, match="stem: side 4 with padding 1 is below kernel 7; use a larger image"):
        net.conv(x, 8, 7, pad=1, name="stem")
    with pytest.raises(ValueError, match="pool: side 4 with padding 0 is below kernel 5"):
        net.max_pool(x, 5, stride=1)
