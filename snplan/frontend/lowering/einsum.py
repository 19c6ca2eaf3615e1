"""Einsum as transposes, views, one product for each further operand, and sums.

Labels of two operands fall into four groups: in both and kept (batch), in both and summed, and those of one side. With
the groups side by side in each operand, views make three-dimensional stacks and the product is a `matmul`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.linear import product
from snplan.frontend.lowering.movement import transpose
from snplan.frontend.lowering.reduce import reduce
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.values import Unsupported, Value

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A tensor with a label for each axis."""

    value: Value
    labels: Labels

    def size(self, label: str) -> int:
        """The size of the axis of `label`."""
        return self.value.spec.shape[self.labels.index(label)]


@lowers("Einsum")
def lower_einsum(ctx: LowerContext, node: NodeView) -> None:
    """The equation's result, from left to right."""
    values = node.values()
    inputs, output = parse(node, node.attr_str("equation"), [value.spec.rank for value in values])
    terms = [Term(value=value, labels=labels) for value, labels in zip(values, inputs, strict=True)]
    _check_sizes(node, terms)
    total = terms[0]
    for place, term in enumerate(terms[1:], start=1):
        needed = {label for later in terms[place + 1 :] for label in later.labels} | set(output)
        total = _contracted(ctx, total, term, needed)
    total = _summed(ctx, total, set(output))
    ctx.bind(0, transpose(ctx, total.value, [total.labels.index(label) for label in output]))


def parse(node: NodeView, equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Labels of the operands and of the result; an ellipsis stands for labels `.0`, `.1`, ... counted from the right.

    Without an arrow, the result has the ellipsis and then the labels that occur once, in alphabetic order.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    node.need(len(texts) == len(ranks), f"equation {equation!r} has {len(texts)} operands, there are {len(ranks)}")
    wide = max(rank - len(text.replace("...", "")) for text, rank in zip(texts, ranks, strict=True))
    inputs = []
    for text, rank in zip(texts, ranks, strict=True):
        labels = _labels(text, rank - len(text.replace("...", "")))
        node.need(len(labels) == rank, f"operand {text!r} of equation {equation!r} is of rank {rank}")
        if len(set(labels)) < len(labels):
            raise Unsupported(f"operand {text!r} repeats a label")
        inputs.append(labels)
    if arrow:
        return inputs, _labels(right, wide)
    counts: dict[str, int] = {}
    for label in (label for labels in inputs for label in labels):
        counts[label] = counts.get(label, 0) + 1
    dots = _labels("...", wide) if "..." in left else ()
    return inputs, (*dots, *sorted(label for label, n in counts.items() if n == 1 and not label.startswith(".")))


def _labels(text: str, dots: int) -> Labels:
    head, ellipsis, tail = text.partition("...")
    if not ellipsis:
        return tuple(text)
    return (*head, *(f".{place}" for place in reversed(range(dots))), *tail)


def _check_sizes(node: NodeView, terms: Sequence[Term]) -> None:
    sizes: dict[str, int] = {}
    for term in terms:
        for label in term.labels:
            if sizes.setdefault(label, term.size(label)) != term.size(label):
                if 1 in (sizes[label], term.size(label)):
                    raise Unsupported("operands that broadcast")
                raise node.error(f"label {label!r} has sizes {sizes[label]} and {term.size(label)}")


def _summed(ctx: LowerContext, term: Term, kept: set[str]) -> Term:
    """`term` summed over the axes whose labels are not kept."""
    axes = [axis for axis, label in enumerate(term.labels) if label not in kept]
    if not axes:
        return term
    labels = tuple(label for label in term.labels if label in kept)
    return Term(value=reduce(ctx, "reduce_sum", term.value, axes, False), labels=labels)


def _contracted(ctx: LowerContext, a: Term, b: Term, needed: set[str]) -> Term:
    """The product of both, summed over the labels that nothing needs later."""
    a = _summed(ctx, a, needed | set(b.labels))
    b = _summed(ctx, b, needed | set(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    batch = [label for label in shared if label in needed]
    inner = [label for label in shared if label not in needed]
    rows = [label for label in a.labels if label not in shared]
    columns = [label for label in b.labels if label not in shared]
    sizes = {**_sizes(a), **_sizes(b)}
    if not inner:
        return _outer(ctx, a, b, (*batch, *rows, *columns))
    left, trans_a = _stacked(ctx, a, batch, rows, inner, sizes)
    right, trans_b = _stacked(ctx, b, batch, inner, columns, sizes)
    y = product(ctx, left, right, trans_a=trans_a, trans_b=trans_b)
    labels = (*batch, *rows, *columns)
    return Term(value=ctx.view(y, [sizes[label] for label in labels]), labels=labels)


def _sizes(term: Term) -> dict[str, int]:
    return {label: term.size(label) for label in term.labels}


def _outer(ctx: LowerContext, a: Term, b: Term, labels: Labels) -> Term:
    """The elementwise product, each side with axes of 1 for the labels it lacks."""
    sides = []
    for term in (a, b):
        own = [label for label in labels if label in term.labels]
        moved = transpose(ctx, term.value, [term.labels.index(label) for label in own])
        sides.append(ctx.view(moved, [term.size(label) if label in own else 1 for label in labels]))
    return Term(value=ctx.one("mul", sides), labels=labels)


def _stacked(
    ctx: LowerContext,
    term: Term,
    batch: Sequence[str],
    first: Sequence[str],
    second: Sequence[str],
    sizes: Mapping[str, int],
) -> tuple[Value, bool]:
    """`term` as a stack of matrices `first` by `second`, or (True) of their transposes where that moves no byte."""
    order = [*batch, *first, *second]
    flipped = [*batch, *second, *first]
    trans = list(term.labels) == flipped != order
    chosen = flipped if trans else order
    moved = transpose(ctx, term.value, [term.labels.index(label) for label in chosen])
    groups = [batch, second, first] if trans else [batch, first, second]
    shape = [math.prod(sizes[label] for label in group) for group in groups]
    return ctx.view(moved, shape if batch else shape[1:]), trans
