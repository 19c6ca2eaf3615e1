"""Target shapes of the operators that only rename dimensions, and of Slice: shared by folding and lowering."""

from __future__ import annotations

import math
from collections.abc import Sequence

from snplan.frontend.node import NodeView

Shape = tuple[int, ...]


def reshape_shape(view: NodeView, shape: Shape, target: Sequence[int]) -> Shape:
    """The shape that Reshape gives: 0 copies a dimension (unless `allowzero`), one -1 takes what is left."""
    zeros = bool(view.attr_int("allowzero", 0)) and view.version >= 14
    if list(target).count(-1) > 1 or any(size < -1 for size in target):
        raise view.error(f"target shape {list(target)} has more than one -1 or another negative size")
    found = list(target)
    for axis, size in enumerate(found):
        if size == 0 and not zeros:
            view.need(axis < len(shape), f"target shape {list(target)} copies axis {axis} of {list(shape)}")
            found[axis] = shape[axis]
    if -1 in found:
        rest = math.prod(size for size in found if size != -1)
        fits = rest != 0 and math.prod(shape) % rest == 0
        view.need(fits, f"{list(shape)} cannot be reshaped to {list(target)}")
        found[found.index(-1)] = math.prod(shape) // rest
    view.need(math.prod(found) == math.prod(shape), f"{list(shape)} cannot be reshaped to {list(target)}")
    return tuple(found)


def flatten_shape(view: NodeView, shape: Shape) -> Shape:
    """The two dimensions that Flatten gives."""
    axis = view.attr_int("axis", 1)
    view.need(-len(shape) <= axis <= len(shape), f"axis {axis} is out of range for rank {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def _axes(view: NodeView, axes: list[int] | None) -> list[int] | None:
    """Axes by attribute before opset 13, by input since; the other form is an error."""
    if view.input_form("axes", 13, 1):
        return axes
    return view.attr_ints("axes")


def squeeze_shape(view: NodeView, shape: Shape, axes: list[int] | None) -> Shape:
    """`shape` without `axes`, which must be of size 1; without all ones where axes are not given."""
    axes = _axes(view, axes)
    if axes is None:
        return tuple(size for size in shape if size != 1)
    gone = view.checked_axes(axes, len(shape))
    view.need(all(shape[axis] == 1 for axis in gone), f"axes {axes} of {list(shape)} are not all of size 1")
    return tuple(size for axis, size in enumerate(shape) if axis not in gone)


def unsqueeze_shape(view: NodeView, shape: Shape, axes: list[int] | None) -> Shape:
    """`shape` with a dimension of 1 at each of `axes` of the result."""
    axes = _axes(view, axes)
    if axes is None:
        raise view.error("axes are missing")
    rank = len(shape) + len(axes)
    new = view.checked_axes(axes, rank)
    sizes = iter(shape)
    return tuple(1 if axis in new else next(sizes) for axis in range(rank))


def slice_spec(
    view: NodeView,
    shape: Shape,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> tuple[list[int], list[int], list[int]]:
    """Start, size and step for every axis of a Slice; ends are clamped as ONNX says."""
    axes = list(axes) if axes else list(range(len(starts)))
    steps = list(steps) if steps else [1] * len(starts)
    view.need(len(starts) == len(ends) == len(axes) == len(steps), "starts, ends, axes and steps differ in length")
    view.checked_axes(list(axes), len(shape))
    firsts, sizes, strides = [0] * len(shape), list(shape), [1] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        view.need(step != 0, "a step is 0")
        axis = view.checked_axis(axis, len(shape))
        firsts[axis], sizes[axis] = _range(start, end, step, shape[axis])
        strides[axis] = step
    return firsts, sizes, strides


def _range(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """First index and count of `start:end:step` on an axis of `size`."""
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
        return start, max(-(-(end - start) // step), 0)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return start, max(-(-(start - end) // -step), 0)
