"""The models of the zoo by name, and `build`, which writes one of them as an ONNX model in training form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from snplan.models import (
    alexnet,
    densenet,
    googlenet,
    gpt,
    inception_v4,
    mlp,
    mobilenet,
    resnet,
    unet,
    vgg,
    vit,
)
from snplan.models.option import Option, OptionValue, read_all

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model: what writes its logits, what it is, the options it takes, and those that its name settles."""

    write: Callable[..., str]
    summary: str
    options: Mapping[str, Option]
    settled: Mapping[str, OptionValue] = field(default_factory=dict)


def _resnet(depth: int, bottleneck: bool, *blocks: int) -> Entry:
    options = {name: option for name, option in resnet.OPTIONS.items() if name != "blocks"}
    settled: dict[str, OptionValue] = {"bottleneck": bottleneck, "blocks": blocks}
    return Entry(write=resnet.resnet, summary=f"ResNet-{depth}", options=options, settled=settled)


MODELS: Mapping[str, Entry] = {
    "alexnet": Entry(write=alexnet.alexnet, summary="AlexNet, one tower, 227x227", options=alexnet.OPTIONS),
    "densenet121": Entry(
        write=densenet.densenet,
        summary="DenseNet-121",
        options=densenet.OPTIONS,
        settled={"blocks": (6, 12, 24, 16)},
    ),
    "googlenet": Entry(write=googlenet.googlenet, summary="GoogLeNet with BN", options=googlenet.OPTIONS),
    "gpt2": Entry(write=gpt.gpt2, summary="GPT-2 language model", options=gpt.OPTIONS),
    "inception_v4": Entry(write=inception_v4.inception_v4, summary="Inception-v4", options=inception_v4.OPTIONS),
    "mlp": Entry(write=mlp.mlp, summary="multi-layer perceptron", options=mlp.OPTIONS),
    "mobilenet_v2": Entry(write=mobilenet.mobilenet_v2, summary="MobileNetV2", options=mobilenet.OPTIONS),
    "resnet": Entry(
        write=resnet.resnet,
        summary="bottleneck ResNet of any depth",
        options=resnet.OPTIONS,
        settled={"bottleneck": True},
    ),
    "resnet18": _resnet(18, False, 2, 2, 2, 2),
    "resnet34": _resnet(34, False, 3, 4, 6, 3),
    "resnet50": _resnet(50, True, 3, 4, 6, 3),
    "resnet101": _resnet(101, True, 3, 4, 23, 3),
    "resnet152": _resnet(152, True, 3, 8, 36, 3),
    "unet": Entry(write=unet.unet, summary="U-Net with BN and padded convolutions", options=unet.OPTIONS),
    "vgg16": Entry(write=vgg.vgg, summary="VGG-16", options=vgg.OPTIONS, settled={"convs": (2, 2, 3, 3, 3)}),
    "vgg19": Entry(write=vgg.vgg, summary="VGG-19", options=vgg.OPTIONS, settled={"convs": (2, 2, 4, 4, 4)}),
    "vit_b16": Entry(write=vit.vit, summary="vision transformer ViT-B/16", options=vit.OPTIONS),
}

ALIASES: Mapping[str, str] = {"inceptionv4": "inception_v4", "mobilenetv2": "mobilenet_v2"}


def names() -> tuple[str, ...]:
    """The names of the models, sorted; aliases are left out."""
    return tuple(sorted(MODELS))


def options(name: str) -> Mapping[str, Option]:
    """The options of a model by name: default, help and smallest value. Raises ValueError on an unknown model."""
    return MappingProxyType(dict(_entry(name).options))


def summary(name: str) -> str:
    """What a model is, in a few words. Raises ValueError on an unknown model."""
    return _entry(name).summary


def build(
    name: str, *, batch: int = 1, light: bool = False, seed: int = 0, loss: bool = False, **options: object
) -> ModelProto:
    """The model in training form, the logits its first output; with `loss` the scalar mean cross-entropy goes first.

    A light model has no weights of more than 64 elements: each is `NAME__SHAPE` -> ConstantOfShape -> `NAME`. The same
    arguments give the same bytes. Raises ValueError on an unknown model or option, a value out of range, or an image
    too small for the model.
    """
    entry = _entry(name)
    if batch < 1:
        raise ValueError(f"batch is {batch}; the smallest batch is 1")
    if seed < 0:
        raise ValueError(f"seed is {seed}; the smallest seed is 0")
    values = {**read_all(name, entry.options, options), **entry.settled}

    from snplan.models.head import finish  # onnx and numpy load only when a model is written
    from snplan.models.layers import Network

    net = Network(ALIASES.get(name, name), batch=batch, light=light, seed=seed)
    finish(net, entry.write(net, **values), loss=loss)
    return net.model()


def _entry(name: str) -> Entry:
    entry = MODELS.get(ALIASES.get(name, name))
    if entry is None:
        raise ValueError(f"no model {name!r}; the models are {', '.join(names())}")
    return entry
