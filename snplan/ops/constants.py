"""Constants, views and copies: `constant`, `range`, `view`, `copy`, `cast`."""

from __future__ import annotations

from collections.abc import Mapping

from snplan.ir import Attrs, Op, Spec
from snplan.ops.attributes import get_dtype, get_float, get_int, get_shape
from snplan.ops.base import Backward, Kind, ShapeError, Specs, no_flops, register
from snplan.ops.forms import DTYPE, INTEGER, NUMBER, SHAPE, VALUES, takes
from snplan.ops.gradients import pass_through, reshaped
from snplan.ops.shapes import need, need_count, same_as, show


def infer_constant(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape` of `dtype`; `values` must be as many, or a single one that fills."""
    need_count(specs, 0)
    spec = Spec(get_dtype(attrs), get_shape(attrs))
    values = attrs.get("values")
    if not isinstance(values, (list, tuple)) or len(values) not in (1, spec.elements):
        raise ShapeError(f"attribute values must list one value or {spec.elements} for {show(spec)}")
    return (spec,)


def infer_range(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`size` elements of `dtype`."""
    need_count(specs, 0)
    size = get_int(attrs, "size")
    need(size >= 0, f"size must be 0 or more, it is {size}")
    get_float(attrs, "start")
    get_float(attrs, "step")
    return (Spec(get_dtype(attrs), (size,)),)


def infer_view(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input under `shape`, which must have as many elements."""
    need_count(specs, 1)
    spec = Spec(specs[0].dtype, get_shape(attrs))
    need(spec.elements == specs[0].elements, f"{show(specs[0])} cannot be viewed as {list(spec.shape)}")
    return (spec,)


def infer_cast(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input's shape with element type `to`."""
    need_count(specs, 1)
    return (Spec(get_dtype(attrs, "to"), specs[0].shape),)


def gradient_view(b: Backward, op: Op) -> Mapping[int, str]:
    """dy under x's shape."""
    return {0: reshaped(b, b.dy(), b.spec(op.inputs[0]).shape)}


def gradient_cast(b: Backward, op: Op) -> Mapping[int, str]:
    """dy cast back to x's type."""
    return {0: b.emit("cast", [b.dy()], {"to": str(b.spec(op.inputs[0]).dtype)})[0]}


register(
    Kind(name="constant", infer=infer_constant, flops=no_flops),
    Kind(name="range", infer=infer_range, flops=no_flops),
    Kind(name="view", infer=infer_view, gradient=gradient_view, flops=no_flops, view=True),
    Kind(name="copy", infer=same_as(0, 1), gradient=pass_through, flops=no_flops),
    Kind(name="cast", infer=infer_cast, gradient=gradient_cast),
)

takes("constant", dtype=DTYPE, shape=SHAPE, values=VALUES)
takes("range", dtype=DTYPE, start=NUMBER, step=NUMBER, size=INTEGER)
takes("view", shape=SHAPE)
takes("cast", to=DTYPE)
