"""Function bodies that the ONNX standard gives for its operators: the way to lower operators without a lowering."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from onnx import FunctionProto, TensorProto, TypeProto, defs

from snplan.frontend.node import NodeView
from snplan.frontend.tensors import DTYPES
from snplan.frontend.values import Value

_ELEMENT_TYPES = {dtype: number for number, dtype in DTYPES.items()}


def standard_function(view: NodeView) -> FunctionProto | None:
    """The body of the node's operator at its opset, or None where the standard defines none."""
    schema = _schema(view.op, view.version, view.domain)
    if schema is None:
        return None
    if schema.has_function:
        return _plain(view.op, view.version, view.domain)
    return _for_node(schema, view) if schema.has_context_dependent_function else None


@lru_cache(maxsize=256)
def _schema(op: str, version: int, domain: str) -> Any:
    """The operator's schema (its stub lacks the attributes about functions), or None."""
    try:
        return defs.get_schema(op, max_inclusive_version=min(version, _newest(domain)), domain=domain)
    except (defs.SchemaError, RuntimeError):
        return None


def _newest(domain: str) -> int:
    return defs.onnx_opset_version() if not domain else 1000


@lru_cache(maxsize=256)
def _plain(op: str, version: int, domain: str) -> FunctionProto | None:
    schema = _schema(op, version, domain)
    if schema is None:
        return None
    versions = [since for since in schema.function_opset_versions if since <= version]
    if not versions:
        return None
    return _parsed(schema.get_function_with_opset_version(max(versions)))


def _for_node(schema: Any, view: NodeView) -> FunctionProto | None:
    versions = [since for since in schema.context_dependent_function_opset_versions if since <= view.version]
    if not versions:
        return None
    types = [_type(item).SerializeToString() for item in view.items]
    try:
        body = schema.get_context_dependent_function_with_opset_version(
            max(versions), view.proto.SerializeToString(), types
        )
    except (RuntimeError, ValueError, TypeError):
        return None
    return _parsed(body)


def _parsed(body: bytes | None) -> FunctionProto | None:
    if not body:
        return None
    function = FunctionProto()
    function.ParseFromString(body)
    return function


def _type(item: object) -> TypeProto:
    found = TypeProto()
    if isinstance(item, Value):
        found.tensor_type.elem_type = _ELEMENT_TYPES[item.spec.dtype]
        for size in item.spec.shape:
            found.tensor_type.shape.dim.add(dim_value=size)
    else:
        found.tensor_type.elem_type = TensorProto.UNDEFINED
    return found
