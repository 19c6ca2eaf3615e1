"""Batch, layer, RMS, group and local response normalisation, their gradients and BatchNorm's state update."""

from __future__ import annotations

from snplan.ir import Attrs, Spec
from snplan.ops.attributes import get_float, get_int
from snplan.ops.base import Kind, Specs, read_write_bytes, register
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


def norm_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """About eight operations for each element of x: two for each statistic, four to apply."""
    return 8 * inputs[0].elements


def read_twice(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """All bytes once and x once more: statistics are complete before any element can be normalised."""
    return read_write_bytes(inputs, outputs, attrs) + inputs[0].bytes


def lrn_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """A window sum for each element, a power and a product."""
    return outputs[0].elements * (get_int(attrs, "size") + 4)


_OVER_X = ((0, 0),)

register(
    Kind(name="batch_norm_train", infer=infer_batch_norm_train, inplace=_OVER_X, flops=norm_flops, traffic=read_twice),
    Kind(name="batch_norm_eval", infer=infer_batch_norm_eval, inplace=_OVER_X, flops=norm_flops),
    Kind(name="batch_norm_update", infer=infer_batch_norm_update, inplace=((0, 0), (1, 1))),
    Kind(name="layer_norm", infer=infer_layer_norm, inplace=_OVER_X, flops=norm_flops),
    Kind(name="rms_norm", infer=infer_rms_norm, inplace=_OVER_X, flops=norm_flops),
    Kind(name="group_norm", infer=infer_group_norm, inplace=_OVER_X, flops=norm_flops, traffic=read_twice),
    Kind(name="lrn", infer=infer_lrn, flops=lrn_flops),
)
