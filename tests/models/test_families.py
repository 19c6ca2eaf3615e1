"""What makes each family what it is: depth formulas, skips, branches, tying, the paper's ResNet."""

import math

import pytest
from onnx import ModelProto, NodeProto, helper, shape_inference

from snplan import models


def _nodes(model: ModelProto, kind: str) -> list[NodeProto]:
    return [node for node in model.graph.node if node.op_type == kind]


def _shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*inferred.value_info, *inferred.output)
    }


def _depth(model: ModelProto) -> int:
    """Layers on the longest path: convolutions but the projections of shortcuts, and the classifier."""
    convs = [node for node in _nodes(model, "Conv") if "downsample" not in node.name]
    return len(convs) + len(_nodes(model, "Gemm"))


@pytest.mark.parametrize(("name", "depth"), [("resnet18", 18), ("resnet34", 34), ("resnet50", 50), ("resnet101", 101)])
def test_named_resnets_have_their_depth(name: str, depth: int) -> None:
    assert _depth(models.build(name, light=True)) == depth


@pytest.mark.parametrize("blocks", [(1, 1, 1, 1), (3, 8, 36, 3), (6, 32, 15, 6)])
def test_resnet_depth_follows_the_papers_formula(blocks: tuple[int, ...]) -> None:
    model = models.build("resnet", light=True, blocks=blocks)
    assert _depth(model) == 3 * sum(blocks) + 2
    assert len(_nodes(model, "Add")) == sum(blocks)


def test_papers_deepest_resnet_is_a_small_file() -> None:
    """Table 4: 6, 32, n3 and 6 blocks; the depth nearest to the published 1920 is 1919 or 1922."""
    model = models.build("resnet", light=True, batch=16, blocks=(6, 32, 595, 6))
    assert _depth(model) == 1919
    assert model.ByteSize() < 4_000_000


def test_resnet_stages_halve_the_image_and_double_the_channels() -> None:
    shapes = _shapes(models.build("resnet50", light=True, batch=2))
    stages = [shapes[f"layer{stage}.0.relu_2"] for stage in (1, 2, 3, 4)]
    assert stages == [(2, 256, 56, 56), (2, 512, 28, 28), (2, 1024, 14, 14), (2, 2048, 7, 7)]


def test_papers_resnet_has_no_norm_behind_a_projection() -> None:
    plain, paper = (models.build("resnet50", light=True, shortcut_norm=flag) for flag in (True, False))
    assert len(_nodes(plain, "BatchNormalization")) == len(_nodes(plain, "Conv")) == 53
    assert len(_nodes(paper, "BatchNormalization")) == 49
    adds = {node.name: list(node.input) for node in _nodes(paper, "Add")}
    assert adds["layer1.0.add"] == ["layer1.0.bn3", "layer1.0.downsample.0"]


def test_basic_blocks_have_two_convolutions() -> None:
    model = models.build("resnet18", light=True)
    assert [node.name for node in _nodes(model, "Conv")][1:3] == ["layer1.0.conv1", "layer1.0.conv2"]
    assert sum("downsample" in node.name for node in _nodes(model, "Conv")) == 3


def test_vgg_has_sixteen_weighted_layers_and_a_seven_pixel_map() -> None:
    model = models.build("vgg16", light=True, batch=2)
    assert len(_nodes(model, "Conv")) + len(_nodes(model, "Gemm")) == 16
    assert _shapes(model)["pool5"] == (2, 512, 7, 7)


def test_inception_v4_stages_have_the_papers_grids() -> None:
    """Szegedy et al., figure 9: 35x35x384, 17x17x1024, 8x8x1536."""
    shapes = _shapes(models.build("inception_v4", light=True))
    assert shapes["a3.concat"] == (1, 384, 35, 35)
    assert shapes["b6.concat"] == (1, 1024, 17, 17)
    assert shapes["c2.concat"] == (1, 1536, 8, 8)


def test_inception_v4_normalises_every_convolution() -> None:
    model = models.build("inception_v4", light=True)
    normalised = {node.input[0] for node in _nodes(model, "BatchNormalization")}
    assert normalised == {node.output[0] for node in _nodes(model, "Conv")}
    assert len(normalised) == 149


def test_dense_layers_read_all_earlier_ones_of_their_block() -> None:
    model = models.build("densenet121", light=True)
    concats = {node.name: len(node.input) for node in _nodes(model, "Concat")}
    assert concats["denseblock1.denselayer6.concat"] == 6
    assert concats["denseblock4.concat"] == 17
    assert len(concats) == 6 + 12 + 24 + 16
    assert _shapes(model)["denseblock4.concat"] == (1, 1024, 7, 7)


def test_googlenet_modules_join_four_branches() -> None:
    model = models.build("googlenet", light=True)
    assert [len(node.input) for node in _nodes(model, "Concat")] == [4] * 9
    shapes = _shapes(model)
    assert shapes["inception3b.concat"] == (1, 480, 28, 28)
    assert shapes["inception4e.concat"] == (1, 832, 14, 14)
    assert shapes["inception5b.concat"] == (1, 1024, 7, 7)


def test_mobilenet_convolves_depthwise_and_adds_where_shapes_agree() -> None:
    model = models.build("mobilenet_v2", light=True)
    depthwise = [node for node in _nodes(model, "Conv") if helper.get_node_attr_value(node, "group") > 1]
    assert len(depthwise) == 17
    assert len(_nodes(model, "Add")) == 10
    assert len(_nodes(model, "Clip")) == len(_nodes(model, "Conv")) - 17


@pytest.mark.parametrize(("width", "stem", "last"), [(0.35, 16, 1280), (1.4, 48, 1792)])
def test_mobilenet_widths_are_multiples_of_eight(width: float, stem: int, last: int) -> None:
    shapes = _shapes(models.build("mobilenet_v2", light=True, width=width))
    assert shapes["stem.conv"][1] == stem
    assert shapes["last.conv"][1] == last


def test_unet_skips_join_the_same_level() -> None:
    model = models.build("unet", light=True, levels=3, image=64)
    joins = {node.name: node.input[0] for node in _nodes(model, "Concat")}
    assert joins == {f"up{level}.concat": f"down{level}.relu2" for level in (0, 1, 2)}
    assert _shapes(model)["bottom.relu2"] == (1, 512, 8, 8)


def test_gpt2_ties_the_embedding_unless_told_not_to() -> None:
    tied, untied = (models.build("gpt2", light=True, tied=flag) for flag in (True, False))
    names = {node.output[0] for node in _nodes(untied, "ConstantOfShape")}
    assert names - {node.output[0] for node in _nodes(tied, "ConstantOfShape")} == {"lm_head.weight"}
    readers = [node.op_type for node in tied.graph.node if "wte.weight" in node.input]
    assert readers == ["Gather", "Transpose"]


def test_gpt2_scores_are_per_head_and_dropout_can_go() -> None:
    model = models.build("gpt2", light=True, layers=1, heads=4, embed=32, context=16, vocab=50, batch=3)
    assert _shapes(model)["h.0.attn.softmax"] == (3, 4, 16, 16)
    assert len(_nodes(model, "Dropout")) == 4
    bare = models.build("gpt2", light=True, layers=1, heads=4, embed=32, context=16, vocab=50, dropout=0)
    assert not _nodes(bare, "Dropout")


def test_vit_reads_one_row_a_patch_and_the_class_token() -> None:
    model = models.build("vit_b16", light=True, batch=2)
    assert _shapes(model)["ln"] == (2, 197, 768)
    assert len(_nodes(model, "Softmax")) == 12


def test_width_scales_every_channel_count() -> None:
    half = models.build("resnet18", light=True, width=0.5)
    assert _shapes(half)["conv1"] == (1, 32, 112, 112)
    assert _shapes(half)["avgpool"] == (1, 256, 1, 1)
    assert math.prod(_shapes(half)["fc"]) == 1000
