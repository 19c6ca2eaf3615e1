"""Evaluators of operators that move, select or make values known at compile time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from onnx import TensorProto

from snplan.frontend.node import NodeView
from snplan.frontend.shapes import flatten_shape, reshape_shape, slice_spec, squeeze_shape, unsqueeze_shape
from snplan.frontend.tensors import DTYPES, MOST_ELEMENTS, Array, numpy_dtype, tensor_array, tensor_spec
from snplan.frontend.values import INITIALIZER

Evaluate = Callable[[NodeView, Sequence[Array]], Array | Sequence[Array] | None]


def _ints(array: Array) -> list[int]:
    return [int(number) for number in array.reshape(-1)]


def _cast(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    dtype = DTYPES.get(view.attr_int("to"))  # type: ignore[call-overload]
    return None if dtype is None else np.asarray(arrays[0]).astype(numpy_dtype(dtype))


def _cast_like(view: NodeView, arrays: Sequence[Array]) -> Array:
    return arrays[0].astype(arrays[1].dtype)


def _concat(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    if sum(array.size for array in arrays) > MOST_ELEMENTS:
        return None
    return np.concatenate(arrays, axis=view.attr_axis("axis", 1, arrays[0].ndim))


def _constant_of_shape(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    if getattr(view.items[0], "origin", "") == INITIALIZER:
        return None  # it stands for stripped weights
    shape = _ints(arrays[0])
    if math.prod(max(size, 0) for size in shape) > MOST_ELEMENTS or any(size < 0 for size in shape):
        return None
    return np.full(shape, fill_of(view))


def fill_of(view: NodeView) -> Array:
    """The one value that a ConstantOfShape fills with (rank 0)."""
    tensor = view.attr_tensor("value")
    if tensor is None:
        return np.zeros((), np.float32)
    found = _one_number(tensor.SerializeToString(deterministic=True))
    view.need(found is not None, "its value must be one number")
    assert found is not None
    return found


@lru_cache(maxsize=256)
def _one_number(data: bytes) -> Array | None:
    """The number in a tensor, read once for all nodes that have the same; None where there is not one."""
    tensor = TensorProto.FromString(data)
    spec = tensor_spec(tensor, "its value")
    if spec is None or spec.elements != 1:
        return None
    found = tensor_array(tensor, spec).reshape(())
    found.flags.writeable = False
    return found


def _expand(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    shape = np.broadcast_shapes(arrays[0].shape, tuple(_ints(arrays[1])))
    return None if math.prod(shape) > MOST_ELEMENTS else np.broadcast_to(arrays[0], shape).copy()


def _gather(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    x, indices = arrays
    axis = view.attr_axis("axis", 0, x.ndim)
    if x.shape[axis] and x.size // x.shape[axis] * indices.size > MOST_ELEMENTS:
        return None
    _check_range(view, indices, x.shape[axis])
    return np.take(x, indices, axis=axis)


def _check_range(view: NodeView, indices: Array, size: int) -> None:
    if indices.size and (indices.min() < -size or indices.max() >= size):
        raise view.error(f"an index is out of range for {size} entries: {indices.reshape(-1)[:8].tolist()}")


def _gather_elements(view: NodeView, arrays: Sequence[Array]) -> Array:
    x, indices = arrays
    axis = view.attr_axis("axis", 0, x.ndim)
    _check_range(view, indices, x.shape[axis])
    return np.take_along_axis(x, np.where(indices < 0, indices + x.shape[axis], indices), axis=axis)


def _gather_nd(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    x, indices = arrays
    if view.attr_int("batch_dims", 0) or not indices.ndim or indices.shape[-1] > x.ndim:
        return None
    rows = indices.size // max(indices.shape[-1], 1)
    if rows * math.prod(x.shape[indices.shape[-1] :]) > MOST_ELEMENTS:
        return None
    return np.asarray(x[tuple(np.moveaxis(indices, -1, 0))])


def _identity(view: NodeView, arrays: Sequence[Array]) -> Array:
    return arrays[0]


def _non_zero(view: NodeView, arrays: Sequence[Array]) -> Array:
    return np.array(np.nonzero(np.atleast_1d(arrays[0])), np.int64)


def _range(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    start, limit, step = (array.reshape(()) for array in arrays)
    if float(step) == 0 or abs((float(limit) - float(start)) / float(step)) > MOST_ELEMENTS:
        return None
    count = max(math.ceil((limit.item() - start.item()) / step.item()), 0)
    return np.asarray(start + np.arange(count).astype(start.dtype) * step, start.dtype)


def _reshape(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    return arrays[0].reshape(reshape_shape(view, arrays[0].shape, _ints(arrays[1])))


def _scatter_elements(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    x, indices, updates = arrays
    if view.attr_str("reduction", "none") != "none":
        return None
    axis = view.attr_axis("axis", 0, x.ndim)
    _check_range(view, indices, x.shape[axis])
    found = x.copy()
    np.put_along_axis(found, np.where(indices < 0, indices + x.shape[axis], indices), updates, axis=axis)
    return found


def _scatter_nd(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    x, indices, updates = arrays
    if view.attr_str("reduction", "none") != "none" or not indices.ndim:
        return None
    found = x.copy()
    found[tuple(np.moveaxis(indices, -1, 0))] = updates
    return found


def _slice(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    if view.version < 10:
        return None
    lists = [_ints(array) for array in arrays[1:]]
    starts, sizes, steps = slice_spec(view, arrays[0].shape, *lists)
    picks = [start + np.arange(size) * step for start, size, step in zip(starts, sizes, steps, strict=True)]
    return np.asarray(arrays[0][np.ix_(*picks)]) if picks else arrays[0]


def _split(view: NodeView, arrays: Sequence[Array]) -> list[Array] | None:
    x = arrays[0]
    axis = view.attr_axis("axis", 0, x.ndim)
    sizes = _ints(arrays[1]) if len(arrays) > 1 else view.attr_ints("split")
    if sizes is None or sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        return None
    return list(np.split(x, np.cumsum(sizes)[:-1], axis=axis))


def _squeeze(view: NodeView, arrays: Sequence[Array]) -> Array:
    axes = _ints(arrays[1]) if len(arrays) > 1 else None
    return arrays[0].reshape(squeeze_shape(view, arrays[0].shape, axes))


def _unsqueeze(view: NodeView, arrays: Sequence[Array]) -> Array:
    axes = _ints(arrays[1]) if len(arrays) > 1 else None
    return arrays[0].reshape(unsqueeze_shape(view, arrays[0].shape, axes))


def _tile(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    repeats = _ints(arrays[1])
    if len(repeats) != arrays[0].ndim or min(repeats, default=0) < 0:
        return None
    if arrays[0].size * math.prod(repeats) > MOST_ELEMENTS:
        return None
    return np.tile(arrays[0], repeats)


def _transpose(view: NodeView, arrays: Sequence[Array]) -> Array:
    perm = view.attr_ints("perm")
    return np.transpose(arrays[0], perm) if perm is not None else np.transpose(arrays[0])


def _trilu(view: NodeView, arrays: Sequence[Array]) -> Array:
    offset = int(arrays[1].reshape(())) if len(arrays) > 1 else 0
    return np.asarray((np.triu if view.attr_int("upper", 1) else np.tril)(arrays[0], offset))


def _one_hot(view: NodeView, arrays: Sequence[Array]) -> Array | None:
    indices, depth, values = arrays[0], int(arrays[1].reshape(())), arrays[2]
    if indices.size * max(depth, 0) > MOST_ELEMENTS or values.size != 2 or depth < 1:
        return None
    axis = view.attr_axis("axis", -1, indices.ndim, extra=1)
    hot = np.moveaxis((indices % depth)[..., None] == np.arange(depth), -1, axis)
    inside = np.expand_dims((indices >= -depth) & (indices < depth), axis)
    return np.asarray(np.where(hot & inside, values[1], values[0]), values.dtype)


MOVERS: dict[str, Evaluate] = {
    "Cast": _cast,
    "CastLike": _cast_like,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Flatten": lambda view, arrays: arrays[0].reshape(flatten_shape(view, arrays[0].shape)),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Identity": _identity,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "Range": _range,
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
"""Evaluators by operator."""
