"""Convolutions as cuDNN takes them: image, filter and result with strides, at least two spatial axes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from snplan.codegen.operand import Ints, Operand, Order, strides_of
from snplan.ir import Attrs, DType

# Ids below this are of the cost model, which knows no library; those of real engines start here.
FIRST_ENGINE_ID = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """What a convolution computes, whichever of the three is the unknown: `kind` is the op's.

    `image`, `filter` and `result` are in the sense of the forward convolution. Equal problems share their engines.
    """

    kind: str
    dtype: DType
    image: Operand
    filter: Operand
    result: Operand
    before: Ints
    after: Ints
    strides: Ints
    dilations: Ints
    group: int
    bias: bool = False

    @property
    def unknown(self) -> Operand:
        """The operand that is written."""
        return {"conv": self.result, "conv_transpose": self.image, "conv_filter": self.filter}[self.kind]

    def describe(self) -> str:
        """The problem in words, for messages."""
        text = (
            f"{self.kind} of image {self.dtype}{list(self.image.shape)}, filter {list(self.filter.shape)}, result "
            f"{list(self.result.shape)} (strides {list(self.strides)}, pads {[*self.before, *self.after]}, dilations "
            f"{list(self.dilations)}, {self.group} groups, {'channels-last' if self.is_channels_last else 'plain'})"
        )
        return f"{text} with bias" if self.bias else text

    @property
    def is_channels_last(self) -> bool:
        """Whether all three operands are in channels-last order."""
        return all(operand.channels_last for operand in (self.image, self.filter, self.result))


def convolution(kind: str, inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Attrs) -> Convolution:
    """The problem of an op of kind `conv`, `conv_transpose` or `conv_filter`."""
    known, unknown = inputs[:2], outputs[0]
    if kind == "conv":
        image, filter_, result = known[0], known[1], unknown
    elif kind == "conv_transpose":
        image, filter_, result = unknown, known[1], known[0]
    else:
        image, filter_, result = known[0], unknown, known[1]
    count = image.rank - 2
    pads = _ints(attrs["pads"])
    order = _common_order((image, filter_, result))
    missing = max(0, 2 - count)
    return Convolution(
        kind=kind,
        dtype=image.dtype,
        image=_spatial(image, order),
        filter=_spatial(filter_, order),
        result=_spatial(result, order),
        before=(0,) * missing + pads[:count],
        after=(0,) * missing + pads[count:],
        strides=(1,) * missing + _ints(attrs["strides"]),
        dilations=(1,) * missing + _ints(attrs["dilations"]),
        group=int(str(attrs["group"])),
        bias=kind == "conv" and len(inputs) == 3,
    )


def without_bias(problem: Convolution) -> Convolution:
    """The same convolution, its bias added by someone else."""
    return replace(problem, bias=False)


def engine_id(name: str, *, separate_bias: bool = False) -> int:
    """The id of an engine in plans and profiles: from its name, so that it means the same wherever it is listed."""
    return FIRST_ENGINE_ID + zlib.crc32(f"{name}{'+bias' if separate_bias else ''}".encode())


def largest_operand(problem: Convolution) -> int:
    """Elements of the largest operand: libraries count with 32 bits."""
    return max(prod(operand.shape) for operand in (problem.image, problem.filter, problem.result))


def _common_order(operands: Sequence[Operand]) -> Order | None:
    """The order that all operands are in; None where they differ. Axes of one element leave both possible."""
    if all(x.channels_last for x in operands):
        return "channels_last"
    return "plain" if all(x.plain for x in operands) else None


def _spatial(x: Operand, order: Order | None) -> Operand:
    """`x` with at least two spatial axes, and the strides that libraries recognise an order by."""
    if x.rank == 3:
        whole = x.strides[2] * x.shape[2]
        x = replace(x, shape=(*x.shape[:2], 1, x.shape[2]), strides=(*x.strides[:2], whole, x.strides[2]))
    return x if order is None else replace(x, strides=strides_of(x.shape, order))


def _ints(value: object) -> Ints:
    assert isinstance(value, (list, tuple))
    return tuple(int(x) for x in value)
