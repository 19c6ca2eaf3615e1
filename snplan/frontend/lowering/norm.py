"""Normalisations. BatchNormalization's many forms become one op for each mode."""

from __future__ import annotations

import math

from snplan.frontend import codes
from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.binary import binary
from snplan.frontend.lowering.movement import expand
from snplan.frontend.lowering.reduce import reduce
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.values import INITIALIZER, Unsupported, Value
from snplan.ir import Attr, Phase


@lowers("BatchNormalization")
def lower_batch_norm(ctx: LowerContext, node: NodeView) -> None:
    """`batch_norm_train` and `batch_norm_update`, or `batch_norm_eval`."""
    if not node.attr_int("spatial", 1):
        raise Unsupported("spatial=0")
    x, scale, bias, mean, var = (node.value(index) for index in range(5))
    attrs: dict[str, Attr] = {"epsilon": node.attr_float("epsilon", 1e-5)}
    training = _is_training(node)
    if not training:
        ctx.note_eval(node.op)
        training = ctx.switch_to_training
    if not training:
        ctx.bind(0, ctx.one("batch_norm_eval", [x, scale, bias, mean, var], attrs))
        return
    y, batch_mean, batch_var = ctx.emit("batch_norm_train", [x, scale, bias], attrs)
    ctx.bind(0, y)
    _update(ctx, node, (mean, var), (batch_mean, batch_var))


def _is_training(node: NodeView) -> bool:
    """What the graph says: `is_test` before opset 7, five outputs before opset 14, `training_mode` since.

    Raises ModelError (SNP-I019) for training mode without outputs for the running statistics.
    """
    outputs = sum(bool(name) for name in node.proto.output)
    if node.version >= 14:
        training = bool(node.attr_int("training_mode", 0))
        if training and outputs < 3:
            raise node.error(
                f"training_mode is 1, which takes 3 outputs, it has {outputs}; "
                "export again, or clear training_mode and use --train-batchnorm",
                codes.TRAINING_FORM,
            )
        return training
    if node.version < 7:
        return not node.attr_int("is_test", 0)
    return outputs >= 5


def _update(ctx: LowerContext, node: NodeView, running: tuple[Value, Value], batch: tuple[Value, Value]) -> None:
    """The op that moves the running statistics, and what the node's further outputs stand for.

    Statistics that are not initializers (weights normalised by a BatchNormalization) have no value after the step.
    """
    for index in (3, 4):
        ctx.bind(index, batch[index - 3])
    if any(value.source is None or value.source.kind != INITIALIZER for value in running):
        ctx.poison("running statistics that are not initializers are not updated")
        return
    attrs: dict[str, Attr] = {"momentum": node.attr_float("momentum", 0.9)}
    ctx.emit("batch_norm_update", [*running, *batch], attrs, phase=Phase.UPDATE)
    ctx.poison(
        "the updated running statistics are there when the step has ended, and nothing in the step can read them"
    )


@lowers("LayerNormalization")
def lower_layer_norm(ctx: LowerContext, node: NodeView) -> None:
    """`layer_norm`; scale and bias of other shapes than the normalised axes' are applied after it."""
    x, scale, bias = node.value(0), node.value(1), node.optional(2)
    axis = node.attr_axis("axis", -1, x.spec.rank)
    attrs: dict[str, Attr] = {"axis": axis, "epsilon": node.attr_float("epsilon", 1e-5)}
    inside = all(value is None or value.spec.shape == x.spec.shape[axis:] for value in (scale, bias))
    if inside:
        outputs = ctx.emit("layer_norm", [x, scale] if bias is None else [x, scale, bias], attrs)
        y = outputs[0]
    else:
        outputs = ctx.emit("layer_norm", [x], attrs)
        y = _affine(ctx, outputs[0], scale, bias)
    ctx.bind(0, y)
    ctx.bind(1, outputs[1])
    ctx.bind(2, outputs[2])


def _affine(ctx: LowerContext, y: Value, scale: Value, bias: Value | None) -> Value:
    y = binary(ctx, "mul", y, scale)
    return y if bias is None else binary(ctx, "add", y, bias)


@lowers("RMSNormalization", "com.microsoft::SimplifiedLayerNormalization", "SimplifiedLayerNormalization")
def lower_rms_norm(ctx: LowerContext, node: NodeView) -> None:
    """`rms_norm`."""
    x, scale = node.value(0), node.value(1)
    axis = node.attr_axis("axis", -1, x.spec.rank)
    attrs: dict[str, Attr] = {"axis": axis, "epsilon": node.attr_float("epsilon", 1e-5)}
    if scale.spec.shape == x.spec.shape[axis:]:
        ctx.bind(0, ctx.one("rms_norm", [x, scale], attrs))
    else:
        ctx.bind(0, binary(ctx, "mul", ctx.one("rms_norm", [x], attrs), scale))


@lowers("InstanceNormalization")
def lower_instance_norm(ctx: LowerContext, node: NodeView) -> None:
    """`group_norm` with one group a channel."""
    x, scale, bias = node.value(0), node.value(1), node.value(2)
    node.need(x.spec.rank >= 3, f"rank {x.spec.rank}; it takes N, C and spatial axes")
    attrs: dict[str, Attr] = {"groups": x.spec.shape[1], "epsilon": node.attr_float("epsilon", 1e-5)}
    ctx.bind(0, ctx.one("group_norm", [x, scale, bias], attrs))


@lowers("GroupNormalization")
def lower_group_norm(ctx: LowerContext, node: NodeView) -> None:
    """`group_norm`; before opset 21, scale and bias have one element a group."""
    x, groups = node.value(0), node.attr_int("num_groups")
    channels = x.spec.shape[1]
    node.need(groups > 0 and channels % groups == 0, f"{channels} channels do not make {groups} equal groups")
    scale, bias = node.value(1), node.value(2)
    if node.version < 21 and scale.spec.shape == (groups,) != (channels,):
        scale, bias = (_per_channel(ctx, value, groups, channels) for value in (scale, bias))
    attrs: dict[str, Attr] = {"groups": groups, "epsilon": node.attr_float("epsilon", 1e-5)}
    ctx.bind(0, ctx.one("group_norm", [x, scale, bias], attrs))


def _per_channel(ctx: LowerContext, value: Value, groups: int, channels: int) -> Value:
    return ctx.view(expand(ctx, ctx.view(value, (groups, 1)), (groups, channels // groups)), (channels,))


@lowers("LpNormalization")
def lower_lp_norm(ctx: LowerContext, node: NodeView) -> None:
    """x over its L1 or L2 norm along one axis; where that is zero, x is, and stays zero."""
    x, p = node.value(0), node.attr_int("p", 2)
    axis = node.attr_axis("axis", -1, x.spec.rank)
    node.need(p in (1, 2), f"p is {p}; it must be 1 or 2")
    terms = ctx.one("abs", [x]) if p == 1 else ctx.one("mul", [x, x])
    total = reduce(ctx, "reduce_sum", terms, [axis], True)
    nothing = ctx.one("equal", [total], {"scalar": 0})
    total = ctx.one("add", [total, ctx.one("cast", [nothing], {"to": str(total.spec.dtype)})])
    ctx.bind(0, ctx.one("div", [x, total if p == 1 else ctx.one("sqrt", [total])]))


@lowers("LRN")
def lower_lrn(ctx: LowerContext, node: NodeView) -> None:
    """`lrn`."""
    attrs: dict[str, Attr] = {
        "size": node.attr_int("size"),
        "alpha": node.attr_float("alpha", 1e-4),
        "beta": node.attr_float("beta", 0.75),
        "bias": node.attr_float("bias", 1.0),
    }
    ctx.bind(0, ctx.one("lrn", [node.value(0)], attrs))


@lowers("MeanVarianceNormalization")
def lower_mean_variance(ctx: LowerContext, node: NodeView) -> None:
    """(x - mean) / (deviation + 1e-9) over `axes`."""
    x = node.value(0)
    axes = node.checked_axes(node.attr_ints("axes") or [0, 2, 3], x.spec.rank)
    node.need(math.prod(x.spec.shape) > 0, "it has no element")
    centred = binary(ctx, "sub", x, reduce(ctx, "reduce_mean", x, axes, True))
    variance = reduce(ctx, "reduce_mean", ctx.one("mul", [centred, centred]), axes, True)
    deviation = ctx.one("add", [ctx.one("sqrt", [variance])], {"scalar": 1e-9})
    ctx.bind(0, ctx.one("div", [centred, deviation]))
