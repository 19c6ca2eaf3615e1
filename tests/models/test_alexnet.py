"""AlexNet is the paper's: its layers, feature maps, and the bytes that its first figure counts."""

import math

from onnx import ModelProto, shape_inference

from snplan import models

MIB = 2**20

# Section 4 of the SuperNeurons paper; the 23rd layer, SOFTMAX, is the loss's.
LAYERS: dict[str, tuple[int, ...]] = {
    "conv1": (96, 55, 55),
    "relu1": (96, 55, 55),
    "lrn1": (96, 55, 55),
    "pool1": (96, 27, 27),
    "conv2": (256, 27, 27),
    "relu2": (256, 27, 27),
    "lrn2": (256, 27, 27),
    "pool2": (256, 13, 13),
    "conv3": (384, 13, 13),
    "relu3": (384, 13, 13),
    "conv4": (384, 13, 13),
    "relu4": (384, 13, 13),
    "conv5": (256, 13, 13),
    "relu5": (256, 13, 13),
    "pool5": (256, 6, 6),
    "fc1": (4096,),
    "relu6": (4096,),
    "dropout1": (4096,),
    "fc2": (4096,),
    "relu7": (4096,),
    "dropout2": (4096,),
    "fc3": (1000,),
}

KINDS = {
    "conv": "Conv", "relu": "Relu", "lrn": "LRN", "pool": "MaxPool", "fc": "Gemm", "dropout": "Dropout",
}  # fmt: skip

# The layers whose gradient is a tensor of its own: ACT and LRN overwrite the one they read.
GRADIENTS = (
    "conv1",
    "pool1",
    "conv2",
    "pool2",
    "conv3",
    "conv4",
    "conv5",
    "pool5",
    "fc1",
    "dropout1",
    "fc2",
    "dropout2",
)


def _layer_shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    inferred = shape_inference.infer_shapes(model, strict_mode=True).graph
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*inferred.value_info, *inferred.output)
        if value.name in LAYERS
    }


def test_layers_are_the_papers_in_its_order() -> None:
    model = models.build("alexnet", batch=200, light=True, loss=True)
    skipped = {"Constant", "ConstantOfShape", "Flatten"}
    layers = [(node.name, node.op_type) for node in model.graph.node if node.op_type not in skipped]
    expected = [(name, KINDS[name.rstrip("1234567")]) for name in LAYERS]
    assert layers == [*expected, ("loss", "SoftmaxCrossEntropyLoss")]
    assert len(layers) == 23


def test_feature_maps_are_the_papers() -> None:
    shapes = _layer_shapes(models.build("alexnet", batch=200, light=True))
    assert shapes == {name: (200, *shape) for name, shape in LAYERS.items()}


def test_tensors_add_up_to_the_papers_baseline() -> None:
    """Figure 10a, batch 200: the input, 23 forward outputs and 12 gradients are 2189.437 MiB."""
    shapes = _layer_shapes(models.build("alexnet", batch=200, light=True))
    elements = {name: math.prod(shape) for name, shape in shapes.items()}
    image, softmax = 200 * 3 * 227 * 227, elements["fc3"]
    total = image + sum(elements.values()) + softmax + sum(elements[name] for name in GRADIENTS)
    assert len(elements) + 1 == 23
    assert round(4 * total / MIB, 3) == 2189.437


def test_convolutions_are_not_grouped_and_normalise_as_published() -> None:
    model = models.build("alexnet", light=True)
    groups = [a.i for node in model.graph.node if node.op_type == "Conv" for a in node.attribute if a.name == "group"]
    assert groups == [1] * 5
    lrn = next(node for node in model.graph.node if node.op_type == "LRN")
    constants = {a.name: round(a.f, 7) if a.name != "size" else a.i for a in lrn.attribute}
    assert constants == {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 2.0}


def test_parameters_by_hand() -> None:
    convs = [(96, 3, 11), (256, 96, 5), (384, 256, 3), (384, 384, 3), (256, 384, 3)]
    linears = [(4096, 256 * 6 * 6), (4096, 4096), (1000, 4096)]
    by_hand = sum(out * (deep * side**2 + 1) for out, deep, side in convs) + sum(o * (i + 1) for o, i in linears)
    assert by_hand == 62_378_344
