"""Initializers as values: floating-point ones are sources, small others are known at compile time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from onnx import GraphProto, TensorProto

from snplan.frontend.tensors import MOST_ELEMENTS, Array, has_data, tensor_spec
from snplan.frontend.values import INITIALIZER, Item, Poison, Scope, Source, Value
from snplan.ir import Spec

MOST_TRAINED_ELEMENTS = 64
"""Values of floating-point initializers up to this size may serve as shapes or attributes (scales, ratios, bounds)."""

Stored: TypeAlias = Callable[[TensorProto, Spec], Array | None]
"""Reads the values of a small tensor, from its data file where it has one; None where the data is missing."""


def declare(graph: GraphProto, scope: Scope, stored: Stored) -> None:
    """Put the initializers of `graph` into `scope`."""
    for tensor in graph.initializer:
        scope.items[tensor.name] = initializer(tensor, stored)
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        scope.items[name] = Poison(node=name, op="sparse initializer", reason="sparse tensors are not supported")


def initializer(tensor: TensorProto, stored: Stored) -> Item:
    """What an initializer stands for."""
    name = tensor.name
    spec = tensor_spec(tensor, f"initializer {name!r}")
    if spec is None:
        return Poison(node=name, op="initializer", reason="it holds strings")
    read = partial(stored, tensor, spec)
    source = Source(name=name, kind=INITIALIZER)
    if spec.dtype.is_float:
        content = read if spec.elements <= MOST_TRAINED_ELEMENTS else None
        return Value(spec=spec, source=source, content=content, trained=True, name=name, origin=INITIALIZER)
    small = spec.elements <= MOST_ELEMENTS and (has_data(tensor) or tensor.data_location == TensorProto.EXTERNAL)
    if small:
        return Value(spec=spec, content=read, name=name, origin=INITIALIZER)
    return Value(spec=spec, source=source, name=name, origin=INITIALIZER)
