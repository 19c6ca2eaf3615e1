"""What a name in an ONNX graph stands for while it is lowered: a tensor or constant, a sequence, or nothing usable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from snplan.errors import ModelError
from snplan.frontend.tensors import Array
from snplan.ir import DType, Spec

_DTYPES = {dtype.value: dtype for dtype in DType}


@dataclass(slots=True, eq=False, kw_only=True)
class Value:
    """A tensor of the lowered graph (`handle`), one that becomes a source when first read (`source`), or a constant.

    `content` are the values where they are known at compile time. Where they derive from a floating-point initializer
    (`trained`) they serve shapes and attributes only: as an operand the tensor is read, since training changes it.
    `origin` tells values that are written down in the model (INITIALIZER, CONSTANT) from computed ones.
    """

    spec: Spec
    handle: int | None = None
    source: Source | None = None
    content: Array | Callable[[], Array | None] | None = None
    trained: bool = False
    name: str = ""
    origin: str = ""

    def array(self) -> Array | None:
        """The values, where they are known at compile time."""
        if callable(self.content):
            self.content = self.content()
        return self.content

    @property
    def fixed(self) -> bool:
        """Whether the values are known and training cannot change them."""
        return not self.trained and self.array() is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A tensor that exists when the step starts: a graph input, an initializer, or the tensor of a Constant node."""

    name: str
    kind: str


INPUT, INITIALIZER, CONSTANT = "input", "initializer", "constant"
"""Kinds of sources, and origins of values."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sequence:
    """A sequence of known length."""

    items: tuple[Value | Poison, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Poison:
    """Nothing usable: the result of a node that cannot be lowered, or of one that reads such a result (`parents`).

    An `error` is what is wrong with the model at that node; without one the node is merely not supported.
    """

    node: str
    op: str
    reason: str = ""
    error: ModelError | None = None
    parents: tuple[Poison, ...] = ()


Item: TypeAlias = Value | Sequence | Poison


class Unsupported(Exception):
    """A node is beyond what can be lowered; the text says why, in a few words."""


LONGEST_LABEL = 1000
"""Characters of a node's or tensor's label inside functions and subgraphs."""


@dataclass(slots=True, eq=False, kw_only=True)
class Scope:
    """Names of one graph (or function body) and of those around it.

    `opsets` are the imported versions by domain ("" is ai.onnx); `prefix` leads the names of nodes inside;
    `attributes` are the bound attributes of a function call, `calls` the functions that are being expanded.
    """

    opsets: Mapping[str, int]
    parent: Scope | None = None
    prefix: str = ""
    attributes: Mapping[str, object] | None = None
    calls: tuple[tuple[str, str, str], ...] = ()
    depth: int = 0
    items: dict[str, Item] = field(default_factory=dict)

    def label(self, name: str) -> str:
        """`name` with where it is; inside functions and subgraphs without its middle where that is very long.

        Each call of a function makes labels of its own: a name of a megabyte would be made again in each of them.
        """
        if not self.prefix:
            return name
        whole = self.prefix + name
        half = LONGEST_LABEL // 2
        return whole if len(whole) <= LONGEST_LABEL else f"{whole[:half]}...{whole[-half:]}"

    def find(self, name: str) -> Item | None:
        """What `name` stands for here, or None."""
        scope: Scope | None = self
        while scope is not None:
            item = scope.items.get(name)
            if item is not None:
                return item
            scope = scope.parent
        return None


def constant(array: Array, name: str = "") -> Value:
    """A value known at compile time; raises Unsupported for element types without a place in a graph."""
    dtype = _DTYPES.get(array.dtype.name)
    if dtype is None:
        raise Unsupported(f"its values are of type {array.dtype.name}")
    return Value(spec=Spec(dtype, array.shape), content=array, name=name)


def filled(spec: Spec, fill: Array) -> Array:
    """`fill` (one element) broadcast to `spec` without taking memory for it."""
    return np.broadcast_to(fill.reshape(()), spec.shape)
