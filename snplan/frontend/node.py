"""One ONNX node as a lowering sees it: typed attributes, inputs as values, outputs to bind."""

from __future__ import annotations

from typing import NoReturn, TypeVar

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from snplan.errors import ModelError
from snplan.frontend import codes
from snplan.frontend.tensors import Array
from snplan.frontend.values import Item, Scope, Sequence, Unsupported, Value
from snplan.ir import Spec

_T = TypeVar("_T")

_KINDS = {
    AttributeProto.FLOAT: "a float",
    AttributeProto.INT: "an int",
    AttributeProto.STRING: "a string",
    AttributeProto.TENSOR: "a tensor",
    AttributeProto.GRAPH: "a graph",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
}


class NodeView:
    """A node in its scope. `version` is the opset of its domain; `items` what its inputs stand for (None: left out)."""

    __slots__ = ("attributes", "domain", "items", "label", "op", "proto", "scope", "version")

    def __init__(self, proto: NodeProto, scope: Scope, label: str, items: list[Item | None], version: int) -> None:
        self.proto = proto
        self.scope = scope
        self.label = label
        self.op = proto.op_type
        self.domain = "" if proto.domain == "ai.onnx" else proto.domain
        self.items = items
        self.version = version
        self.attributes = _bound(proto, scope)

    @property
    def kind(self) -> str:
        """The operator's name, led by its domain where that is not ai.onnx."""
        return f"{self.domain}::{self.op}" if self.domain else self.op

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs; '' where one is left out."""
        return list(self.proto.output)

    def wants(self, index: int) -> bool:
        """Whether output `index` is named."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    # -- errors ---------------------------------------------------------------------------------------------------

    def error(self, text: str, code: str = codes.NODE) -> ModelError:
        """The error that this node is wrong as `text` says."""
        return ModelError(code, f"node {self.label!r} ({self.kind}): {text}")

    def need(self, condition: bool, text: str) -> None:
        """Raise ModelError unless `condition` holds."""
        if not condition:
            raise self.error(text)

    def wrong_form(self, text: str) -> NoReturn:
        """Raise the error that attributes or inputs are in the form of another opset."""
        raise self.error(f"{text} (opset {self.version})", codes.FORM)

    def input_form(self, attribute: str, since: int, index: int | None = None) -> bool:
        """Whether `attribute` is an input (from opset `since` on); raises ModelError (SNP-I015) for the other form."""
        as_input = self.version >= since
        if as_input and self.has(attribute):
            self.wrong_form(f"{attribute} must be an input from opset {since} on, it is an attribute")
        if not as_input and index is not None and self.given(index):
            self.wrong_form(f"{attribute} must be an attribute before opset {since}, it is an input")
        return as_input

    # -- inputs ---------------------------------------------------------------------------------------------------

    def given(self, index: int) -> bool:
        """Whether input `index` is there."""
        return index < len(self.items) and self.items[index] is not None

    def value(self, index: int) -> Value:
        """Input `index`, which must be there and be a tensor."""
        found = self.optional(index)
        if found is None:
            raise self.error(f"input {index} is missing")
        return found

    def optional(self, index: int) -> Value | None:
        """Input `index`, or None where it is left out."""
        item = self.items[index] if index < len(self.items) else None
        if item is None or isinstance(item, Value):
            return item
        raise self.error(f"input {index} is a sequence, a tensor is needed")

    def values(self) -> list[Value]:
        """All inputs, none of which may be left out."""
        return [self.value(index) for index in range(len(self.items))]

    def sequence(self, index: int) -> Sequence:
        """Input `index`, which must be a sequence."""
        item = self.items[index] if index < len(self.items) else None
        if not isinstance(item, Sequence):
            raise self.error(f"input {index} must be a sequence")
        return item

    def array(self, index: int, what: str) -> Array:
        """Values of input `index`; raises Unsupported where they are computed from data."""
        found = self.value(index).array()
        if found is None:
            raise Unsupported(f"{what} is computed from data")
        return found

    def array_ints(self, index: int, what: str) -> list[int]:
        """Values of input `index` as integers, flat."""
        return [int(number) for number in self.array(index, what).reshape(-1)]

    def array_scalar(self, index: int, what: str) -> float | int | bool:
        """The only value of input `index`."""
        found = self.array(index, what).reshape(-1)
        self.need(found.size == 1, f"{what} must be one value, it has {found.size}")
        number: float | int | bool = found[0].item() if hasattr(found[0], "item") else float(found[0])
        return number

    # -- attributes -----------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether the attribute is there."""
        return name in self.attributes

    def attr_int(self, name: str, default: int | None = None) -> int:
        """The int attribute."""
        found = self._attribute(name, AttributeProto.INT, default is None)
        return int(found.i) if found is not None else _given(default)

    def attr_float(self, name: str, default: float | None = None) -> float:
        """The float attribute (float32 in the file)."""
        found = self._attribute(name, AttributeProto.FLOAT, default is None)
        return shortest(found.f) if found is not None else _given(default)

    def attr_str(self, name: str, default: str | None = None) -> str:
        """The string attribute."""
        found = self._attribute(name, AttributeProto.STRING, default is None)
        return found.s.decode("utf-8", "replace") if found is not None else _given(default)

    def attr_ints(self, name: str) -> list[int] | None:
        """The attribute of ints, or None."""
        found = self._attribute(name, AttributeProto.INTS, False)
        return None if found is None else list(found.ints)

    def attr_floats(self, name: str) -> list[float] | None:
        """The attribute of floats, or None."""
        found = self._attribute(name, AttributeProto.FLOATS, False)
        return None if found is None else [shortest(number) for number in found.floats]

    def attr_strings(self, name: str) -> list[str] | None:
        """The attribute of strings, or None."""
        found = self._attribute(name, AttributeProto.STRINGS, False)
        return None if found is None else [text.decode("utf-8", "replace") for text in found.strings]

    def attr_tensor(self, name: str) -> TensorProto | None:
        """The tensor attribute, or None."""
        found = self._attribute(name, AttributeProto.TENSOR, False)
        return None if found is None else found.t

    def attr_graph(self, name: str) -> GraphProto:
        """The subgraph attribute."""
        found = self._attribute(name, AttributeProto.GRAPH, True)
        return _given(found).g

    def attr_axis(self, name: str, default: int, rank: int, *, extra: int = 0) -> int:
        """The attribute as an axis in [0, rank + extra); negative ones count from the end."""
        return self.checked_axis(self.attr_int(name, default), rank + extra)

    def checked_axis(self, axis: int, rank: int) -> int:
        """`axis` made non-negative; raises ModelError where it is out of range."""
        if not -rank <= axis < rank:
            raise self.error(f"axis {axis} is out of range for rank {rank}")
        return axis + rank if axis < 0 else axis

    def checked_axes(self, axes: list[int], rank: int) -> list[int]:
        """`axes` made non-negative, ascending; raises ModelError for one that is out of range or listed twice."""
        found = sorted(self.checked_axis(axis, rank) for axis in axes)
        self.need(len(set(found)) == len(found), f"axes {axes} name an axis twice")
        return found

    def _attribute(self, name: str, kind: AttributeProto.AttributeType, required: bool) -> AttributeProto | None:
        found = self.attributes.get(name)
        if found is None:
            if required:
                raise self.error(f"attribute {name} is missing")
            return None
        if found.type != kind and not (found.type == AttributeProto.UNDEFINED and found.HasField(_FIELDS[kind])):
            raise self.error(f"attribute {name} must be {_KINDS[kind]}")
        return found


_FIELDS = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
}


def shortest(number: float) -> float:
    """The shortest decimal that reads back as the same float32: 0.1, not 0.10000000149011612."""
    return float(str(np.float32(number)))


def _given(value: _T | None) -> _T:
    assert value is not None
    return value


def _bound(proto: NodeProto, scope: Scope) -> dict[str, AttributeProto]:
    """Attributes by name; references to the attributes of a function call are resolved, unset ones left out."""
    found: dict[str, AttributeProto] = {}
    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            found[attribute.name] = attribute
            continue
        given = (scope.attributes or {}).get(attribute.ref_attr_name)
        if isinstance(given, AttributeProto):
            found[attribute.name] = given
    return found


def spec_of(item: Item | None) -> Spec | None:
    """The spec of a value; None for anything else."""
    return item.spec if isinstance(item, Value) else None
