"""Options away from their defaults: each variant is valid, and changes what it says and nothing else."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, checker, helper, numpy_helper, shape_inference

from snplan import models

VARIANTS: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("alexnet", {"image": 224, "width": 0.25, "channels": 1, "classes": 10}, (2, 10)),
    ("alexnet", {"width": 0.1, "dropout": 0}, (2, 1000)),
    ("densenet121", {"image": 64, "growth": 8, "channels": 4}, (2, 1000)),
    ("googlenet", {"image": 65, "width": 0.3}, (2, 1000)),
    ("gpt2", {"layers": 1, "heads": 1, "embed": 4, "context": 1, "vocab": 2}, (2, 1, 2)),
    ("gpt2", {"layers": 3, "heads": 8, "embed": 64, "context": 33, "vocab": 11, "tied": False}, (2, 33, 11)),
    ("inception_v4", {"image": 128, "width": 0.2, "blocks": (2, 1, 1), "dropout": 0}, (2, 1000)),
    ("mlp", {"widths": (3, 2)}, (2, 2)),
    ("mlp", {"widths": (100, 50, 50, 50, 3), "dropout": 0.9}, (2, 3)),
    ("mobilenet_v2", {"image": 33, "width": 0.05, "channels": 1}, (2, 1000)),
    ("resnet", {"blocks": (1,), "image": 16, "width": 0.25}, (2, 1000)),
    ("resnet", {"blocks": (1, 1, 1, 1, 2, 1), "image": 32, "width": 0.1}, (2, 1000)),
    ("resnet34", {"image": 33, "width": 0.5, "shortcut_norm": False}, (2, 1000)),
    ("unet", {"image": 6, "levels": 1, "classes": 3, "channels": 1}, (2, 3, 6, 6)),
    ("unet", {"image": 64, "levels": 6, "width": 0.1}, (2, 2, 64, 64)),
    ("vgg19", {"image": 64, "width": 0.1, "classes": 4}, (2, 4)),
    ("vit_b16", {"image": 30, "patch": 10, "layers": 1, "heads": 4, "embed": 16, "dropout": 0.1}, (2, 1000)),
]


def _inferred_outputs(model: ModelProto) -> list[tuple[int, ...]]:
    bare = ModelProto()
    bare.CopyFrom(model)
    del bare.graph.output[:]
    bare.graph.output.extend(helper.make_empty_tensor_value_info(output.name) for output in model.graph.output)
    inferred = shape_inference.infer_shapes(bare, check_type=True, strict_mode=True, data_prop=True)
    return [tuple(dim.dim_value for dim in output.type.tensor_type.shape.dim) for output in inferred.graph.output]


def _kinds(model: ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def _weight_shapes(model: ModelProto) -> dict[str, list[int]]:
    """The dimensions of every float weight of a light model."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    shapes = {name: list(tensor.dims) for name, tensor in tensors.items() if tensor.data_type == 1}
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = numpy_helper.to_array(tensors[node.input[0]]).tolist()
    return shapes


@pytest.mark.parametrize(("name", "options", "logits"), VARIANTS)
@pytest.mark.parametrize("light", [False, True])
def test_variant_is_valid_and_of_the_stated_shape(
    name: str, options: dict[str, Any], logits: tuple[int, ...], light: bool
) -> None:
    model = models.build(name, batch=2, light=light, **options)
    checker.check_model(model, full_check=True)
    assert _inferred_outputs(model) == [logits]


@given(
    blocks=st.lists(st.integers(1, 3), min_size=1, max_size=5).map(tuple),
    image=st.integers(1, 70),
    width=st.floats(0.01, 0.4),
    batch=st.integers(1, 5),
    shortcut_norm=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_any_resnet_is_valid(
    blocks: tuple[int, ...], image: int, width: float, batch: int, shortcut_norm: bool
) -> None:
    """Padding lets even an image of one pixel through; shapes tracked while writing are those that onnx infers."""
    model = models.build(
        "resnet", batch=batch, light=True, loss=True, blocks=blocks, image=image, width=width,
        shortcut_norm=shortcut_norm, classes=3,
    )  # fmt: skip
    checker.check_model(model, full_check=True)
    assert _inferred_outputs(model) == [(), (batch, 3)]
    assert _kinds(model)["Relu"] == 3 * sum(blocks) + 1


@given(
    layers=st.integers(1, 3),
    heads=st.integers(1, 4),
    per_head=st.integers(1, 8),
    context=st.integers(1, 70),
    vocab=st.integers(1, 100),
    dropout=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=25, deadline=None)
def test_any_gpt_is_valid(layers: int, heads: int, per_head: int, context: int, vocab: int, dropout: float) -> None:
    model = models.build(
        "gpt2", batch=2, light=True, loss=True, layers=layers, heads=heads, embed=heads * per_head,
        context=context, vocab=vocab, dropout=dropout,
    )  # fmt: skip
    checker.check_model(model, full_check=True)
    assert _inferred_outputs(model) == [(), (2, context, vocab)]
    assert _kinds(model)["Dropout"] == (3 * layers + 1 if dropout else 0)


@pytest.mark.parametrize("name", ["gpt2", "vit_b16"])
def test_transformer_parameters_by_formula(name: str) -> None:
    """A block of width d holds 12 d^2 + 13 d: 3 + 1 + 4 + 4 matrices; 9 biases and 4 norm vectors."""
    one, three = (_weight_shapes(models.build(name, light=True, layers=layers)) for layers in (1, 3))
    per_block = (sum(map(math.prod, three.values())) - sum(map(math.prod, one.values()))) // 2
    assert per_block == 12 * 768**2 + 13 * 768


def test_dropout_ratio_changes_no_weight() -> None:
    with_dropout, without = (models.build("vgg16", light=True, dropout=ratio) for ratio in (0.3, 0))
    assert _weight_shapes(with_dropout) == _weight_shapes(without)
    assert _kinds(with_dropout) - _kinds(without) == {"Dropout": 2, "Constant": 2}


def test_loss_changes_no_weight() -> None:
    plain, loss = (models.build("mlp", seed=3, loss=flag) for flag in (False, True))
    assert list(plain.graph.initializer) == list(loss.graph.initializer)


def test_batch_changes_the_inputs_and_outputs_only() -> None:
    one, many = (models.build("gpt2", batch=batch, light=True, layers=2, loss=True) for batch in (1, 64))
    assert list(one.graph.node) == list(many.graph.node)
    assert list(one.graph.initializer) == list(many.graph.initializer)
    assert list(one.graph.input) != list(many.graph.input)


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet50", "googlenet", "inception_v4", "unet"])
def test_width_scales_weights_by_its_square(name: str) -> None:
    """Weights between two scaled layers hold a quarter of the elements at half the width."""
    full, half = (_weight_shapes(models.build(name, light=True, width=width)) for width in (1.0, 0.5))
    assert full.keys() == half.keys()
    inner = [key for key, shape in full.items() if len(shape) == 4 and shape[1] > 3 and half[key][0] < shape[0]]
    assert len(inner) >= 4
    assert all(math.prod(full[key]) == 4 * math.prod(half[key]) for key in inner)
