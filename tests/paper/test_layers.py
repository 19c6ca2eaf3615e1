"""The paper's networks as layers: the list of its section 4, Algorithm 1's route, and what backward steps read."""

from __future__ import annotations

from math import prod

import pytest
from superneurons.drawings import FIG5, FIG6, fig5_network, step_names, tensor_names
from superneurons.layers import FLOAT, Kind, route
from superneurons.memory import in_out_sets
from superneurons.networks import network
from superneurons.trace import trace
from tests_support import forward_of

from snplan.passes.route import route as step_route

# Section 4.1, with the feature maps of AlexNet on 227x227: kind and output of one image.
ALEXNET = [
    ("CONV", (96, 55, 55)),
    ("ACT", (96, 55, 55)),
    ("LRN", (96, 55, 55)),
    ("POOL", (96, 27, 27)),
    ("CONV", (256, 27, 27)),
    ("ACT", (256, 27, 27)),
    ("LRN", (256, 27, 27)),
    ("POOL", (256, 13, 13)),
    ("CONV", (384, 13, 13)),
    ("ACT", (384, 13, 13)),
    ("CONV", (384, 13, 13)),
    ("ACT", (384, 13, 13)),
    ("CONV", (256, 13, 13)),
    ("ACT", (256, 13, 13)),
    ("POOL", (256, 6, 6)),
    ("FC", (4096,)),
    ("ACT", (4096,)),
    ("DROPOUT", (4096,)),
    ("FC", (4096,)),
    ("ACT", (4096,)),
    ("DROPOUT", (4096,)),
    ("FC", (1000,)),
    ("SOFTMAX", (1000,)),
]


def test_alexnet_has_the_papers_layers() -> None:
    layers = network("alexnet", 200).layers
    assert layers[0].shape == (200, 3, 227, 227)
    assert [(layer.kind, layer.shape[1:]) for layer in layers[1:]] == ALEXNET


def test_alexnet_is_a_chain() -> None:
    layers = network("alexnet", 8).layers
    assert [layer.inputs for layer in layers[1:]] == [(layer.name,) for layer in layers[:-1]]


def test_alexnet_has_twelve_gradients() -> None:
    step = trace(network("alexnet", 200))
    gradients = [tensor.layer for tensor in step.tensors if tensor.role == "gradient"]
    assert len(step.tensors) == 36
    # Named after the last layer that shares each: the gradient goes through ACT and LRN in place.
    assert sorted(gradients) == sorted(
        ["lrn1", "pool1", "lrn2", "pool2", "relu3", "relu4", "relu5", "pool5", "relu6", "dropout1", "relu7", "dropout2"]
    )


def test_parameters_of_alexnet() -> None:
    filters: list[tuple[int, ...]] = [
        (96, 3, 11, 11),
        (256, 96, 5, 5),
        (384, 256, 3, 3),
        (384, 384, 3, 3),
        (256, 384, 3, 3),
    ]
    filters += [(4096, 9216), (4096, 4096), (1000, 4096)]
    assert network("alexnet", 8).parameter_bytes == FLOAT * sum(prod(shape) + shape[0] for shape in filters)


@pytest.mark.parametrize(("name", "convs", "adds"), [("resnet50", 53, 16), ("resnet101", 104, 33)])
def test_residual_networks(name: str, convs: int, adds: int) -> None:
    kinds = [layer.kind for layer in network(name, 2).layers]
    assert (kinds.count(Kind.CONV), kinds.count(Kind.ADD)) == (convs, adds)
    assert kinds.count(Kind.BN) == convs - 4  # none behind the four projections


def test_route_is_topological_on_inception() -> None:
    layers = network("inception_v4", 2).layers
    place = {layer.name: i for i, layer in enumerate(layers)}
    assert all(place[source] < place[layer.name] for layer in layers for source in layer.inputs)


def test_figure_6_route() -> None:
    """Nested fans (b, c, d) and (f, g, h); e, g and h are the prerequisites of i."""
    assert route(FIG6) == list("abcedfghij")


def test_figure_5_route() -> None:
    names = step_names(trace(fig5_network()))
    assert names[:6] == ["DATA0", "CONV1", "CONV2", "POOL3", "FC4", "SOFTMAX5"]
    assert names[6:] == ["SOFTMAX6", "FC7", "POOL8", "CONV9", "CONV10", "DATA11"]


def test_figure_5_sets() -> None:
    step = trace(fig5_network())
    names = tensor_names(step)
    sets = [tuple("".join(sorted(names[t][1:] for t in each)) for each in pair) for pair in in_out_sets(step)]
    assert sets == [
        ("", "0"),
        ("0", "01"),
        ("01", "012"),
        ("012", "0123"),
        ("0123", "01234"),
        ("01234", "012345"),
        ("012345", "01235"),  # SOFTMAX6 writes its gradient over t5; t4, the output of FC4, goes
        ("01235", "0136"),  # FC7: "Since t2 and t5 are no longer needed after FC7"
        ("0136", "016"),
        ("016", "07"),  # CONV9 requires t1, t6 and t7
        ("07", ""),
        ("", ""),
    ]


@pytest.mark.parametrize("shape", [{name: inputs for name, (_, inputs) in FIG5.items()}, FIG6], ids=["fig5", "fig6"])
def test_the_planner_takes_the_same_route(shape: dict[str, tuple[str, ...]]) -> None:
    """`snplan.passes.route` orders ops as the paper orders layers."""
    forward = forward_of({name: inputs or ("x",) for name, inputs in shape.items()})
    assert [op.name for op in step_route(forward.graph).ops] == route(shape)
