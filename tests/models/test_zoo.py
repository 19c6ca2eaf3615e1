"""Every model of the zoo: valid, of the published size, of the right output shapes, in training form."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper, shape_inference

from snplan import models

TINY: dict[str, dict[str, Any]] = {
    "alexnet": {"image": 67, "width": 0.1, "classes": 7},
    "densenet121": {"image": 32, "growth": 4, "classes": 7},
    "googlenet": {"image": 32, "width": 0.1, "classes": 7},
    "gpt2": {"layers": 2, "heads": 2, "embed": 8, "context": 10, "vocab": 31},
    "inception_v4": {"image": 75, "width": 0.1, "classes": 7, "blocks": (1, 1, 1)},
    "mlp": {"widths": (5, 6, 7), "dropout": 0.1},
    "mobilenet_v2": {"image": 32, "width": 0.1, "classes": 7},
    "resnet": {"blocks": (1, 2, 1, 1), "image": 32, "width": 0.1, "classes": 7},
    "resnet18": {"image": 32, "width": 0.1, "classes": 7},
    "resnet34": {"image": 32, "width": 0.1, "classes": 7},
    "resnet50": {"image": 32, "width": 0.1, "classes": 7},
    "resnet101": {"image": 32, "width": 0.1, "classes": 7},
    "resnet152": {"image": 32, "width": 0.1, "classes": 7},
    "unet": {"image": 16, "width": 0.1, "levels": 2, "classes": 7},
    "vgg16": {"image": 32, "width": 0.05, "classes": 7},
    "vgg19": {"image": 32, "width": 0.05, "classes": 7},
    "vit_b16": {"image": 32, "layers": 2, "heads": 2, "embed": 8, "classes": 7},
}

# torchvision's documentation; timm's for Inception-v4; a U-Net of 64 to 1024 channels; GPT-2 with tied embedding.
# AlexNet and the MLP by hand: see the tests of their own.
PUBLISHED_PARAMETERS = {
    "alexnet": 62_378_344,
    "densenet121": 7_978_856,
    "googlenet": 6_624_904,
    "gpt2": 124_439_808,
    "inception_v4": 42_679_816,
    "mlp": 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10,
    "mobilenet_v2": 3_504_872,
    "resnet": 25_557_032,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "unet": 31_037_698,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "vit_b16": 86_567_656,
}

LOGITS = {"gpt2": (2, 1024, 50257), "mlp": (2, 10), "unet": (2, 2, 256, 256)}


def _nodes(model: ModelProto, kind: str) -> list[NodeProto]:
    return [node for node in model.graph.node if node.op_type == kind]


def _weights(model: ModelProto) -> Iterator[tuple[str, int]]:
    """Names and element counts of the float weights, light ones too, without running statistics."""
    state = {name for node in _nodes(model, "BatchNormalization") for name in node.input[3:]}
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.name not in state:
            yield tensor.name, math.prod(tensor.dims)
    for node in _nodes(model, "ConstantOfShape"):
        if node.output[0] not in state:
            yield node.output[0], math.prod(numpy_helper.to_array(initializers[node.input[0]]).tolist())


def _output_shapes(model: ModelProto) -> list[tuple[int, ...]]:
    """The output shapes as onnx infers them, the declared ones taken away."""
    bare = ModelProto()
    bare.CopyFrom(model)
    del bare.graph.output[:]
    bare.graph.output.extend(helper.make_empty_tensor_value_info(output.name) for output in model.graph.output)
    inferred = shape_inference.infer_shapes(bare, check_type=True, strict_mode=True, data_prop=True)
    return [tuple(dim.dim_value for dim in output.type.tensor_type.shape.dim) for output in inferred.graph.output]


def _rebatched(model: ModelProto, batch: int) -> ModelProto:
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_value = batch
    return model


def test_every_model_is_covered() -> None:
    assert set(TINY) == set(PUBLISHED_PARAMETERS) == set(models.names())


@pytest.mark.parametrize("name", models.names())
@pytest.mark.parametrize("light", [False, True])
def test_tiny_model_passes_the_full_check(name: str, light: bool) -> None:
    model = models.build(name, batch=3, light=light, loss=True, **TINY[name])
    checker.check_model(model, full_check=True)
    assert model.graph.name == name


@pytest.mark.parametrize("name", models.names())
def test_light_model_has_the_published_size_and_shape(name: str) -> None:
    model = models.build(name, batch=2, light=True)
    checker.check_model(model, full_check=True)
    assert sum(count for _, count in _weights(model)) == PUBLISHED_PARAMETERS[name]
    assert _output_shapes(model) == [LOGITS.get(name, (2, 1000))]


@pytest.mark.parametrize("name", models.names())
def test_light_and_plain_models_have_the_same_weights_and_nodes(name: str) -> None:
    plain, light = (models.build(name, light=flag, **TINY[name]) for flag in (False, True))
    assert sorted(_weights(plain)) == sorted(_weights(light))
    assert [node for node in light.graph.node if node.op_type != "ConstantOfShape"] == list(plain.graph.node)
    assert all(math.prod(tensor.dims) <= 64 for tensor in light.graph.initializer)


@pytest.mark.parametrize("name", models.names())
def test_logits_come_first_and_are_declared_as_inferred(name: str) -> None:
    model = models.build(name, batch=3, light=True, **TINY[name])
    declared = [tuple(dim.dim_value for dim in out.type.tensor_type.shape.dim) for out in model.graph.output]
    assert len(declared) == 1
    assert declared == _output_shapes(model)
    assert declared[0][0] == 3


@pytest.mark.parametrize("name", models.names())
def test_loss_comes_before_the_logits_and_reads_class_ids(name: str) -> None:
    model = models.build(name, batch=3, light=True, loss=True, **TINY[name])
    logits = models.build(name, batch=3, light=True, **TINY[name]).graph.output[0]
    assert [output.name for output in model.graph.output] == ["loss", logits.name]
    assert _output_shapes(model)[0] == ()
    target = model.graph.input[-1]
    assert (target.name, target.type.tensor_type.elem_type) == ("target", TensorProto.INT64)


def test_shape_of_the_target_follows_the_logits() -> None:
    shapes = {}
    for name in ("gpt2", "mlp", "unet"):
        target = models.build(name, batch=3, light=True, loss=True, **TINY[name]).graph.input[-1]
        shapes[name] = tuple(dim.dim_value for dim in target.type.tensor_type.shape.dim)
    assert shapes == {"gpt2": (3, 10), "mlp": (3,), "unet": (3, 16, 16)}


@pytest.mark.parametrize("name", models.names())
def test_batch_can_be_rebound_by_the_inputs_alone(name: str) -> None:
    model = models.build(name, batch=3, light=True, loss=True, **TINY[name])
    shape = _output_shapes(model)[1]
    assert _output_shapes(_rebatched(model, 5))[1] == (5, *shape[1:])


@pytest.mark.parametrize("name", models.names())
def test_same_arguments_give_the_same_bytes(name: str) -> None:
    first, second, other = (
        models.build(name, batch=2, seed=seed, **TINY[name]).SerializeToString(deterministic=True) for seed in (4, 4, 5)
    )
    assert first == second
    assert first != other


@pytest.mark.parametrize("name", models.names())
def test_normalisation_and_dropout_are_in_training_form(name: str) -> None:
    model = models.build(name, light=True, **TINY[name])
    for node in _nodes(model, "BatchNormalization"):
        assert helper.get_node_attr_value(node, "training_mode") == 1
        assert list(node.output)[1:] == [f"{node.input[3]}_next", f"{node.input[4]}_next"]
    constants = {node.output[0]: node.attribute[0].t for node in _nodes(model, "Constant")}
    for node in _nodes(model, "Dropout"):
        assert numpy_helper.to_array(constants[node.input[2]])


@pytest.mark.parametrize("name", models.names())
def test_float_constants_are_nodes_so_that_none_is_taken_for_a_parameter(name: str) -> None:
    """Every float initializer is a weight, a bias, an embedding or a statistic by name."""
    model = models.build(name, **TINY[name])
    endings = (".weight", ".bias", ".running_mean", ".running_var", "class_token", "pos_embedding")
    floats = [tensor.name for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT]
    assert all(tensor.endswith(endings) for tensor in floats)


@pytest.mark.parametrize("name", models.names())
def test_random_weights_are_finite_and_centred(name: str) -> None:
    for tensor in models.build(name, **TINY[name]).graph.initializer:
        values = numpy_helper.to_array(tensor)
        assert np.isfinite(values).all()
        assert float(np.abs(values).max()) <= 10 or values.dtype == np.int64
