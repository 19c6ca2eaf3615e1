"""Convolutions cut into pieces of the batch, which need less workspace and compute the same.

The idea is mu-cuDNN's (Oyama et al., CLUSTER 2018). Images do not meet in a convolution or its data gradient. A filter
gradient is a sum over images: its pieces are partial filters, which are summed in order.
"""

from __future__ import annotations

from dataclasses import replace

from snplan.ir import Attrs, Spec
from snplan.ops.base import KINDS, Specs
from snplan.ops.shapes import need

_CUT = {"conv": (0,), "conv_transpose": (0,), "conv_filter": (0, 1)}
"""The inputs of each kind that have the batch as their first axis."""

ALIGNMENT = 16
"""Pieces start at multiples of so many bytes: libraries take that of every address that they are given."""


def piece_sizes(batch: int, pieces: int) -> tuple[int, ...]:
    """Images of each piece: `batch / pieces`, rounded up, and in the last what is left. Needs a piece for each."""
    size = -(-batch // pieces)
    return (*(size,) * (pieces - 1), batch - (pieces - 1) * size)


def check_pieces(kind: str, inputs: Specs, attrs: Attrs, pieces: int) -> None:
    """Raises ShapeError where an op cannot run in so many pieces; inputs as the op reads them.

    It is no convolution, the batch is too small, a piece would not start at a multiple of 16 bytes, or partial filters
    have fewer than 32 bits and would be rounded when they are summed.
    """
    need(kind in _CUT, f"a {kind} is not run in pieces of the batch; only convolutions are")
    batch, dtype = inputs[0].shape[0], inputs[0].dtype
    sizes = piece_sizes(batch, pieces)
    need(sizes[-1] > 0, f"a batch of {batch} cannot be cut into {pieces} pieces of one size and a smaller last one")
    if kind == "conv_filter":
        need(dtype.bits >= 32, f"partial filters of {dtype} would be rounded; pieces need 32 bits or more")
    cut, attrs = piece_of(kind, inputs, attrs, sizes[0])
    moved = [cut[i] for i in _CUT[kind]] + ([] if kind == "conv_filter" else [KINDS[kind].infer(cut, attrs)[0]])
    for spec in moved:
        need(
            spec.bytes % ALIGNMENT == 0,
            f"a piece of {sizes[0]} images takes {spec.bytes} bytes, the next would not start at a multiple of "
            f"{ALIGNMENT}",
        )


def piece_of(kind: str, inputs: Specs, attrs: Attrs, images: int) -> tuple[Specs, Attrs]:
    """Inputs and attributes of a piece of so many images of an op that can be cut."""
    cut = tuple(_first(spec, images) if i in _CUT[kind] else spec for i, spec in enumerate(inputs))
    shape = attrs.get("shape")
    if kind == "conv_transpose" and isinstance(shape, list):
        attrs = {**attrs, "shape": [images, *shape[1:]]}
    return cut, attrs


def _first(spec: Spec, images: int) -> Spec:
    return replace(spec, shape=(images, *spec.shape[1:]))
