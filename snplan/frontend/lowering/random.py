"""Dropout and the operators that draw random numbers."""

from __future__ import annotations

import numpy as np

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.lowering.shape import cast
from snplan.frontend.node import NodeView
from snplan.frontend.tensors import DTYPES, checked_spec
from snplan.frontend.values import Unsupported, Value, filled
from snplan.ir import Attr, DType, Spec


@lowers("Dropout")
def lower_dropout(ctx: LowerContext, node: NodeView) -> None:
    """`dropout` in training mode, else the input itself; the mask as an op of its own that draws the same numbers."""
    x = node.value(0)
    ratio, training = _ratio(node), _is_training(ctx, node)
    node.need(0 <= ratio <= 1, f"ratio {ratio} is not between 0 and 1")
    if not training and ratio > 0:
        ctx.note_eval(node.op)
        training = ctx.switch_to_training
    if not training or ratio == 0:
        ctx.bind(0, x)
        if node.wants(1):
            spec = Spec(DType.BOOL, x.spec.shape)
            ctx.bind(1, Value(spec=spec, content=filled(spec, np.array(True))))
        return
    if ratio == 1:
        raise Unsupported("ratio 1 drops everything")
    stream = ctx.stream()
    ctx.bind(0, ctx.emit("dropout", [x], {"ratio": ratio}, stream=stream)[0])
    if node.wants(1):
        attrs: dict[str, Attr] = {"ratio": ratio, "shape": list(x.spec.shape)}
        mask = ctx.emit("dropout_mask", [], attrs, stream=stream)[0]
        # Before opset 10 the mask is of the data's type.
        ctx.bind(1, mask if node.version >= 10 else cast(ctx, mask, x.spec.dtype))


def _ratio(node: NodeView) -> float:
    """The ratio: an attribute, or an input from opset 12 on."""
    if not node.input_form("ratio", 12, 1):
        return node.attr_float("ratio", 0.5)
    if not node.given(1):
        return 0.5
    return float(str(np.float32(node.array_scalar(1, "ratio"))))


def _is_training(ctx: LowerContext, node: NodeView) -> bool:
    """What the graph says: `is_test` before opset 7, an input from opset 12 on; in between, never training."""
    if node.version < 7:
        return not node.attr_int("is_test", 0)
    if node.version < 12 or not node.given(2):
        return False
    if node.value(2).array() is None:
        # A training flag that the graph takes as an input follows the mode.
        return ctx.train
    return bool(node.array_scalar(2, "training_mode"))


@lowers("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike")
def lower_random(ctx: LowerContext, node: NodeView) -> None:
    """`random_uniform` or `random_normal`. The seed attribute is not used: a run has one seed."""
    like = node.op.endswith("Like")
    spec = node.value(0).spec if like else None
    shape = list(spec.shape) if spec else node.attr_ints("shape") or []
    default = spec.dtype if spec else DType.FLOAT32
    dtype = DTYPES.get(node.attr_int("dtype")) if node.has("dtype") else default  # type: ignore[call-overload]
    if dtype is None or not dtype.is_float:
        raise Unsupported(f"it draws numbers of type {dtype}")
    checked_spec(dtype, shape, f"the result of node {node.label!r}")
    attrs: dict[str, Attr] = {"dtype": str(dtype), "shape": [*shape]}
    if "Uniform" in node.op:
        kind, more = "random_uniform", {"low": node.attr_float("low", 0.0), "high": node.attr_float("high", 1.0)}
    else:
        kind, more = "random_normal", {"mean": node.attr_float("mean", 0.0), "scale": node.attr_float("scale", 1.0)}
    ctx.bind(0, ctx.emit(kind, [], {**attrs, **more}, stream=ctx.stream())[0])


@lowers("Bernoulli")
def lower_bernoulli(ctx: LowerContext, node: NodeView) -> None:
    """Where a uniform number is less than the probability."""
    x = node.value(0)
    attrs: dict[str, Attr] = {"dtype": str(x.spec.dtype), "shape": list(x.spec.shape), "low": 0.0, "high": 1.0}
    drawn = ctx.emit("random_uniform", [], attrs, stream=ctx.stream())[0]
    to = DTYPES.get(node.attr_int("dtype")) if node.has("dtype") else x.spec.dtype  # type: ignore[call-overload]
    if to is None:
        raise Unsupported("its element type is not supported")
    ctx.bind(0, cast(ctx, ctx.one("less", [drawn, x]), to))
