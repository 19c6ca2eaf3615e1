"""Softmax, log-softmax, cross-entropy and negative log-likelihood, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping

from snplan.ir import Attrs, Op, Spec
from snplan.ops.attributes import get_choice, get_dtype, get_int, get_shape
from snplan.ops.base import Backward, Kind, Specs, no_flops, register
from snplan.ops.forms import DTYPE, INTEGER, SHAPE, choice, or_null, takes
from snplan.ops.gradients import saved_gradient, with_shape
from snplan.ops.shapes import get_axis, need_count, need_float, need_index, need_same, need_shape, without

REDUCTIONS = ("mean", "sum", "none")


def infer_softmax(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input's spec."""
    need_count(specs, 1)
    need_float(specs[0])
    get_axis(attrs, specs[0].rank)
    return (specs[0],)


def infer_class_loss(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """A scalar, or with reduction "none" the labels' shape."""
    need_count(specs, 2, 3)
    scores, labels = specs[:2]
    need_float(scores, "the scores")
    need_index(labels, "labels")
    axis = get_axis(attrs, scores.rank)
    need_shape(labels, without(scores.shape, axis), "labels")
    if len(specs) == 3:
        need_float(specs[2], "weights")
        need_shape(specs[2], (scores.shape[axis],), "weights")
    if attrs.get("ignore_index") is not None:
        get_int(attrs, "ignore_index")
    reduction = get_choice(attrs, "reduction", REDUCTIONS)
    return (Spec(scores.dtype, labels.shape if reduction == "none" else ()),)


def infer_softmax_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """dx as y and dy, which are alike."""
    need_count(specs, 2)
    need_same(specs[0], specs[1], "y and dy")
    return infer_softmax(specs[:1], attrs)


def _check_dy(dy: Spec, scores: Spec, rest: Specs, attrs: Attrs) -> None:
    """Raise ShapeError unless `dy` looks as the loss of `scores` and `rest` (labels and weights)."""
    (loss,) = infer_class_loss([scores, *rest], attrs)
    need_same(dy, loss, "dy and the loss")


def infer_softmax_cross_entropy_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The logits' spec."""
    need_count(specs, 3, 4)
    _check_dy(specs[-1], specs[0], specs[1:-1], attrs)
    return (specs[0],)


def infer_nll_loss_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape` of `dtype`."""
    need_count(specs, 2, 3)
    scores = Spec(get_dtype(attrs), get_shape(attrs))
    _check_dy(specs[-1], scores, specs[:-1], attrs)
    return (scores,)


def gradient_softmax_cross_entropy(b: Backward, op: Op) -> Mapping[int, str]:
    """From the logits, so that no probabilities need be kept."""
    return {0: b.emit("softmax_cross_entropy_grad", [*op.inputs, b.dy()], op.attrs)[0]}


def gradient_nll_loss(b: Backward, op: Op) -> Mapping[int, str]:
    """From the labels alone."""
    attrs = {**with_shape(op.attrs, b, op.inputs[0]), "dtype": str(b.spec(op.inputs[0]).dtype)}
    return {0: b.emit("nll_loss_grad", [*op.inputs[1:], b.dy()], attrs)[0]}


def softmax_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """About five operations for each element: maximum, difference, exponential, sum, quotient."""
    return 5 * inputs[0].elements


def label_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """One operation for each label."""
    return inputs[1].elements


def label_traffic(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """Labels, and the one score that each of them names."""
    scores, labels = inputs[:2]
    return labels.bytes + labels.elements * scores.dtype.bits // 8 + outputs[0].bytes


register(
    *(
        Kind(
            name=name,
            infer=infer_softmax,
            gradient=saved_gradient(f"{name}_grad", from_output=True),
            inplace=((0, 0),),
            flops=softmax_flops,
        )
        for name in ("softmax", "log_softmax")
    ),
    Kind(name="softmax_grad", infer=infer_softmax_grad, inplace=((0, 1), (0, 0)), flops=softmax_flops),
    Kind(name="log_softmax_grad", infer=infer_softmax_grad, inplace=((0, 1), (0, 0)), flops=softmax_flops),
    Kind(
        name="softmax_cross_entropy",
        infer=infer_class_loss,
        gradient=gradient_softmax_cross_entropy,
        differentiable=(0,),
        flops=softmax_flops,
    ),
    Kind(
        name="softmax_cross_entropy_grad",
        infer=infer_softmax_cross_entropy_grad,
        inplace=((0, 0),),
        flops=softmax_flops,
    ),
    Kind(
        name="nll_loss",
        infer=infer_class_loss,
        gradient=gradient_nll_loss,
        differentiable=(0,),
        flops=label_flops,
        traffic=label_traffic,
    ),
    Kind(name="nll_loss_grad", infer=infer_nll_loss_grad, flops=no_flops),
)

takes("softmax", "log_softmax", "softmax_grad", "log_softmax_grad", axis=INTEGER)
takes(
    *("softmax_cross_entropy", "softmax_cross_entropy_grad", "nll_loss", "nll_loss_grad"),
    axis=INTEGER,
    reduction=choice(*REDUCTIONS),
    ignore_index=or_null(INTEGER),
)
takes("nll_loss_grad", shape=SHAPE, dtype=DTYPE)
