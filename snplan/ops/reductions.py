"""Reductions, arg-extrema, running sums, top-k, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from snplan.ir import Attrs, DType, Op, Spec
from snplan.ops.attributes import get_bool, get_int
from snplan.ops.base import Backward, GradientRule, Kind, Specs, register
from snplan.ops.forms import FLAG, INTEGER, INTEGERS, takes
from snplan.ops.gradients import linear_gradient, reshaped, with_shape
from snplan.ops.shapes import (
    get_axes,
    get_axis,
    need,
    need_count,
    need_float,
    need_number,
    need_same_dtype,
    need_shape,
    reduced,
    reduction_shape,
)


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


def infer_reduction_gradient(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """x's spec, the first input's; the others look as the reduction's result."""
    need_count(specs, 2, 3)
    need_float(specs[0], "x")
    need_same_dtype(specs)
    shape = reduction_shape(specs[0], attrs)
    for spec in specs[1:]:
        need_shape(spec, shape, "y and dy")
    return (specs[0],)


def _stretched(b: Backward, op: Op, gradient: str) -> str:
    """`gradient`, of the shape of a reduction's result, repeated along the reduced axes."""
    x = b.spec(op.inputs[0]).shape
    kept = reshaped(b, gradient, reduced(x, get_axes(op.attrs, len(x)), True))
    return b.emit("expand", [kept], {"shape": [*x]})[0]


def gradient_sum(b: Backward, op: Op) -> Mapping[int, str]:
    """dy repeated along the reduced axes."""
    return {0: _stretched(b, op, b.dy())}


def gradient_mean(b: Backward, op: Op) -> Mapping[int, str]:
    """dy / count, repeated along the reduced axes."""
    x = b.spec(op.inputs[0]).shape
    count = prod(x[axis] for axis in get_axes(op.attrs, len(x)))
    # A mean of nothing has no element to give a gradient to: any divisor will do.
    (share,) = b.emit("div", [b.dy()], {"scalar": float(max(count, 1))}, label="share")
    return {0: _stretched(b, op, share)}


def _from_x(kind: str, *, saves_y: bool) -> GradientRule:
    def rule(b: Backward, op: Op) -> Mapping[int, str]:
        saved = [op.inputs[0], op.outputs[0]] if saves_y else [op.inputs[0]]
        return {0: b.emit(kind, [*saved, b.dy()], op.attrs)[0]}

    return rule


def _backwards(attrs: Attrs) -> Attrs:
    return {**attrs, "reverse": not get_bool(attrs, "reverse")}


def gradient_top_k(b: Backward, op: Op) -> Mapping[int, str]:
    """dy of the values put back where they came from."""
    attrs = with_shape({"axis": op.attrs["axis"]}, b, op.inputs[0])
    return {0: b.emit("scatter_add", [op.outputs[1], b.dy()], attrs)[0]}


_EXTREMUM = _from_x("reduce_extremum_grad", saves_y=True)
_PLAIN: Mapping[str, GradientRule] = {
    "reduce_sum": gradient_sum,
    "reduce_mean": gradient_mean,
    "reduce_max": _EXTREMUM,
    "reduce_min": _EXTREMUM,
    "reduce_prod": _from_x("reduce_prod_grad", saves_y=False),
}

register(
    *(Kind(name=name, infer=infer_reduction, gradient=rule, flops=input_flops) for name, rule in _PLAIN.items()),
    Kind(
        name="reduce_log_sum_exp",
        infer=infer_log_sum_exp,
        gradient=_from_x("reduce_log_sum_exp_grad", saves_y=True),
        flops=input_flops,
    ),
    Kind(name="reduce_extremum_grad", infer=infer_reduction_gradient),
    Kind(name="reduce_prod_grad", infer=infer_reduction_gradient),
    Kind(name="reduce_log_sum_exp_grad", infer=infer_reduction_gradient, inplace=((0, 0),)),
    Kind(name="arg_max", infer=infer_arg, differentiable=(), flops=input_flops),
    Kind(name="arg_min", infer=infer_arg, differentiable=(), flops=input_flops),
    Kind(name="cum_sum", infer=infer_cum_sum, gradient=linear_gradient("cum_sum", _backwards)),
    Kind(name="top_k", infer=infer_top_k, gradient=gradient_top_k, flops=input_flops),
)

takes(
    *(*_PLAIN, "reduce_log_sum_exp", "reduce_extremum_grad", "reduce_prod_grad", "reduce_log_sum_exp_grad"),
    axes=INTEGERS,
    keepdims=FLAG,
)
takes("arg_max", "arg_min", axis=INTEGER, keepdims=FLAG, last=FLAG)
takes("cum_sum", axis=INTEGER, exclusive=FLAG, reverse=FLAG)
takes("top_k", axis=INTEGER, k=INTEGER, largest=FLAG, sorted=FLAG)
