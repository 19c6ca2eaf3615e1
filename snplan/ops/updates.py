"""Optimiser updates: phase update, in place, run once a step."""

from __future__ import annotations

from snplan.ir import Attrs, Spec
from snplan.ops.attributes import get_float
from snplan.ops.base import Count, Infer, Kind, Specs, register
from snplan.ops.forms import NUMBER, takes
from snplan.ops.shapes import need_count, need_float, need_shape


def update_rule(states: int, numbers: tuple[str, ...]) -> Infer:
    """A shape rule for `w, g` and `states` tensors more of w's shape: all but g come out again."""

    def infer(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
        need_count(specs, 2 + states)
        for spec in specs:
            need_float(spec)
            need_shape(spec, specs[0].shape, "every input")
        for key in numbers:
            get_float(attrs, key)
        return specs[0], *specs[2:]

    return infer


def operations(count: int) -> Count:
    """`count` operations for each element of the parameter."""

    def flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
        return count * outputs[0].elements

    return flops


register(
    Kind(
        name="sgd_update",
        infer=update_rule(0, ("lr", "weight_decay")),
        inplace=((0, 0),),
        flops=operations(4),
    ),
    Kind(
        name="momentum_update",
        infer=update_rule(1, ("lr", "momentum", "weight_decay")),
        inplace=((0, 0), (1, 2)),
        flops=operations(6),
    ),
    Kind(
        name="adam_update",
        infer=update_rule(2, ("lr", "beta1", "beta2", "epsilon", "weight_decay")),
        inplace=((0, 0), (1, 2), (2, 3)),
        flops=operations(16),
    ),
)

takes("sgd_update", "momentum_update", "adam_update", lr=NUMBER, weight_decay=NUMBER)
takes("momentum_update", momentum=NUMBER)
takes("adam_update", beta1=NUMBER, beta2=NUMBER, epsilon=NUMBER)
