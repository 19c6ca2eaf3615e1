"""Batch normalisation in pieces, as fusion takes it apart: sums over the batch, and what is done to each element.

The vectors of channels are read under the shape [C, 1, ...], which broadcasts to x: applying is elementwise.
"""

from __future__ import annotations

from snplan.ir import Attrs, Spec
from snplan.ops.attributes import get_float, get_int
from snplan.ops.base import Kind, Specs, register
from snplan.ops.forms import INTEGER, NUMBER, takes
from snplan.ops.shapes import (
    broadcasts_to,
    need,
    need_count,
    need_float,
    need_rank,
    need_same,
    need_shape,
    show,
    statistics_dtype,
)


def _check(specs: Specs) -> None:
    """Raise ShapeError unless all are float, the first of rank 2 or more, and the others broadcast to it."""
    need_rank(specs[0], 2, what="x")
    for spec in specs:
        need_float(spec)
        need(broadcasts_to(spec.shape, specs[0].shape), f"{show(spec)} does not broadcast to x {show(specs[0])}")


def infer_statistics(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """Mean, population variance and 1 / sqrt(variance + epsilon) of the channels, at least float32."""
    need_count(specs, 1)
    _check(specs)
    get_float(attrs, "epsilon")
    return (Spec(statistics_dtype(specs[0].dtype), specs[0].shape[1:2]),) * 3


def infer_inverse(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """1 / sqrt(variance + epsilon), as the variance."""
    need_count(specs, 1)
    need_float(specs[0], "the variance")
    need_rank(specs[0], 1, 1, "the variance")
    get_float(attrs, "epsilon")
    return (specs[0],)


def infer_apply(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """y as x."""
    need_count(specs, 5)
    _check(specs)
    return (specs[0],)


def infer_grad_sums(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """Gradients of scale and bias, of the statistics' type."""
    need_count(specs, 4)
    _check(specs)
    need_same(specs[0], specs[3], "x and dy")
    need_same(specs[1], specs[2], "mean and inv_std")
    channels = specs[0].shape[1]
    need_shape(specs[1], (channels, *(1,) * (specs[0].rank - 2)), "mean")
    return (Spec(specs[1].dtype, (channels,)),) * 2


def infer_grad_apply(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """dx as x."""
    need_count(specs, 7)
    _check(specs)
    need_same(specs[0], specs[6], "x and dy")
    get_int(attrs, "count")
    return (specs[0],)


def apply_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """Four operations for each element: two products, a difference, a sum."""
    return 4 * inputs[0].elements


def sums_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """Four operations for each element of x: a difference, its square or product, two sums."""
    return 4 * inputs[0].elements


def grad_apply_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """Six operations for each element."""
    return 6 * inputs[0].elements


register(
    Kind(name="batch_norm_statistics", infer=infer_statistics, flops=sums_flops),
    Kind(name="batch_norm_inverse", infer=infer_inverse, inplace=((0, 0),)),
    Kind(name="batch_norm_apply", infer=infer_apply, inplace=((0, 0),), flops=apply_flops),
    Kind(name="batch_norm_grad_sums", infer=infer_grad_sums, flops=sums_flops),
    Kind(name="batch_norm_grad_apply", infer=infer_grad_apply, inplace=((0, 6), (0, 0)), flops=grad_apply_flops),
)

takes("batch_norm_statistics", "batch_norm_inverse", epsilon=NUMBER)
takes("batch_norm_grad_apply", count=INTEGER)
