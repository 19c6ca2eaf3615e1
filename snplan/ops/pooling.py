"""Window pooling and its gradients; global pooling is a reduction."""

from __future__ import annotations

from math import prod

from snplan.ir import Attrs, DType, Spec
from snplan.ops.attributes import get_ints, get_shape
from snplan.ops.base import Kind, Specs, register
from snplan.ops.shapes import Shape, need, need_count, need_number, need_rank


def _pooled(shape: Shape, attrs: Attrs) -> Shape:
    """Shape of the pooled result: N, C, `sizes`; raises ShapeError where the attributes do not fit."""
    count = len(shape) - 2
    kernel, strides, pads = get_ints(attrs, "kernel"), get_ints(attrs, "strides"), get_ints(attrs, "pads")
    dilations, sizes = get_ints(attrs, "dilations"), get_shape(attrs, "sizes")
    same = len(kernel) == len(strides) == len(dilations) == len(sizes) == count and len(pads) == 2 * count
    need(same, f"kernel, strides, dilations and sizes must have {count} entries, pads {2 * count}")
    need(min((*kernel, *strides, *dilations), default=1) > 0, "kernel, strides and dilations must be positive")
    need(min(pads, default=0) >= 0, f"pads must be 0 or more, they are {list(pads)}")
    for axis, (size, step, dim) in enumerate(zip(sizes, strides, shape[2:], strict=True)):
        end = dim + pads[axis] + pads[axis + count]
        need((size - 1) * step < end, f"window {size - 1} of spatial axis {axis} starts past the padded end {end}")
    return (*shape[:2], *sizes)


def index_dtype(attrs: Attrs) -> DType:
    """Element type of `max_pool`'s indices: uint8 where the window has at most 256 positions."""
    return DType.UINT8 if prod(get_ints(attrs, "kernel")) <= 256 else DType.INT32


def infer_max_pool(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """Pooled values, and positions inside the windows."""
    need_count(specs, 1)
    need_number(specs[0])
    need_rank(specs[0], 3, 5)
    shape = _pooled(specs[0].shape, attrs)
    return Spec(specs[0].dtype, shape), Spec(index_dtype(attrs), shape)


def infer_average_pool(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """Pooled values."""
    need_count(specs, 1)
    need_number(specs[0])
    need_rank(specs[0], 3, 5)
    return (Spec(specs[0].dtype, _pooled(specs[0].shape, attrs)),)


def window_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """One operation for each position of each window."""
    return outputs[0].elements * prod(get_ints(attrs, "kernel"))


register(
    Kind(name="max_pool", infer=infer_max_pool, flops=window_flops),
    Kind(name="average_pool", infer=infer_average_pool, flops=window_flops),
)
