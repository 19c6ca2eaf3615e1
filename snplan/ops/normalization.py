"""Batch, layer, RMS, group and local response normalisation, their gradients and BatchNorm's state update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snplan.ir import Attrs, Op, Spec
from snplan.ops.attributes import get_bool, get_float, get_int
from snplan.ops.base import Backward, Count, GradientRule, Infer, Kind, Specs, read_write_bytes, register
from snplan.ops.forms import FLAG, INTEGER, NUMBER, takes
from snplan.ops.shapes import (
    get_axis,
    need,
    need_count,
    need_float,
    need_rank,
    need_same,
    need_shape,
    statistics_dtype,
)


def _check_channels(x: Spec, specs: Specs, names: tuple[str, ...]) -> None:
    """Raise ShapeError unless x is float with channels at axis 1 and all `specs` are float vectors of them."""
    need_float(x, "x")
    need_rank(x, 2, what="x")
    for spec, name in zip(specs, names, strict=True):
        need_float(spec, name)
        need_shape(spec, x.shape[1:2], name)


def infer_batch_norm_train(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """y as x; batch mean and variance of the channels, at least float32."""
    need_count(specs, 3)
    _check_channels(specs[0], specs[1:], ("scale", "bias"))
    need_same(specs[1], specs[2], "scale and bias")
    get_float(attrs, "epsilon")
    statistics = Spec(statistics_dtype(specs[0].dtype), specs[0].shape[1:2])
    return specs[0], statistics, statistics


def infer_batch_norm_eval(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """y as x."""
    need_count(specs, 5)
    _check_channels(specs[0], specs[1:], ("scale", "bias", "mean", "var"))
    need_same(specs[1], specs[2], "scale and bias")
    get_float(attrs, "epsilon")
    return (specs[0],)


def infer_batch_norm_update(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The running statistics' specs."""
    need_count(specs, 4)
    for spec, name in zip(specs, ("running mean", "running variance", "mean", "variance"), strict=True):
        need_float(spec, name)
        need_rank(spec, 1, 1, name)
        need_shape(spec, specs[0].shape, name)
    get_float(attrs, "momentum")
    return specs[0], specs[1]


def _row_statistics(x: Spec, attrs: Attrs) -> Spec:
    """Statistics over the axes from `axis`: leading axes kept, ones after."""
    axis = get_axis(attrs, x.rank)
    return Spec(statistics_dtype(x.dtype), (*x.shape[:axis], *(1 for _ in x.shape[axis:])))


def _check_row_weights(x: Spec, specs: Specs, attrs: Attrs) -> None:
    for spec, name in zip(specs, ("scale", "bias"), strict=False):
        need_float(spec, name)
        need_shape(spec, x.shape[get_axis(attrs, x.rank) :], name)


def infer_layer_norm(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """y as x, mean and inverse standard deviation of each row."""
    need_count(specs, 1, 3)
    need_float(specs[0], "x")
    statistics = _row_statistics(specs[0], attrs)
    _check_row_weights(specs[0], specs[1:], attrs)
    get_float(attrs, "epsilon")
    return specs[0], statistics, statistics


def infer_rms_norm(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """y as x, and the inverse root mean square of each row."""
    need_count(specs, 1, 2)
    need_float(specs[0], "x")
    statistics = _row_statistics(specs[0], attrs)
    _check_row_weights(specs[0], specs[1:], attrs)
    get_float(attrs, "epsilon")
    return specs[0], statistics


def _group_statistics(x: Spec, attrs: Attrs) -> Spec:
    groups = get_int(attrs, "groups")
    need(groups > 0 and x.shape[1] % groups == 0, f"{x.shape[1]} channels do not divide into {groups} groups")
    return Spec(statistics_dtype(x.dtype), (x.shape[0], groups))


def infer_group_norm(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """y as x, mean and inverse standard deviation of shape [N, groups]."""
    need_count(specs, 3)
    _check_channels(specs[0], specs[1:], ("scale", "bias"))
    get_float(attrs, "epsilon")
    statistics = _group_statistics(specs[0], attrs)
    return specs[0], statistics, statistics


def infer_lrn(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """y as x."""
    need_count(specs, 1)
    need_float(specs[0], "x")
    need_rank(specs[0], 2, what="x")
    need(get_int(attrs, "size") > 0, "size must be positive")
    for key in ("alpha", "beta", "bias"):
        get_float(attrs, key)
    return (specs[0],)


def infer_batch_norm_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """dx as x, gradients of scale and bias as scale."""
    need_count(specs, 5)
    x, scale, mean, var, dy = specs
    _check_channels(x, (scale, mean, var), ("scale", "mean", "var"))
    need_same(x, dy, "x and dy")
    get_float(attrs, "epsilon")
    return x, scale, scale


def _row_weights(specs: Specs, attrs: Attrs, *, bias: bool) -> Specs:
    """Specs of the weights' gradients of a row norm's backward, whose second input is scale where it has one."""
    scale = get_bool(attrs, "has_scale")
    need(scale or not (bias and get_bool(attrs, "has_bias")), "a norm with a bias has a scale")
    return (specs[1],) * (scale + (bias and get_bool(attrs, "has_bias")))


def _infer_row_grad(specs: Specs, attrs: Attrs, statistics: int, *, bias: bool) -> tuple[Spec, ...]:
    need_count(specs, 2 + statistics + get_bool(attrs, "has_scale"))
    x, weights = specs[0], _row_weights(specs, attrs, bias=bias)
    need_same(x, specs[-1], "x and dy")
    _check_row_weights(x, weights, attrs)
    for spec in specs[-1 - statistics : -1]:
        need_same(spec, _row_statistics(x, attrs), "statistics, given and of x,")
    return x, *weights


def infer_layer_norm_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """dx as x, gradients of scale and bias as scale, where there are any."""
    return _infer_row_grad(specs, attrs, 2, bias=True)


def infer_rms_norm_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """dx as x, gradient of scale as scale, where there is one."""
    return _infer_row_grad(specs, attrs, 1, bias=False)


def infer_group_norm_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """dx as x, gradients of scale and bias as scale."""
    need_count(specs, 5)
    x, scale, mean, inv_std, dy = specs
    _check_channels(x, (scale,), ("scale",))
    need_same(x, dy, "x and dy")
    for spec in (mean, inv_std):
        need_same(spec, _group_statistics(x, attrs), "statistics, given and of x,")
    return x, scale, scale


def infer_lrn_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """dx as x and dy, which are alike."""
    need_count(specs, 2)
    need_same(specs[0], specs[1], "x and dy")
    return infer_lrn(specs[:1], attrs)


def gradient_batch_norm_train(b: Backward, op: Op) -> Mapping[int, str]:
    """From x and the batch statistics."""
    (x, scale, _), (_, mean, var) = op.inputs, op.outputs
    return dict(enumerate(b.emit("batch_norm_grad", [x, scale, mean, var, b.dy()], op.attrs)))


def gradient_batch_norm_eval(b: Backward, op: Op) -> Mapping[int, str]:
    """From x and the running statistics, which get no gradient."""
    x, scale, _, mean, var = op.inputs
    return dict(enumerate(b.emit("batch_norm_eval_grad", [x, scale, mean, var, b.dy()], op.attrs)))


def gradient_layer_norm(b: Backward, op: Op) -> Mapping[int, str]:
    """From x, scale and the rows' statistics."""
    attrs = {**_row_attrs(op), "has_bias": len(op.inputs) > 2}
    return dict(enumerate(b.emit("layer_norm_grad", [*op.inputs[:2], *op.outputs[1:], b.dy()], attrs)))


def gradient_rms_norm(b: Backward, op: Op) -> Mapping[int, str]:
    """From x, scale and the rows' statistics."""
    return dict(enumerate(b.emit("rms_norm_grad", [*op.inputs, *op.outputs[1:], b.dy()], _row_attrs(op))))


def _row_attrs(op: Op) -> Attrs:
    return {"axis": op.attrs["axis"], "epsilon": op.attrs["epsilon"], "has_scale": len(op.inputs) > 1}


def gradient_group_norm(b: Backward, op: Op) -> Mapping[int, str]:
    """From x, scale and the groups' statistics."""
    x, scale, _ = op.inputs
    return dict(enumerate(b.emit("group_norm_grad", [x, scale, *op.outputs[1:], b.dy()], op.attrs)))


def gradient_lrn(b: Backward, op: Op) -> Mapping[int, str]:
    """From x alone: the denominators come again from x, so that y need not be there."""
    return {0: b.emit("lrn_grad", [op.inputs[0], b.dy()], op.attrs)[0]}


def refuses_statistics(attrs: Attrs, outputs: Sequence[bool]) -> str | None:
    """Why there is no gradient where the loss depends on the statistics that a norm returns."""
    return "the loss depends on its statistics, which have no gradient" if any(outputs[1:]) else None


def norm_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """About eight operations for each element of x: two for each statistic, four to apply."""
    return 8 * inputs[0].elements


def read_twice(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """All bytes once and x once more: statistics are complete before any element can be normalised."""
    return read_write_bytes(inputs, outputs, attrs) + inputs[0].bytes


def lrn_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """A window sum for each element, a power and a product."""
    return outputs[0].elements * (get_int(attrs, "size") + 4)


def apply_twice(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """All bytes once, x and dy once more: the sums over them are complete before any dx can be written."""
    return read_write_bytes(inputs, outputs, attrs) + inputs[0].bytes + inputs[-1].bytes


def _norm(name: str, infer: Infer, gradient: GradientRule, traffic: Count = read_write_bytes) -> Kind:
    return Kind(
        name=name,
        infer=infer,
        gradient=gradient,
        refuses=refuses_statistics,
        # Running statistics (inputs 3 and 4 of `batch_norm_eval`) are no parameters.
        differentiable=(0, 1, 2),
        inplace=((0, 0),),
        flops=norm_flops,
        traffic=traffic,
    )


def _norm_grad(name: str, infer: Infer, *dy: int, traffic: Count = read_write_bytes) -> Kind:
    pairs = tuple((0, index) for index in dy)
    return Kind(name=name, infer=infer, inplace=pairs, flops=norm_flops, traffic=traffic)


register(
    _norm("batch_norm_train", infer_batch_norm_train, gradient_batch_norm_train, read_twice),
    _norm_grad("batch_norm_grad", infer_batch_norm_grad, 4, traffic=apply_twice),
    _norm("batch_norm_eval", infer_batch_norm_eval, gradient_batch_norm_eval),
    _norm_grad("batch_norm_eval_grad", infer_batch_norm_grad, 4),
    Kind(name="batch_norm_update", infer=infer_batch_norm_update, inplace=((0, 0), (1, 1))),
    _norm("layer_norm", infer_layer_norm, gradient_layer_norm),
    # Without a scale dy is one input earlier.
    _norm_grad("layer_norm_grad", infer_layer_norm_grad, 4, 3),
    _norm("rms_norm", infer_rms_norm, gradient_rms_norm),
    _norm_grad("rms_norm_grad", infer_rms_norm_grad, 3, 2),
    _norm("group_norm", infer_group_norm, gradient_group_norm, read_twice),
    _norm_grad("group_norm_grad", infer_group_norm_grad, 4, traffic=apply_twice),
    Kind(name="lrn", infer=infer_lrn, gradient=gradient_lrn, flops=lrn_flops),
    Kind(name="lrn_grad", infer=infer_lrn_grad, flops=lrn_flops),
)

_NORMS = ("batch_norm_train", "batch_norm_eval", "layer_norm", "rms_norm", "group_norm")
_NORM_GRADS = ("batch_norm_grad", "batch_norm_eval_grad", "layer_norm_grad", "rms_norm_grad", "group_norm_grad")

takes(*_NORMS, *_NORM_GRADS, epsilon=NUMBER)
takes("batch_norm_update", momentum=NUMBER)
takes("layer_norm", "layer_norm_grad", "rms_norm", "rms_norm_grad", axis=INTEGER)
takes("layer_norm_grad", "rms_norm_grad", has_scale=FLAG)
takes("layer_norm_grad", has_bias=FLAG)
takes("group_norm", "group_norm_grad", groups=INTEGER)
takes("lrn", "lrn_grad", size=INTEGER, alpha=NUMBER, beta=NUMBER, bias=NUMBER)
