"""Kinds that draw from a random stream: dropout, its mask, uniform and normal numbers."""

from __future__ import annotations

from snplan.ir import Attrs, DType, Spec
from snplan.ops.attributes import get_dtype, get_float, get_shape
from snplan.ops.base import Kind, Specs, register
from snplan.ops.forms import DTYPE, NUMBER, SHAPE, takes
from snplan.ops.gradients import linear_gradient
from snplan.ops.shapes import need, need_count, need_float


def _check_ratio(attrs: Attrs) -> None:
    ratio = get_float(attrs, "ratio")
    need(0 <= ratio < 1, f"ratio must be in [0, 1), it is {ratio}")


def infer_dropout(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input's spec."""
    need_count(specs, 1)
    need_float(specs[0])
    _check_ratio(attrs)
    return (specs[0],)


def infer_dropout_mask(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """Bool of `shape`."""
    need_count(specs, 0)
    _check_ratio(attrs)
    return (Spec(DType.BOOL, get_shape(attrs)),)


def infer_random(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape` of the float type `dtype`."""
    need_count(specs, 0)
    spec = Spec(get_dtype(attrs), get_shape(attrs))
    need_float(spec, "the result")
    return (spec,)


def random_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """About twenty operations for each number: ten rounds of the counter-based generator."""
    return 20 * outputs[0].elements


register(
    Kind(
        name="dropout",
        infer=infer_dropout,
        gradient=linear_gradient("dropout_grad"),
        inplace=((0, 0),),
        flops=random_flops,
        random=True,
    ),
    Kind(name="dropout_grad", infer=infer_dropout, inplace=((0, 0),), flops=random_flops, random=True),
    Kind(name="dropout_mask", infer=infer_dropout_mask, flops=random_flops, random=True),
    Kind(name="random_uniform", infer=infer_random, flops=random_flops, random=True),
    Kind(name="random_normal", infer=infer_random, flops=random_flops, random=True),
)

takes("dropout", "dropout_grad", "dropout_mask", ratio=NUMBER)
takes("dropout_mask", "random_uniform", "random_normal", shape=SHAPE)
takes("random_uniform", dtype=DTYPE, low=NUMBER, high=NUMBER)
takes("random_normal", dtype=DTYPE, mean=NUMBER, scale=NUMBER)
