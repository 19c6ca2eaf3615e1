"""The zoo's AlexNet and ResNets have the paper's segments: the counts of recomputed layers in its Table 1."""

from collections import Counter
from typing import Any

import pytest
from onnx import ModelProto

from snplan import models

KEPT = {"Conv", "Gemm", "Add", "Concat", "SoftmaxCrossEntropyLoss"}
NO_LAYER = {"Constant", "ConstantOfShape", "Flatten"}


def _segments(model: ModelProto) -> list[int]:
    """Lengths of the runs of layers between kept ones. A layer whose output has several readers is kept."""
    readers = Counter(tensor for node in model.graph.node for tensor in node.input)
    runs = [0]
    for node in model.graph.node:
        if node.op_type in NO_LAYER:
            continue
        if node.op_type in KEPT or readers[node.output[0]] > 1:
            runs.append(0)
        else:
            runs[-1] += 1
    return [run for run in runs if run]


def test_alexnet_segments() -> None:
    assert _segments(models.build("alexnet", light=True, loss=True)) == [3, 3, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("name", "speed", "memory"), [("alexnet", 14, 23), ("resnet50", 84, 118), ("resnet101", 169, 237)]
)
def test_recomputed_layers_of_table_1(name: str, speed: int, memory: int) -> None:
    """A segment of n layers costs n extra runs speed-centric, n (n + 1) / 2 memory-centric."""
    paper_form: dict[str, Any] = {} if name == "alexnet" else {"shortcut_norm": False}
    segments = _segments(models.build(name, light=True, loss=True, **paper_form))
    assert sum(segments) == speed
    assert sum(n * (n + 1) // 2 for n in segments) == memory


def test_norm_behind_projections_adds_four_segments() -> None:
    """88 and 122 instead of 84 and 118 for ResNet-50 in torchvision's form."""
    segments = _segments(models.build("resnet50", light=True, loss=True))
    assert (sum(segments), sum(n * (n + 1) // 2 for n in segments)) == (88, 122)
