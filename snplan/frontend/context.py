"""What lowerings write to: ops under construction over numbered tensors, which get their names at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from onnx import GraphProto

from snplan.errors import ModelError
from snplan.frontend import codes
from snplan.frontend.node import NodeView
from snplan.frontend.tensors import MOST_BYTES, MOST_ELEMENTS, MOST_RANK, Array, numpy_dtype
from snplan.frontend.values import Item, Poison, Scope, Source, Unsupported, Value
from snplan.ir import Attr, Attrs, DType, Phase, Spec
from snplan.ops import ShapeError, infer

MOST_OPS = 2_000_000
"""Ops that one model may be lowered to, unrolled loops and expanded functions included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An op whose tensors have numbers instead of names. `stream` is shared by ops of one random stream."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: Attrs
    node: str
    phase: Phase = Phase.FORWARD
    stream: int | None = None


class Subgraphs(Protocol):
    """Lowers the subgraphs of control flow in place."""

    def subgraph(self, graph: GraphProto, scope: Scope, given: Sequence[Item], label: str) -> list[Item]:
        """What the outputs of `graph` stand for when its inputs stand for `given`."""

    def loop(self, label: str, trips: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Around a loop; what it gives is called with the number of trips after each one, and bounds their nodes."""


@dataclass(slots=True, eq=False, kw_only=True)
class LowerContext:
    """The graph under construction.

    `specs` and `hints` hold spec and wanted name of each tensor by number; `sources` says which tensors exist when the
    step starts; `ambiguous` are names that several stored tensors share. `train` is the mode; `switch_to_training` puts
    BatchNormalization and Dropout nodes into training form. `held` counts the elements of sequences that were changed.
    """

    train: bool = True
    switch_to_training: bool = False
    specs: list[Spec] = field(default_factory=list)
    hints: list[str | None] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    sources: dict[int, Source] = field(default_factory=dict)
    eval_nodes: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    ambiguous: frozenset[str] = frozenset()
    held: int = 0
    node: NodeView | None = None
    subgraphs: Subgraphs | None = None
    _producer: dict[int, Record] = field(default_factory=dict)
    _constants: dict[tuple[DType, tuple[int, ...], bytes], int] = field(default_factory=dict)
    _handles: dict[str, int] = field(default_factory=dict)
    _streams: int = 0
    _mark: int = 0

    # -- ops ------------------------------------------------------------------------------------------------------

    def emit(
        self,
        kind: str,
        inputs: Sequence[Value],
        attrs: dict[str, Attr] | None = None,
        *,
        phase: Phase = Phase.FORWARD,
        stream: int | None = None,
    ) -> tuple[Value, ...]:
        """The outputs of a new op; raises ModelError where the kind does not take these inputs."""
        attrs = attrs or {}
        specs = self._infer(kind, [value.spec for value in inputs], attrs)
        handles = tuple(self.tensor(value) for value in inputs)
        outputs = tuple(self._new(spec) for spec in specs)
        self._record(
            Record(
                kind=kind,
                inputs=handles,
                outputs=outputs,
                attrs=attrs,
                node=self.node.label if self.node else "",
                phase=phase,
                stream=stream,
            )
        )
        return tuple(Value(spec=spec, handle=handle) for spec, handle in zip(specs, outputs, strict=True))

    def one(self, kind: str, inputs: Sequence[Value], attrs: dict[str, Attr] | None = None) -> Value:
        """The first output of a new op."""
        return self.emit(kind, inputs, attrs)[0]

    def stream(self) -> int:
        """A new random stream, for the ops that draw the same numbers."""
        self._streams += 1
        return self._streams - 1

    def view(self, value: Value, shape: Sequence[int]) -> Value:
        """`value` under another shape: no bytes move. Known values are reshaped, views of views become one."""
        shape = tuple(shape)
        if value.spec.shape == shape:
            return value
        if value.handle is None and value.source is None and (array := value.array()) is not None:
            return Value(
                spec=self._infer("view", [value.spec], {"shape": list(shape)})[0], content=array.reshape(shape)
            )
        base = self.producer(value)
        if base is not None and base.kind == "view":
            value = self.existing(base.inputs[0])
            if value.spec.shape == shape:
                return value
        return self.one("view", [value], {"shape": list(shape)})

    def producer(self, value: Value) -> Record | None:
        """The op that writes `value`, or None for sources and constants."""
        return None if value.handle is None else self._producer.get(value.handle)

    def existing(self, handle: int) -> Value:
        """The tensor of that number as a value."""
        return Value(spec=self.specs[handle], handle=handle)

    def scalar(self, number: float | int | bool, dtype: DType) -> Value:
        """A rank-0 constant."""
        return Value(spec=Spec(dtype, ()), content=np.array(number, numpy_dtype(dtype)))

    # -- tensors --------------------------------------------------------------------------------------------------

    def tensor(self, value: Value) -> int:
        """The number of the tensor that holds `value`; constants and sources come into being when first read."""
        if value.handle is None:
            value.handle = self._constant(value) if value.source is None else self._source(value.source, value.spec)
        return value.handle

    def bind(self, index: int, item: Item) -> None:
        """Let output `index` of the current node stand for `item`; a left-out output is ignored."""
        node = self.node
        assert node is not None
        if not node.wants(index):
            return
        name = node.proto.output[index]
        node.scope.items[name] = item
        if isinstance(item, Value):
            self._name(item, node.scope.label(name))

    def bind_all(self, items: Sequence[Item]) -> None:
        """Let the outputs of the current node stand for `items`, in order."""
        for index, item in enumerate(items):
            self.bind(index, item)

    def poison(self, reason: str, *, error: ModelError | None = None, parents: Sequence[Poison] = ()) -> None:
        """Make every output of the current node that is not bound yet unusable."""
        node = self.node
        assert node is not None
        poison = Poison(node=node.label, op=node.kind, reason=reason, error=error, parents=tuple(parents))
        for name in node.proto.output:
            if name and name not in node.scope.items:
                node.scope.items[name] = poison

    @contextmanager
    def at(self, node: NodeView) -> Iterator[None]:
        """Makes `node` the current one: ops written inside belong to it."""
        before, mark = self.node, self._mark
        self.node, self._mark = node, len(self.specs)
        try:
            yield
        finally:
            self.node, self._mark = before, mark

    def note_eval(self, op: str) -> None:
        """Count a node that the graph has in its evaluation form."""
        self.eval_nodes[op] = self.eval_nodes.get(op, 0) + 1

    # -- details --------------------------------------------------------------------------------------------------

    def _infer(self, kind: str, specs: list[Spec], attrs: Attrs) -> tuple[Spec, ...]:
        try:
            found = infer(kind, specs, attrs)
        except ShapeError as error:
            raise self._error(str(error)) from None
        for spec in found:
            if spec.rank > MOST_RANK:
                text = f"a result has {spec.rank:,} dimensions; a tensor may have at most {MOST_RANK}"
                raise self._error(text, codes.SIZE)
            if spec.bytes > MOST_BYTES:
                raise self._error(
                    f"a result {spec.dtype}{list(spec.shape)} would take {spec.bytes:,} bytes; "
                    f"a tensor may take at most {MOST_BYTES:,}",
                    codes.SIZE,
                )
        return found

    def _error(self, text: str, code: str = codes.NODE) -> ModelError:
        return self.node.error(text, code) if self.node else ModelError(code, text)

    def _new(self, spec: Spec, hint: str | None = None) -> int:
        self.specs.append(spec)
        self.hints.append(hint)
        return len(self.specs) - 1

    def _record(self, record: Record) -> None:
        if len(self.records) >= MOST_OPS:
            raise ModelError(codes.TOO_MANY, f"the model lowers to more than {MOST_OPS:,} ops; it is too large to plan")
        self.records.append(record)
        for handle in record.outputs:
            self._producer[handle] = record

    def _name(self, value: Value, name: str) -> None:
        value.name = value.name or name
        if value.handle is not None and value.handle >= self._mark and self.hints[value.handle] is None:
            self.hints[value.handle] = name

    def _source(self, source: Source, spec: Spec) -> int:
        handle = self._handles.get(source.name)
        if handle is None:
            handle = self._handles[source.name] = self._new(spec, source.name)
            self.sources[handle] = source
        if source.name in self.ambiguous or self.sources[handle] != source or self.specs[handle] != spec:
            raise Unsupported(f"two stored tensors are called {source.name!r}")
        return handle

    def _constant(self, value: Value) -> int:
        array = value.array()
        assert array is not None, "a value is a tensor, a source or a constant"
        numbers = _listed(array)
        if len(numbers) > MOST_ELEMENTS:
            raise Unsupported(f"it reads a computed constant of {len(numbers):,} elements")
        key = (value.spec.dtype, value.spec.shape, repr(numbers).encode())
        handle = self._constants.get(key)
        if handle is None:
            handle = self._constants[key] = self._new(value.spec, value.name or None)
            attrs: Attrs = {"dtype": str(value.spec.dtype), "shape": list(value.spec.shape), "values": numbers}
            self._record(Record(kind="constant", inputs=(), outputs=(handle,), attrs=attrs, node=value.name))
        return handle


def _listed(array: Array) -> list[Attr]:
    """The elements as JSON values, one for all where they are equal; floats that are not finite as text ("-inf")."""
    if array.size > 1:
        first = array[(0,) * array.ndim]
        if not any(array.strides) or bool((array == first).all()):
            return [json_number(first)]
    return [json_number(number) for number in array.reshape(-1)]


def json_number(number: np.generic) -> Attr:
    """A NumPy number as a JSON value: floats by their shortest text, those that are not finite as text."""
    if number.dtype.kind == "b":
        return bool(number)
    if number.dtype.kind in "iu" or number.dtype.name.startswith(("int", "uint")):
        return int(number)
    if number.dtype.kind == "c":
        raise Unsupported("it reads a constant of complex numbers")
    if not np.isfinite(np.float64(number)):
        return str(float(number))
    return float(str(number)) if number.dtype == np.float32 else float(number)
