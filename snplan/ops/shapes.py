"""What the shape rules of the op families share: checks with clear reasons, broadcasting, axes."""

from __future__ import annotations

from collections.abc import Sequence

from snplan.ir import Attrs, DType, Spec
from snplan.ops.attributes import get_bool, get_int, get_ints, get_shape
from snplan.ops.base import Infer, ShapeError, Specs

Shape = tuple[int, ...]

INDEX_TYPES = (DType.INT64, DType.INT32)
_NOT_NUMBERS = (DType.BOOL, DType.COMPLEX64, DType.COMPLEX128)


def show(spec: Spec) -> str:
    """Text of a spec for messages: "float32[2, 3]"."""
    return f"{spec.dtype}{list(spec.shape)}"


def show_all(specs: Specs) -> str:
    """Text of several specs for messages."""
    return ", ".join(show(spec) for spec in specs)


def need(condition: bool, reason: str) -> None:
    """Raise ShapeError with `reason` unless `condition` holds."""
    if not condition:
        raise ShapeError(reason)


def need_count(specs: Specs, least: int, most: int | None = None) -> None:
    """Raise ShapeError unless there are `least` (to `most`) inputs."""
    most = least if most is None else most
    if not least <= len(specs) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise ShapeError(f"takes {wanted} inputs, got {len(specs)}: {show_all(specs)}")


def need_float(spec: Spec, what: str = "the input") -> None:
    """Raise ShapeError unless gradients can flow through `spec`."""
    if not spec.dtype.is_float:
        raise ShapeError(f"{what} must be float64, float32, float16 or bfloat16, it is {show(spec)}")


def need_number(spec: Spec, what: str = "the input") -> None:
    """Raise ShapeError where `spec` is bool or complex."""
    if spec.dtype in _NOT_NUMBERS:
        raise ShapeError(f"{what} must be of a real number type, it is {show(spec)}")


def need_bool(spec: Spec, what: str = "the input") -> None:
    """Raise ShapeError unless `spec` is bool."""
    if spec.dtype is not DType.BOOL:
        raise ShapeError(f"{what} must be bool, it is {show(spec)}")


def need_index(spec: Spec, what: str = "indices") -> None:
    """Raise ShapeError unless `spec` is int64 or int32."""
    if spec.dtype not in INDEX_TYPES:
        raise ShapeError(f"{what} must be int64 or int32, they are {show(spec)}")


def need_same_dtype(specs: Specs) -> DType:
    """The one element type of all `specs`; raises ShapeError where they differ."""
    first = specs[0].dtype
    if any(spec.dtype is not first for spec in specs):
        raise ShapeError(f"inputs must have one element type, they are {show_all(specs)}")
    return first


def need_same(a: Spec, b: Spec, what: str) -> None:
    """Raise ShapeError unless both specs are equal; `what` names the two."""
    if a != b:
        raise ShapeError(f"{what} must have the same type and shape, they are {show(a)} and {show(b)}")


def need_shape(spec: Spec, shape: Sequence[int], what: str) -> None:
    """Raise ShapeError unless `spec` has `shape`."""
    if spec.shape != tuple(shape):
        raise ShapeError(f"{what} must be of shape {list(shape)}, it is {show(spec)}")


def need_rank(spec: Spec, least: int, most: int | None = None, what: str = "the input") -> None:
    """Raise ShapeError unless the rank of `spec` is `least` (to `most`, or more where None)."""
    if spec.rank < least or (most is not None and spec.rank > most):
        wanted = f"{least} or more" if most is None else str(least) if least == most else f"{least} to {most}"
        raise ShapeError(f"{what} must be of rank {wanted}, it is {show(spec)}")


def broadcast(*shapes: Shape) -> Shape:
    """The shape that all `shapes` broadcast to (NumPy's rule); raises ShapeError where they do not."""
    if len(shapes) == 2 and shapes[0] == shapes[1]:
        return shapes[0]
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = tuple(_broadcast_size(sizes) for sizes in zip(*padded, strict=True))
    if -1 in result:
        raise ShapeError(f"shapes {' and '.join(str(list(shape)) for shape in shapes)} do not broadcast")
    return result


def _broadcast_size(sizes: tuple[int, ...]) -> int:
    others = {size for size in sizes if size != 1}
    if len(others) > 1:
        return -1
    return others.pop() if others else 1


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """Whether `shape` broadcasts to exactly `target`."""
    if len(shape) > len(target):
        return False
    tail = target[len(target) - len(shape) :]
    return all(size in (1, wanted) for size, wanted in zip(shape, tail, strict=True))


def get_axis(attrs: Attrs, rank: int, key: str = "axis", *, extra: int = 0) -> int:
    """The axis attribute `key`, checked to be in [0, rank + extra)."""
    axis = get_int(attrs, key)
    if not 0 <= axis < rank + extra:
        raise ShapeError(f"{key} {axis} is out of range for rank {rank}")
    return axis


def get_axes(attrs: Attrs, rank: int) -> Shape:
    """The attribute `axes`: ascending, distinct, in [0, rank)."""
    axes = get_ints(attrs, "axes")
    if list(axes) != sorted(set(axes)) or any(not 0 <= axis < rank for axis in axes):
        raise ShapeError(f"axes {list(axes)} must be ascending, distinct and in range for rank {rank}")
    return axes


def reduced(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """`shape` after a reduction over `axes`."""
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def without(shape: Shape, axis: int) -> Shape:
    """`shape` with `axis` taken out."""
    return shape[:axis] + shape[axis + 1 :]


def reduction_shape(spec: Spec, attrs: Attrs) -> Shape:
    """The result's shape of a reduction with attributes `axes` and `keepdims`."""
    return reduced(spec.shape, get_axes(attrs, spec.rank), get_bool(attrs, "keepdims"))


def statistics_dtype(dtype: DType) -> DType:
    """Element type of statistics of values of `dtype`: at least float32."""
    return DType.FLOAT32 if dtype.bits < 32 else dtype


def same_as(index: int, count: int, most: int | None = None) -> Infer:
    """A shape rule of kinds with `count` inputs whose one output looks as input `index`."""

    def infer(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
        need_count(specs, count, most)
        return (specs[index],)

    return infer


def attribute_shape(specs: Specs, attrs: Attrs, dtype: DType) -> tuple[Spec, ...]:
    """One output of `dtype` with the shape that attribute `shape` gives."""
    return (Spec(dtype, get_shape(attrs)),)
