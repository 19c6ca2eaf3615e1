"""Softmax, log-softmax, cross-entropy and negative log-likelihood, and their gradients."""

from __future__ import annotations

from snplan.ir import Attrs, Spec
from snplan.ops.attributes import get_choice, get_int
from snplan.ops.base import Kind, Specs, register
from snplan.ops.shapes import get_axis, need_count, need_float, need_index, need_shape, without

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


def softmax_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """About five operations for each element: maximum, difference, exponential, sum, quotient."""
    return 5 * inputs[0].elements


register(
    Kind(name="softmax", infer=infer_softmax, inplace=((0, 0),), flops=softmax_flops),
    Kind(name="log_softmax", infer=infer_softmax, inplace=((0, 0),), flops=softmax_flops),
    Kind(name="softmax_cross_entropy", infer=infer_class_loss, flops=softmax_flops),
    Kind(name="nll_loss", infer=infer_class_loss),
)
