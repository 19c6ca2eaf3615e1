"""The paper's networks as layers, written by the zoo's own model functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod

from snplan.models.builder import Attribute, Shape
from snplan.models.layers import Network as ModelNetwork
from snplan.models.option import read_all
from snplan.models.registry import MODELS
from superneurons.layers import FLOAT, Kind, Layer, Network, make_network

TITLES = {
    "alexnet": "AlexNet",
    "vgg16": "VGG16",
    "vgg19": "VGG19",
    "inception_v4": "InceptionV4",
    "resnet50": "ResNet50",
    "resnet101": "ResNet101",
    "resnet152": "ResNet152",
}
"""Zoo name -> the paper's name."""

SIX = ("alexnet", "vgg16", "inception_v4", "resnet50", "resnet101", "resnet152")
"""The networks of tables 2 and 5 and of Figures 11 and 13."""

_KINDS = {
    "Conv": Kind.CONV,
    "Gemm": Kind.FC,
    "Relu": Kind.ACT,
    "LRN": Kind.LRN,
    "BatchNormalization": Kind.BN,
    "MaxPool": Kind.POOL,
    "AveragePool": Kind.POOL,
    "GlobalAveragePool": Kind.POOL,
    "Dropout": Kind.DROPOUT,
    "Add": Kind.ADD,
    "Concat": Kind.CONCAT,
}


class _Recorder(ModelNetwork):
    """Writes a model of the zoo and notes its layers; a flatten is no layer, since it moves no bytes."""

    def __init__(self, name: str, batch: int) -> None:
        super().__init__(name, batch=batch, light=True, seed=0)
        self.noted: list[Layer] = []
        self.parameter_bytes = 0
        self._source: dict[str, str] = {}

    def input(self, name: str, shape: Shape, dtype: int = 1) -> str:
        made = super().input(name, shape, dtype)
        self._note(made, Kind.DATA, ())
        return made

    def weight(self, name: str, shape: Shape, *, std: float = 0.0, fill: float = 0.0) -> str:
        # Running statistics are state, not parameters.
        if ".running_" not in name:
            self.parameter_bytes += FLOAT * prod(shape)
        return super().weight(name, shape, std=std, fill=fill)

    def emit(self, kind: str, inputs: Sequence[str], outputs: Mapping[str, Shape], **attrs: Attribute | None) -> str:
        made = super().emit(kind, inputs, outputs, **attrs)
        sources = tuple(self._source[name] for name in inputs if name in self._source)
        if kind in _KINDS:
            weight = self.shape(inputs[1]) if kind in ("Conv", "Gemm") else ()
            self._note(made, _KINDS[kind], sources, weight, attrs)
        else:
            self._source[made] = sources[0]
        return made

    def end(self, logits: str) -> None:
        """Note the softmax over the logits."""
        self.noted.append(
            Layer(name="softmax", kind=Kind.SOFTMAX, inputs=(self._source[logits],), shape=self.shape(logits))
        )

    def _note(
        self,
        name: str,
        kind: Kind,
        sources: tuple[str, ...],
        weight: Shape = (),
        attrs: Mapping[str, Attribute | None] | None = None,
    ) -> None:
        self._source[name] = name
        self.noted.append(
            Layer(name=name, kind=kind, inputs=sources, shape=self.shape(name), weight=weight, attrs=attrs or {})
        )


@cache
def network(name: str, batch: int) -> Network:
    """A model of the zoo as layers. Residual networks have the paper's form: no BN behind a shortcut's projection."""
    entry = MODELS[name]
    form = {"shortcut_norm": False} if "shortcut_norm" in entry.options else {}
    recorder = _Recorder(name, batch)
    recorder.end(entry.write(recorder, **read_all(name, entry.options, form), **entry.settled))
    return make_network(name, recorder.noted, recorder.parameter_bytes)
