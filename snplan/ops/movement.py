"""Kinds that move elements by position: transposes, slices, pads, broadcasts, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping

from snplan.ir import Attr, Attrs, Op, Spec
from snplan.ops.attributes import get_bool, get_choice, get_int, get_ints, get_shape
from snplan.ops.base import Backward, Kind, ShapeError, Specs, no_flops, register
from snplan.ops.forms import FLAG, INTEGER, INTEGERS, NUMBER, SHAPE, choice, takes
from snplan.ops.gradients import linear_gradient, reshaped, unbroadcast, with_shape
from snplan.ops.shapes import (
    Shape,
    broadcasts_to,
    get_axis,
    need,
    need_count,
    need_rank,
    need_same_dtype,
    need_shape,
    show,
    show_all,
    without,
)

PAD_MODES = ("constant", "reflect", "edge", "wrap")


def infer_transpose(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input with its axes in the order `perm`."""
    need_count(specs, 1)
    perm = get_ints(attrs, "perm")
    need(sorted(perm) == list(range(specs[0].rank)), f"perm {list(perm)} does not fit {show(specs[0])}")
    return (Spec(specs[0].dtype, tuple(specs[0].shape[axis] for axis in perm)),)


def infer_concat(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The inputs one after another along `axis`."""
    need(len(specs) > 0, "takes at least one input")
    dtype, first = need_same_dtype(specs), specs[0]
    axis = get_axis(attrs, first.rank)
    rest = without(first.shape, axis)
    if any(spec.rank != first.rank or without(spec.shape, axis) != rest for spec in specs):
        raise ShapeError(f"inputs differ in another axis than {axis}: {show_all(specs)}")
    size = sum(spec.shape[axis] for spec in specs)
    return (Spec(dtype, (*first.shape[:axis], size, *first.shape[axis + 1 :])),)


def infer_split(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """One part for each of `sizes` along `axis`."""
    need_count(specs, 1)
    x = specs[0]
    axis, sizes = get_axis(attrs, x.rank), get_shape(attrs, "sizes")
    need(
        len(sizes) > 0 and sum(sizes) == x.shape[axis], f"sizes {list(sizes)} do not add up to axis {axis} of {show(x)}"
    )
    return tuple(Spec(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes)


def _check_slice(shape: Shape, attrs: Attrs) -> Shape:
    """`sizes`, after the check that every element taken lies in `shape`."""
    starts, steps, sizes = get_ints(attrs, "starts"), get_ints(attrs, "steps"), get_shape(attrs, "sizes")
    need(
        len(starts) == len(steps) == len(sizes) == len(shape), f"starts, steps and sizes must have {len(shape)} entries"
    )
    for axis, (start, step, size, dim) in enumerate(zip(starts, steps, sizes, shape, strict=True)):
        last = start + (size - 1) * step
        if size and not (step and 0 <= start < dim and 0 <= last < dim):
            raise ShapeError(f"axis {axis}: {size} elements from {start} by {step} do not lie in {dim}")
    return sizes


def infer_slice(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`sizes` of the input's type."""
    need_count(specs, 1)
    return (Spec(specs[0].dtype, _check_slice(specs[0].shape, attrs)),)


def _padded(shape: Shape, attrs: Attrs) -> Shape:
    """`shape` with `before` and `after` added; the mode must be able to fill them."""
    before, after = get_ints(attrs, "before"), get_ints(attrs, "after")
    mode = get_choice(attrs, "mode", PAD_MODES)
    need(len(before) == len(after) == len(shape), f"before and after must have {len(shape)} entries")
    result = tuple(dim + b + a for dim, b, a in zip(shape, before, after, strict=True))
    need(
        all(size >= 0 for size in result), f"cropping {list(shape)} by {list(before)} and {list(after)} leaves nothing"
    )
    if mode == "constant":
        return result
    # Reflection does not repeat the border element; wrapping and the edge need one to take.
    room = 1 if mode == "reflect" else 0
    for dim, b, a in zip(shape, before, after, strict=True):
        limit = dim - room if mode != "edge" else max(b, a) if dim else 0
        need(max(b, a) <= limit or max(b, a) <= 0, f"{mode} padding by {max(b, a)} needs more than {dim} elements")
    return result


def infer_pad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input with `before` and `after` added to its sizes."""
    need_count(specs, 1)
    return (Spec(specs[0].dtype, _padded(specs[0].shape, attrs)),)


def infer_expand(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape`, which the input must broadcast to."""
    need_count(specs, 1)
    shape = get_shape(attrs)
    need(broadcasts_to(specs[0].shape, shape), f"{show(specs[0])} does not broadcast to {list(shape)}")
    return (Spec(specs[0].dtype, shape),)


def infer_tile(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input's sizes times `repeats`."""
    need_count(specs, 1)
    repeats = get_shape(attrs, "repeats")
    need(len(repeats) == specs[0].rank, f"repeats must have {specs[0].rank} entries, it is {list(repeats)}")
    return (Spec(specs[0].dtype, tuple(dim * count for dim, count in zip(specs[0].shape, repeats, strict=True))),)


def infer_trilu(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The input's spec; its rank must be 2 or more."""
    need_count(specs, 1)
    need_rank(specs[0], 2)
    get_int(attrs, "k")
    get_bool(attrs, "upper")
    return (specs[0],)


def written_twice(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """Bytes of the outputs read and written: the op reads only what it returns."""
    return 2 * sum(spec.bytes for spec in outputs)


def infer_slice_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape`, of which the slice would have dy's shape."""
    need_count(specs, 1)
    shape = get_shape(attrs)
    taken = _check_slice(shape, {**attrs, "sizes": [*specs[0].shape]})
    need_shape(specs[0], taken, "dy")
    return (Spec(specs[0].dtype, shape),)


def infer_pad_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape`, which padded would have dy's shape."""
    need_count(specs, 1)
    shape = get_shape(attrs)
    need_shape(specs[0], _padded(shape, attrs), "dy")
    return (Spec(specs[0].dtype, shape),)


def _inverse(attrs: Attrs) -> Attrs:
    perm = get_ints(attrs, "perm")
    return {"perm": [perm.index(axis) for axis in range(len(perm))]}


def _part(shape: Shape, axis: int, start: int) -> dict[str, Attr]:
    """Attributes `starts` and `steps` of the part of a tensor of `shape` from `start` along `axis`."""
    starts: list[Attr] = [0] * len(shape)
    starts[axis] = start
    return {"starts": starts, "steps": [1] * len(shape)}


def gradient_concat(b: Backward, op: Op) -> Mapping[int, str]:
    """dy split, or sliced where not every input wants its part."""
    axis = get_int(op.attrs, "axis")
    shapes = [b.spec(name).shape for name in op.inputs]
    wanted = [index for index in range(len(shapes)) if b.wants(index)]
    if len(wanted) == len(shapes) > 1:
        attrs: dict[str, Attr] = {"axis": axis, "sizes": [shape[axis] for shape in shapes]}
        parts = b.emit("split", [b.dy()], attrs)
        return dict(enumerate(parts))
    gradients, start = {}, 0
    for index, shape in enumerate(shapes):
        if index in wanted:
            attrs = {**_part(shape, axis, start), "sizes": [*shape]}
            gradients[index] = b.emit("slice", [b.dy()], attrs, label=f"dx{index}")[0]
        start += shape[axis]
    return gradients


def gradient_split(b: Backward, op: Op) -> Mapping[int, str]:
    """The parts' gradients one after another; where only one part has any, zeros around it."""
    axis = get_int(op.attrs, "axis")
    given = [index for index in range(len(op.outputs)) if b.has_dy(index)]
    if len(given) > 1 or len(op.outputs) == 1:
        parts = [b.dy(index) for index in range(len(op.outputs))]
        return {0: b.emit("concat", parts, {"axis": axis})[0]}
    start = sum(get_ints(op.attrs, "sizes")[: given[0]])
    attrs = _part(b.spec(op.inputs[0]).shape, axis, start)
    return {0: b.emit("slice_grad", [b.dy(given[0])], with_shape(attrs, b, op.inputs[0]))[0]}


def gradient_slice(b: Backward, op: Op) -> Mapping[int, str]:
    """dy where it was taken from, zero elsewhere."""
    attrs = {"starts": op.attrs["starts"], "steps": op.attrs["steps"]}
    return {0: b.emit("slice_grad", [b.dy()], with_shape(attrs, b, op.inputs[0]))[0]}


def gradient_pad(b: Backward, op: Op) -> Mapping[int, str]:
    """dy without the pads, what they repeated added where it came from."""
    attrs = {key: op.attrs[key] for key in ("before", "after", "mode")}
    return {0: b.emit("pad_grad", [b.dy()], with_shape(attrs, b, op.inputs[0]))[0]}


def gradient_expand(b: Backward, op: Op) -> Mapping[int, str]:
    """dy summed over the axes along which x was repeated."""
    return {0: unbroadcast(b, b.dy(), op.inputs[0])}


def gradient_tile(b: Backward, op: Op) -> Mapping[int, str]:
    """dy summed over the repeats, seen as axes of their own."""
    x, repeats = b.spec(op.inputs[0]).shape, get_ints(op.attrs, "repeats")
    pairs = tuple(size for pair in zip(repeats, x, strict=True) for size in pair)
    axes: list[Attr] = [2 * axis for axis in range(len(x))]
    (total,) = b.emit("reduce_sum", [reshaped(b, b.dy(), pairs)], {"axes": axes, "keepdims": False})
    return {0: total}


register(
    Kind(name="transpose", infer=infer_transpose, gradient=linear_gradient("transpose", _inverse), flops=no_flops),
    Kind(name="concat", infer=infer_concat, gradient=gradient_concat, flops=no_flops),
    Kind(name="split", infer=infer_split, gradient=gradient_split, flops=no_flops),
    Kind(name="slice", infer=infer_slice, gradient=gradient_slice, flops=no_flops, traffic=written_twice),
    Kind(name="pad", infer=infer_pad, gradient=gradient_pad, flops=no_flops),
    Kind(name="slice_grad", infer=infer_slice_grad, flops=no_flops),
    Kind(name="pad_grad", infer=infer_pad_grad, flops=no_flops),
    Kind(name="expand", infer=infer_expand, gradient=gradient_expand, flops=no_flops),
    Kind(name="tile", infer=infer_tile, gradient=gradient_tile, flops=no_flops),
    Kind(name="trilu", infer=infer_trilu, gradient=linear_gradient("trilu"), flops=no_flops),
)

takes("transpose", perm=INTEGERS)
takes("concat", axis=INTEGER)
takes("split", axis=INTEGER, sizes=SHAPE)
takes("slice", starts=INTEGERS, steps=INTEGERS, sizes=SHAPE)
takes("slice_grad", starts=INTEGERS, steps=INTEGERS, shape=SHAPE)
takes("pad", before=INTEGERS, after=INTEGERS, mode=choice(*PAD_MODES), value=NUMBER)
takes("pad_grad", before=INTEGERS, after=INTEGERS, mode=choice(*PAD_MODES), shape=SHAPE)
takes("expand", shape=SHAPE)
takes("tile", repeats=SHAPE)
takes("trilu", upper=FLAG, k=INTEGER)
