"""Operators that make values: Constant, ConstantOfShape, Range, EyeLike."""

from __future__ import annotations

import math

import numpy as np

from snplan.frontend.context import LowerContext
from snplan.frontend.folding_data import fill_of
from snplan.frontend.initializers import MOST_TRAINED_ELEMENTS
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.tensors import DTYPES, MOST_ELEMENTS, Array, checked_spec, numpy_dtype, tensor_array, tensor_spec
from snplan.frontend.values import CONSTANT, INITIALIZER, Source, Unsupported, Value, constant, filled
from snplan.ir import DType, Spec


@lowers("Constant")
def lower_constant(ctx: LowerContext, node: NodeView) -> None:
    """A known value; a large tensor is a source of its own name."""
    tensor = node.attr_tensor("value")
    if tensor is None:
        found = constant(_listed(node))
        found.origin = CONSTANT
        ctx.bind(0, found)
        return
    spec = tensor_spec(tensor, f"the tensor of node {node.label!r}")
    if spec is None:
        raise Unsupported("it holds strings")
    if spec.elements <= MOST_ELEMENTS and not tensor.external_data:
        ctx.bind(0, Value(spec=spec, content=tensor_array(tensor, spec), origin=CONSTANT))
    else:
        ctx.bind(0, Value(spec=spec, source=Source(name=node.proto.output[0], kind=CONSTANT), origin=CONSTANT))


def _listed(node: NodeView) -> Array:
    if node.has("value_float"):
        return np.array(node.attr_float("value_float"), np.float32)
    if node.has("value_int"):
        return np.array(node.attr_int("value_int"), np.int64)
    floats, ints = node.attr_floats("value_floats"), node.attr_ints("value_ints")
    if floats is not None:
        return np.array(floats, np.float32)
    if ints is not None:
        return np.array(ints, np.int64)
    raise Unsupported("it holds strings or a sparse tensor")


@lowers("ConstantOfShape")
def lower_constant_of_shape(ctx: LowerContext, node: NodeView) -> None:
    """A filled tensor. Of a shape that an initializer says, it stands for stripped weights: a source by its name."""
    sizes = node.array_ints(0, "its shape")
    fill = fill_of(node)
    spec = checked_spec(constant(fill).spec.dtype, sizes, f"the result of node {node.label!r}")
    values = filled(spec, fill)
    origin = node.value(0).origin
    if origin == INITIALIZER and spec.dtype.is_float:
        source = Source(name=node.proto.output[0], kind=INITIALIZER)
        content = values if spec.elements <= MOST_TRAINED_ELEMENTS else None
        ctx.bind(0, Value(spec=spec, source=source, content=content, trained=True, origin=INITIALIZER))
    elif origin and spec.elements > MOST_ELEMENTS:
        kind = INITIALIZER if origin == INITIALIZER else CONSTANT
        ctx.bind(0, Value(spec=spec, source=Source(name=node.proto.output[0], kind=kind), origin=origin))
    else:
        small = spec.elements <= MOST_ELEMENTS
        ctx.bind(0, Value(spec=spec, content=values, origin=origin) if small else _fill_op(ctx, spec, values))


def _fill_op(ctx: LowerContext, spec: Spec, values: Array) -> Value:
    """A `constant` op of one repeated value, however large."""
    value = Value(spec=spec, content=values)
    return Value(spec=spec, handle=ctx.tensor(value))


@lowers("Range")
def lower_range(ctx: LowerContext, node: NodeView) -> None:
    """`range` where it is too large for a constant."""
    start, limit, step = (node.array_scalar(index, what) for index, what in enumerate(("start", "limit", "delta")))
    node.need(step != 0, "delta is 0")
    size = max(math.ceil((limit - start) / step), 0)
    dtype: DType = node.value(0).spec.dtype
    checked_spec(dtype, (size,), f"the result of node {node.label!r}")
    attrs = {"dtype": str(dtype), "start": start, "step": step, "size": size}
    ctx.bind(0, ctx.one("range", [], {**attrs}))


@lowers("EyeLike")
def lower_eye_like(ctx: LowerContext, node: NodeView) -> None:
    """The constant with ones on a diagonal."""
    spec = node.value(0).spec
    node.need(spec.rank == 2, "it takes a matrix")
    dtype = DTYPES.get(node.attr_int("dtype")) if node.has("dtype") else spec.dtype  # type: ignore[call-overload]
    if spec.elements > MOST_ELEMENTS or dtype is None:
        raise Unsupported(f"its result has {spec.elements:,} elements, at most {MOST_ELEMENTS:,} are supported")
    rows, columns = spec.shape
    eye = np.eye(rows, columns, k=node.attr_int("k", 0)).astype(numpy_dtype(dtype))
    ctx.bind(0, Value(spec=Spec(dtype, spec.shape), content=eye))
