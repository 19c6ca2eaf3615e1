"""Softmax and the losses."""

from __future__ import annotations

import math

import numpy as np

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.tensors import numpy_dtype
from snplan.frontend.values import Value, constant
from snplan.ir import Attr


@lowers("Softmax", "LogSoftmax", "Hardmax")
def lower_softmax(ctx: LowerContext, node: NodeView) -> None:
    """Softmax along one axis; before opset 13, over all axes from `axis` on as one."""
    x = node.value(0)
    shape = x.spec.shape
    if node.version >= 13:
        ctx.bind(0, _softmax(ctx, node, x, node.attr_axis("axis", -1, x.spec.rank)))
        return
    axis = node.attr_axis("axis", 1, x.spec.rank)
    wide = [place for place in range(axis, len(shape)) if shape[place] != 1]
    if len(wide) == 1:
        ctx.bind(0, _softmax(ctx, node, x, wide[0]))
        return
    flat = ctx.view(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
    ctx.bind(0, ctx.view(_softmax(ctx, node, flat, 1), shape))


def _softmax(ctx: LowerContext, node: NodeView, x: Value, axis: int) -> Value:
    if node.op != "Hardmax":
        return ctx.one("softmax" if node.op == "Softmax" else "log_softmax", [x], {"axis": axis})
    first = ctx.one("arg_max", [x], {"axis": axis, "keepdims": False, "last": False})
    values = constant(np.array([0, 1], numpy_dtype(x.spec.dtype)))
    return ctx.one("one_hot", [first, values], {"axis": axis, "depth": x.spec.shape[axis]})


@lowers("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def lower_class_loss(ctx: LowerContext, node: NodeView) -> None:
    """`softmax_cross_entropy` or `nll_loss`, classes at axis 1; the log-probabilities as an op of their own."""
    softmax = node.op == "SoftmaxCrossEntropyLoss"
    inputs = [value for value in (node.value(0), node.value(1), node.optional(2)) if value is not None]
    reduction = node.attr_str("reduction", "mean")
    node.need(reduction in ("mean", "sum", "none"), f"reduction {reduction!r} is unknown")
    ignored = node.attr_int("ignore_index") if node.has("ignore_index") else None
    attrs: dict[str, Attr] = {"axis": 1, "reduction": reduction, "ignore_index": ignored}
    ctx.bind(0, ctx.one("softmax_cross_entropy" if softmax else "nll_loss", inputs, attrs))
    if softmax and node.wants(1):
        ctx.bind(1, ctx.one("log_softmax", inputs[:1], {"axis": 1}))
