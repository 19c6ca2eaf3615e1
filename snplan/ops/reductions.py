"""Reductions, arg-extrema, running sums, top-k, and their gradients."""

from __future__ import annotations

from snplan.ir import Attrs, DType, Spec
from snplan.ops.attributes import get_bool, get_int
from snplan.ops.base import Kind, Specs, register
from snplan.ops.shapes import get_axis, need, need_count, need_float, need_number, reduced, reduction_shape


def input_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """One operation for each element of the inputs."""
    return sum(spec.elements for spec in inputs)


def infer_reduction(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input without `axes`, or with ones there."""
    need_count(specs, 1)
    need_number(specs[0])
    return (Spec(specs[0].dtype, reduction_shape(specs[0], attrs)),)


def infer_log_sum_exp(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """As a reduction; the input must be float."""
    need_count(specs, 1)
    need_float(specs[0])
    return infer_reduction(specs, attrs)


def infer_arg(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """int64, the input without `axis` or with one there."""
    need_count(specs, 1)
    need_number(specs[0])
    axis = get_axis(attrs, specs[0].rank)
    need(specs[0].shape[axis] > 0, f"axis {axis} has no elements")
    return (Spec(DType.INT64, reduced(specs[0].shape, (axis,), get_bool(attrs, "keepdims"))),)


def infer_cum_sum(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input's spec."""
    need_count(specs, 1)
    need_number(specs[0])
    get_axis(attrs, specs[0].rank)
    return (specs[0],)


def infer_top_k(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """Values and int64 indices, `k` along `axis`."""
    need_count(specs, 1)
    x = specs[0]
    need_number(x)
    axis, k = get_axis(attrs, x.rank), get_int(attrs, "k")
    need(0 <= k <= x.shape[axis], f"k is {k}, but axis {axis} has {x.shape[axis]} elements")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return Spec(x.dtype, shape), Spec(DType.INT64, shape)


_PLAIN = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")

register(
    *(Kind(name=name, infer=infer_reduction, flops=input_flops) for name in _PLAIN),
    Kind(name="reduce_log_sum_exp", infer=infer_log_sum_exp, flops=input_flops),
    Kind(name="arg_max", infer=infer_arg, flops=input_flops),
    Kind(name="arg_min", infer=infer_arg, flops=input_flops),
    Kind(name="cum_sum", infer=infer_cum_sum),
    Kind(name="top_k", infer=infer_top_k, flops=input_flops),
)
