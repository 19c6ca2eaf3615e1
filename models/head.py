"""The end of every model: its outputs, and the loss on request."""

from __future__ import annotations

from snplan.models.layers import Network


def finish(net: Network, logits: str, *, loss: bool) -> None:
    """Lists the outputs. With `loss`: the mean cross-entropy against class ids `target`, then the logits.

    Classes are the last axis of logits of rank 2 or 3 ([batch, classes], [batch, length, classes]) and axis 1 of an
    image of logits ([batch, classes, height, width]).
    """
    if loss:
        net.output(_cross_entropy(net, logits))
    net.output(logits)


def _cross_entropy(net: Network, logits: str) -> str:
    shape = net.shape(logits)
    if len(shape) != 3:
        target = net.token_input("target", (shape[0], *shape[2:]))
        return net.node("SoftmaxCrossEntropyLoss", [logits, target], (), name="loss", reduction="mean")
    target = net.token_input("target", shape[:2])
    # The operator wants the classes in axis 1; one row a token costs no transpose.
    rows = [net.reshape(logits, (-1, shape[2])), net.reshape(target, (-1,))]
    return net.node("SoftmaxCrossEntropyLoss", rows, (), name="loss", reduction="mean")
