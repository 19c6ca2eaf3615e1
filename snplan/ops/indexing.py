"""Kinds that move elements by index tensors: gathers, scatters, `one_hot`, and their gradients."""

from __future__ import annotations

from snplan.ir import Attrs, Spec
from snplan.ops.attributes import get_choice, get_int
from snplan.ops.base import Kind, ShapeError, Specs, no_flops, register
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


def gather_traffic(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """Indices, and what is gathered, read and written: not the whole table."""
    return inputs[1].bytes + 2 * outputs[0].bytes


register(
    Kind(name="gather", infer=infer_gather, flops=no_flops, traffic=gather_traffic),
    Kind(name="gather_elements", infer=infer_gather_elements, flops=no_flops, traffic=gather_traffic),
    Kind(name="gather_nd", infer=infer_gather_nd, flops=no_flops, traffic=gather_traffic),
    Kind(name="scatter_elements", infer=infer_scatter_elements, flops=no_flops, inplace=((0, 0),)),
    Kind(name="scatter_nd", infer=infer_scatter_nd, flops=no_flops, inplace=((0, 0),)),
    Kind(name="one_hot", infer=infer_one_hot, flops=no_flops),
)
