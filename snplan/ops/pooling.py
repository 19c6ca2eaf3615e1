"""Window pooling and its gradients; global pooling is a reduction."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from snplan.ir import Attrs, DType, Op, Spec
from snplan.ops.attributes import get_ints, get_shape
from snplan.ops.base import Backward, Kind, Specs, register
from snplan.ops.forms import FLAG, INTEGERS, SHAPE, takes
from snplan.ops.gradients import shaped_gradient, with_shape
from snplan.ops.shapes import Shape, need, need_count, need_float, need_number, need_rank, need_same, need_shape


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


def infer_max_pool_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape` of dy's type, which pooled would have dy's shape."""
    need_count(specs, 2)
    indices, dy = specs
    need_float(dy, "dy")
    need_same(indices, Spec(index_dtype(attrs), dy.shape), "indices and max_pool's")
    return infer_average_pool_grad(specs[1:], attrs)


def infer_average_pool_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape` of dy's type, which pooled would have dy's shape."""
    need_count(specs, 1)
    need_float(specs[0], "dy")
    need_rank(specs[0], 3, 5, "dy")
    shape = get_shape(attrs)
    need_shape(specs[0], _pooled(shape, attrs), "dy")
    return (Spec(specs[0].dtype, shape),)


def gradient_max_pool(b: Backward, op: Op) -> Mapping[int, str]:
    """dy put back at the saved positions."""
    attrs = with_shape(op.attrs, b, op.inputs[0])
    return {0: b.emit("max_pool_grad", [op.outputs[1], b.dy()], attrs)[0]}


def window_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """One operation for each position of each window."""
    return outputs[0].elements * prod(get_ints(attrs, "kernel"))


def window_gradient_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """One operation for each position of each window of dy, the last input."""
    return inputs[-1].elements * prod(get_ints(attrs, "kernel"))


register(
    Kind(name="max_pool", infer=infer_max_pool, gradient=gradient_max_pool, flops=window_flops),
    Kind(name="max_pool_grad", infer=infer_max_pool_grad, flops=window_gradient_flops),
    Kind(
        name="average_pool",
        infer=infer_average_pool,
        gradient=shaped_gradient("average_pool_grad"),
        flops=window_flops,
    ),
    Kind(name="average_pool_grad", infer=infer_average_pool_grad, flops=window_gradient_flops),
)

_POOLS = ("max_pool", "max_pool_grad", "average_pool", "average_pool_grad")

takes(*_POOLS, kernel=INTEGERS, strides=INTEGERS, pads=INTEGERS, dilations=INTEGERS, sizes=SHAPE)
takes("average_pool", "average_pool_grad", count_include_pad=FLAG)
takes("max_pool_grad", "average_pool_grad", shape=SHAPE)
