"""Kinds that move elements by index tensors: gathers, scatters, `one_hot`, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snplan.ir import Attrs, Op, Spec
from snplan.ops.attributes import get_choice, get_int, get_shape
from snplan.ops.base import Backward, Kind, ShapeError, Specs, no_flops, register
from snplan.ops.forms import INTEGER, SHAPE, choice, takes
from snplan.ops.gradients import with_shape, zeros
from snplan.ops.shapes import (
    Shape,
    get_axis,
    need,
    need_count,
    need_index,
    need_rank,
    need_same_dtype,
    need_shape,
    show,
)

REDUCTIONS = ("none", "add", "mul", "max", "min")


def _gathered(shape: Shape, indices: Shape, axis: int) -> Shape:
    return (*shape[:axis], *indices, *shape[axis + 1 :])


def infer_gather(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """x with `axis` replaced by the shape of the indices."""
    need_count(specs, 2)
    x, indices = specs
    need_index(indices)
    return (Spec(x.dtype, _gathered(x.shape, indices.shape, get_axis(attrs, x.rank))),)


def _check_elements(shape: Shape, indices: Spec, attrs: Attrs) -> None:
    """Raise ShapeError unless GatherElements' rule holds: no axis but `axis` is longer than in `shape`."""
    need_index(indices)
    axis = get_axis(attrs, len(shape))
    fits = indices.rank == len(shape) and all(
        i == axis or size <= dim for i, (size, dim) in enumerate(zip(indices.shape, shape, strict=True))
    )
    if not fits:
        raise ShapeError(f"indices {show(indices)} do not fit {list(shape)} along axis {axis}")


def infer_gather_elements(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The indices' shape of x's type."""
    need_count(specs, 2)
    _check_elements(specs[0].shape, specs[1], attrs)
    return (Spec(specs[0].dtype, specs[1].shape),)


def _gathered_nd(shape: Shape, indices: Spec, batch: int) -> Shape:
    """Shape that GatherND gives of `shape`; raises ShapeError where the indices do not fit."""
    need_index(indices)
    need_rank(indices, 1, what="indices")
    depth = indices.shape[-1]
    need(
        0 <= batch < indices.rank and batch + depth <= len(shape),
        f"indices {show(indices)} are too deep for {list(shape)}",
    )
    need(indices.shape[:batch] == shape[:batch], f"indices {show(indices)} and {list(shape)} differ in the batch axes")
    return (*indices.shape[:-1], *shape[batch + depth :])


def infer_gather_nd(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The indices' leading axes, then what they leave of x."""
    need_count(specs, 2)
    return (Spec(specs[0].dtype, _gathered_nd(specs[0].shape, specs[1], get_int(attrs, "batch_dims"))),)


def infer_scatter_elements(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """x's spec; updates have the indices' shape."""
    need_count(specs, 3)
    x, indices, updates = specs
    get_choice(attrs, "reduction", REDUCTIONS)
    _check_elements(x.shape, indices, attrs)
    need_same_dtype((x, updates))
    need_shape(updates, indices.shape, "updates")
    return (x,)


def infer_scatter_nd(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """x's spec; updates have the shape that GatherND would give."""
    need_count(specs, 3)
    x, indices, updates = specs
    get_choice(attrs, "reduction", REDUCTIONS)
    need_same_dtype((x, updates))
    need_shape(updates, _gathered_nd(x.shape, indices, 0), "updates")
    return (x,)


def infer_one_hot(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """The indices' shape with `depth` put in at `axis`, of the type of the two values (off, on)."""
    need_count(specs, 2)
    indices, values = specs
    need_shape(values, (2,), "values")
    axis, depth = get_axis(attrs, indices.rank, extra=1), get_int(attrs, "depth")
    need(depth >= 0, f"depth must be 0 or more, it is {depth}")
    return (Spec(values.dtype, (*indices.shape[:axis], depth, *indices.shape[axis:])),)


def infer_gather_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape` of dy's type; gathering from it gives dy's shape."""
    need_count(specs, 2)
    indices, dy = specs
    need_index(indices)
    shape = get_shape(attrs)
    need_shape(dy, _gathered(shape, indices.shape, get_axis(attrs, len(shape))), "dy")
    return (Spec(dy.dtype, shape),)


def infer_gather_nd_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape` of dy's type; GatherND from it gives dy's shape."""
    need_count(specs, 2)
    shape = get_shape(attrs)
    need_shape(specs[1], _gathered_nd(shape, specs[0], get_int(attrs, "batch_dims")), "dy")
    return (Spec(specs[1].dtype, shape),)


def infer_scatter_add(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape` of dy's type; dy has the indices' shape."""
    need_count(specs, 2)
    shape = get_shape(attrs)
    _check_elements(shape, specs[0], attrs)
    need_shape(specs[1], specs[0].shape, "dy")
    return (Spec(specs[1].dtype, shape),)


def gradient_gather(b: Backward, op: Op) -> Mapping[int, str]:
    """dy summed where it was gathered from."""
    attrs = with_shape({"axis": op.attrs["axis"]}, b, op.inputs[0])
    return {0: b.emit("gather_grad", [op.inputs[1], b.dy()], attrs)[0]}


def gradient_gather_elements(b: Backward, op: Op) -> Mapping[int, str]:
    """dy summed where it was gathered from."""
    attrs = with_shape({"axis": op.attrs["axis"]}, b, op.inputs[0])
    return {0: b.emit("scatter_add", [op.inputs[1], b.dy()], attrs)[0]}


def gradient_gather_nd(b: Backward, op: Op) -> Mapping[int, str]:
    """dy summed where it was gathered from."""
    attrs = with_shape({"batch_dims": op.attrs["batch_dims"]}, b, op.inputs[0])
    return {0: b.emit("gather_nd_grad", [op.inputs[1], b.dy()], attrs)[0]}


def gradient_scatter_elements(b: Backward, op: Op) -> Mapping[int, str]:
    """dx is dy with zeros at what was overwritten; the updates' gradient is gathered."""
    return _scatter_gradients(b, op, "gather_elements", {"axis": op.attrs["axis"]})


def gradient_scatter_nd(b: Backward, op: Op) -> Mapping[int, str]:
    """dx is dy with zeros at what was overwritten; the updates' gradient is gathered."""
    return _scatter_gradients(b, op, "gather_nd", {"batch_dims": 0})


def _scatter_gradients(b: Backward, op: Op, gather: str, attrs: Attrs) -> Mapping[int, str]:
    _, indices, updates = op.inputs
    if op.attrs["reduction"] in ("max", "min"):
        return _scatter_extremum_gradients(b, op, gather, attrs)
    gradients = {}
    if b.wants(2):
        gradients[2] = b.emit(gather, [b.dy(), indices], attrs, label="dupdates")[0]
    if b.wants(0):
        added = op.attrs["reduction"] == "add"
        gradients[0] = b.dy() if added else b.emit(op.kind, [b.dy(), indices, zeros(b, updates)], op.attrs)[0]
    return gradients


def _scatter_extremum_gradients(b: Backward, op: Op, gather: str, attrs: Attrs) -> Mapping[int, str]:
    """dy shared evenly by the elements of x and of the updates that are equal to y."""
    x, indices, updates = op.inputs
    (won,) = b.emit(gather, [op.outputs[0], indices], attrs, label="won")
    (from_x,) = b.emit("equal", [x, op.outputs[0]], label="from_x")
    (from_updates,) = b.emit("equal", [updates, won], label="from_updates")
    dtype: Attrs = {"to": str(b.spec(x).dtype)}
    ones = [b.emit("cast", [winners], dtype, label="winners")[0] for winners in (from_x, from_updates)]
    (count,) = b.emit(op.kind, [ones[0], indices, ones[1]], {**op.attrs, "reduction": "add"}, label="count")
    (share,) = b.emit("div", [b.dy(), count], label="share")
    gradients = {}
    if b.wants(2):
        (shares,) = b.emit(gather, [share, indices], attrs, label="shares")
        gradients[2] = b.emit("mask", [from_updates, shares], {"keep": True}, label="dupdates")[0]
    if b.wants(0):
        gradients[0] = b.emit("mask", [from_x, share], {"keep": True})[0]
    return gradients


def _refuses_scatter(attrs: Attrs, outputs: Sequence[bool]) -> str | None:
    return 'reduction "mul" has no gradient' if attrs.get("reduction") == "mul" else None


def scatter_add_traffic(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """All of the result cleared; indices and dy read; each sum read and written."""
    return inputs[0].bytes + 3 * inputs[1].bytes + outputs[0].bytes


def gather_traffic(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """Indices, and what is gathered, read and written: not the whole table."""
    return inputs[1].bytes + 2 * outputs[0].bytes


register(
    Kind(name="gather", infer=infer_gather, gradient=gradient_gather, flops=no_flops, traffic=gather_traffic),
    Kind(
        name="gather_elements",
        infer=infer_gather_elements,
        gradient=gradient_gather_elements,
        flops=no_flops,
        traffic=gather_traffic,
    ),
    Kind(name="gather_nd", infer=infer_gather_nd, gradient=gradient_gather_nd, flops=no_flops, traffic=gather_traffic),
    Kind(
        name="scatter_elements",
        infer=infer_scatter_elements,
        gradient=gradient_scatter_elements,
        refuses=_refuses_scatter,
        flops=no_flops,
        inplace=((0, 0),),
    ),
    Kind(
        name="scatter_nd",
        infer=infer_scatter_nd,
        gradient=gradient_scatter_nd,
        refuses=_refuses_scatter,
        flops=no_flops,
        inplace=((0, 0),),
    ),
    Kind(name="one_hot", infer=infer_one_hot, differentiable=(), flops=no_flops),
    Kind(name="gather_grad", infer=infer_gather_grad, traffic=scatter_add_traffic),
    Kind(name="gather_nd_grad", infer=infer_gather_nd_grad, traffic=scatter_add_traffic),
    Kind(name="scatter_add", infer=infer_scatter_add, traffic=scatter_add_traffic),
)

takes("gather", "gather_grad", "gather_elements", "scatter_add", "scatter_elements", "one_hot", axis=INTEGER)
takes("gather_grad", "gather_nd_grad", "scatter_add", shape=SHAPE)
takes("gather_nd", "gather_nd_grad", batch_dims=INTEGER)
takes("scatter_elements", "scatter_nd", reduction=choice(*REDUCTIONS))
takes("one_hot", depth=INTEGER)
