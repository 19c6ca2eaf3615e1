"""Kernels of softmax and of losses over classes. Sums accumulate in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from snplan.runtime.dtypes import numpy_dtype
from snplan.runtime.numpy.base import HALVES, Array, Attrs, Context, kernel
from snplan.runtime.numpy.reduce import accurate_sum


def _shifted(x: Array, axis: int) -> tuple[Array, Array]:
    """x minus its largest along `axis`, and the sum of exp of that (float64)."""
    shifted = x - np.maximum.reduce(x, axis=axis, keepdims=True, initial=-np.inf)
    return shifted, accurate_sum(np.exp(shifted), (axis,), keepdims=True)


def softmax_of(x: Array, axis: int) -> Array:
    """exp(x) over its sum along `axis`."""
    shifted, total = _shifted(x, axis)
    return np.exp(shifted) / total.astype(x.dtype)


def log_softmax_of(x: Array, axis: int) -> Array:
    """The logarithm of softmax, without overflow."""
    shifted, total = _shifted(x, axis)
    return shifted - np.log(total).astype(x.dtype)


@kernel("softmax")
def softmax(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Softmax along `axis`."""
    return softmax_of(inputs[0], attrs["axis"])


@kernel("log_softmax")
def log_softmax(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """LogSoftmax along `axis`."""
    return log_softmax_of(inputs[0], attrs["axis"])


@kernel("softmax_grad")
def softmax_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """y * (dy - sum(dy * y))."""
    y, dy = inputs
    return y * (dy - accurate_sum(dy * y, (attrs["axis"],), keepdims=True).astype(y.dtype))


@kernel("log_softmax_grad")
def log_softmax_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """dy - exp(y) * sum(dy)."""
    y, dy = inputs
    return dy - np.exp(y) * accurate_sum(dy, (attrs["axis"],), keepdims=True).astype(y.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Labels of a loss: `classes` are valid indices, `weights` (float64) are 0 where a label is ignored."""

    classes: Array
    weights: Array
    axis: int

    def pick(self, x: Array) -> Array:
        """x at each label's class."""
        return np.take_along_axis(x, np.expand_dims(self.classes, self.axis), self.axis).squeeze(self.axis)

    def share(self, dy: Array, reduction: str) -> Array:
        """d loss / d (-log probability) for each label, from the loss's gradient."""
        factor = dy * self.weights
        return factor / self.weights.sum() if reduction == "mean" else factor


def targets_of(labels: Array, weights: Array | None, classes: int, attrs: Attrs) -> Targets:
    """Labels checked and weighed. Raises IndexError for a label that is neither a class nor the ignored one."""
    ignored = np.zeros(labels.shape, np.bool_)
    if attrs.get("ignore_index") is not None:
        ignored = labels == attrs["ignore_index"]
    bad = ~ignored & ((labels < 0) | (labels >= classes))
    if bad.any():
        raise IndexError(f"label {labels[bad].flat[0]} is out of range: there are {classes} classes")
    valid = np.where(ignored, 0, labels).astype(np.intp)
    weight = np.ones(labels.shape) if weights is None else weights.astype(np.float64)[valid]
    return Targets(classes=valid, weights=np.where(ignored, 0.0, weight), axis=attrs["axis"])


def _reduced(log_probabilities: Array, targets: Targets, reduction: str) -> Array:
    losses = np.where(targets.weights == 0, 0.0, -targets.pick(log_probabilities).astype(np.float64) * targets.weights)
    if reduction == "none":
        return losses.astype(log_probabilities.dtype)
    total = losses.sum() / targets.weights.sum() if reduction == "mean" else losses.sum()
    return np.asarray(total).astype(log_probabilities.dtype)


def _optional_weights(inputs: Sequence[Array], position: int, count: int) -> Array | None:
    return inputs[position] if len(inputs) == count else None


@kernel("softmax_cross_entropy")
def softmax_cross_entropy(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """ONNX SoftmaxCrossEntropyLoss of logits and labels."""
    logits, labels = inputs[0], inputs[1]
    axis = attrs["axis"]
    targets = targets_of(labels, _optional_weights(inputs, 2, 3), logits.shape[axis], attrs)
    return _reduced(log_softmax_of(logits, axis), targets, attrs["reduction"])


@kernel("softmax_cross_entropy_grad")
def softmax_cross_entropy_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """(softmax - one-hot) times each label's share."""
    logits, labels, dy = inputs[0], inputs[1], inputs[-1]
    axis = attrs["axis"]
    targets = targets_of(labels, _optional_weights(inputs, 2, 4), logits.shape[axis], attrs)
    share = np.expand_dims(targets.share(dy, attrs["reduction"]).astype(logits.dtype), axis)
    dx = softmax_of(logits, axis) * share
    place = np.expand_dims(targets.classes, axis)
    np.put_along_axis(dx, place, np.take_along_axis(dx, place, axis) - share, axis)
    return dx


@kernel("nll_loss")
def nll_loss(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """ONNX NegativeLogLikelihoodLoss of log-probabilities and labels."""
    logs, labels = inputs[0], inputs[1]
    targets = targets_of(labels, _optional_weights(inputs, 2, 3), logs.shape[attrs["axis"]], attrs)
    return _reduced(logs, targets, attrs["reduction"])


@kernel("nll_loss_grad", widen=False)
def nll_loss_grad(inputs: Sequence[Array], attrs: Attrs, context: Context) -> Array:
    """Minus each label's share, at its class."""
    labels, dy = inputs[0], inputs[-1]
    shape, axis, dtype = tuple(attrs["shape"]), attrs["axis"], numpy_dtype(attrs["dtype"])
    weights = _optional_weights(inputs, 1, 3)
    targets = targets_of(labels, weights, shape[axis], attrs)
    exact = dy.astype(np.float32) if dy.dtype in HALVES else dy
    dx = np.zeros(shape, dtype)
    share = -targets.share(exact, attrs["reduction"]).astype(dtype)
    np.put_along_axis(dx, np.expand_dims(targets.classes, axis), np.expand_dims(share, axis), axis)
    return dx
