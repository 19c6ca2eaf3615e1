"""What the gradient rules of the op families share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from snplan.ir import Attr, Attrs, Op
from snplan.ops.base import Backward, GradientRule
from snplan.ops.shapes import Shape


def unbroadcast(b: Backward, gradient: str, like: str, label: str = "dx") -> str:
    """The gradient of `like`, given that of its broadcast: summed over the axes along which `like` was repeated."""
    source, target = b.spec(gradient).shape, b.spec(like).shape
    if source == target:
        return gradient
    extra = len(source) - len(target)
    stretched = [axis for axis, size in enumerate(target, extra) if size != source[axis]]
    if stretched:
        axes: list[Attr] = [*range(extra), *stretched]
        (gradient,) = b.emit("reduce_sum", [gradient], {"axes": axes, "keepdims": True}, label=f"{label}_sum")
    elif any(size != 1 for size in source[:extra]):
        leading: list[Attr] = [*range(extra)]
        (gradient,) = b.emit("reduce_sum", [gradient], {"axes": leading, "keepdims": False}, label=f"{label}_sum")
    return reshaped(b, gradient, target, label)


def reshaped(b: Backward, name: str, shape: Shape, label: str = "dx") -> str:
    """`name` under `shape`: itself, or a view of it."""
    if b.spec(name).shape == shape:
        return name
    return b.emit("view", [name], {"shape": [*shape]}, label=f"{label}_view")[0]


def zeros(b: Backward, like: str, label: str = "zeros") -> str:
    """A constant of zeros of the spec of `like`."""
    spec = b.spec(like)
    return b.emit("constant", [], {"dtype": str(spec.dtype), "shape": [*spec.shape], "values": [0]}, label=label)[0]


def with_shape(attrs: Attrs, b: Backward, like: str) -> dict[str, Attr]:
    """`attrs` and the shape of `like` as attribute `shape`: what kinds that rebuild an input's gradient take."""
    return {**attrs, "shape": [*b.spec(like).shape]}


def saved_gradient(kind: str, *, from_output: bool) -> GradientRule:
    """The rule of one-input kinds: `KIND(saved, dy) -> dx` with the same attributes; saved is y or x."""

    def rule(b: Backward, op: Op) -> Mapping[int, str]:
        saved = op.outputs[0] if from_output else op.inputs[0]
        return {0: b.emit(kind, [saved, b.dy()], op.attrs)[0]}

    return rule


def linear_gradient(kind: str, attributes: Callable[[Attrs], Attrs] | None = None) -> GradientRule:
    """The rule of one-input kinds whose gradient needs dy alone; `attributes` maps the op's to the gradient's."""

    def rule(b: Backward, op: Op) -> Mapping[int, str]:
        return {0: b.emit(kind, [b.dy()], op.attrs if attributes is None else attributes(op.attrs))[0]}

    return rule


def shaped_gradient(kind: str) -> GradientRule:
    """The rule of one-input kinds whose gradient needs dy, the attributes and the shape of x."""

    def rule(b: Backward, op: Op) -> Mapping[int, str]:
        return {0: b.emit(kind, [b.dy()], with_shape(op.attrs, b, op.inputs[0]))[0]}

    return rule


def pass_through(b: Backward, op: Op) -> Mapping[int, str]:
    """The rule of kinds that copy their input: dx is dy."""
    return {0: b.dy()}
