"""Writes an ONNX graph node by node: fresh names, shapes of every tensor, seeded weights, light weights.

The shapes are tracked here so that a layer can be written from its input alone; onnx's own inference checks them in the
tests. Reshape targets copy the batch dimension, so that a model can be re-bound to another batch by its inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

OPSET = 20
IR_VERSION = 10
LIGHT_ELEMENTS = 64
"""A light model keeps weights of up to this many elements."""

Shape = tuple[int, ...]
Attribute = int | float | str | Sequence[int]


class GraphBuilder:
    """An ONNX graph under construction."""

    def __init__(self, name: str, *, batch: int, light: bool, seed: int) -> None:
        self.batch = batch
        self._light = light
        self._seed = seed
        self._scope: list[str] = []
        self._uses: dict[str, int] = {}
        self._shapes: dict[str, Shape] = {}
        self._constants: dict[tuple[str, Shape, bytes], str] = {}
        self._weights = 0
        # Written in place: onnx's make_graph and make_model would copy every weight twice.
        self._model = ModelProto(ir_version=IR_VERSION, producer_name="snplan")
        self._model.opset_import.add(domain="", version=OPSET)
        self._graph = self._model.graph
        self._graph.name = name

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names made inside start with `name` and a dot."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    def fresh(self, name: str) -> str:
        """The name within the current scope, with a number behind it when it is taken."""
        full = ".".join((*self._scope, name))
        uses = self._uses.get(full, 0)
        self._uses[full] = uses + 1
        return self.fresh(f"{name}_{uses}") if uses else full

    def shape(self, tensor: str) -> Shape:
        """The shape of a tensor written so far."""
        return self._shapes[tensor]

    def input(self, name: str, shape: Shape, dtype: int = TensorProto.FLOAT) -> str:
        """A new graph input."""
        name = self.fresh(name)
        self._graph.input.append(helper.make_tensor_value_info(name, dtype, shape))
        self._shapes[name] = shape
        return name

    def output(self, tensor: str) -> None:
        """Lists a float tensor as the next graph output."""
        self._graph.output.append(helper.make_tensor_value_info(tensor, TensorProto.FLOAT, self.shape(tensor)))

    def constant(self, value: Sequence[int] | float | bool, dtype: type[np.generic] = np.int64) -> str:
        """The output of a Constant node; equal constants share one.

        A node, not an initializer: a floating-point initializer would count as a trainable parameter.
        """
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._constants[key] = f"constant_{len(self._constants)}"
            self._shapes[name] = array.shape
            self._graph.node.append(
                helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(array))
            )
        return self._constants[key]

    def integers(self, name: str, value: Sequence[Sequence[int]]) -> str:
        """A new int64 initializer, stored in full in a light model too."""
        return self._initializer(self.fresh(name), np.asarray(value, np.int64))

    def weight(self, name: str, shape: Shape, *, std: float = 0.0, fill: float = 0.0) -> str:
        """A new float32 weight of exactly this name: uniform around 0 with this deviation, or all `fill` without one.

        Each weight has its own random stream, keyed by the seed and its index. In a light model a large weight is a
        constant of the value `std**2`: about one over its fan-in, so that a sum of products keeps its scale.
        """
        index, self._weights = self._weights, self._weights + 1
        self._shapes[name] = shape
        if self._light and math.prod(shape) > LIGHT_ELEMENTS:
            return self._stand_in(name, shape, std**2 if std else fill)
        if not std:
            return self._initializer(name, np.full(shape, fill, np.float32))
        values = np.random.default_rng((self._seed, index)).random(shape, np.float32)
        values -= np.float32(0.5)
        values *= np.float32(std * math.sqrt(12))
        return self._initializer(name, values)

    def node(
        self, kind: str, inputs: Sequence[str], shape: Shape, *, name: str | None = None, **attrs: Attribute | None
    ) -> str:
        """The only output of a new node. Attributes that are None are left out."""
        return self.emit(kind, inputs, {self.fresh(name or kind.lower()): shape}, **attrs)

    def emit(self, kind: str, inputs: Sequence[str], outputs: Mapping[str, Shape], **attrs: Attribute | None) -> str:
        """The first output of a new node, which is also the node's name; the names come from `fresh`."""
        self._shapes.update(outputs)
        first = next(iter(outputs))
        node = helper.make_node(kind, inputs, list(outputs), first)
        present = ((key, value) for key, value in sorted(attrs.items()) if value is not None)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in present)
        self._graph.node.append(node)
        return first

    def model(self) -> ModelProto:
        """The model as written so far, not a copy. Nodes are in the order written, which is topological."""
        return self._model

    def _initializer(self, name: str, values: np.ndarray) -> str:
        dtype = helper.np_dtype_to_tensor_dtype(values.dtype)
        little_endian = values.astype(values.dtype.newbyteorder("<"), copy=False)
        self._graph.initializer.add(name=name, dims=values.shape, data_type=dtype, raw_data=little_endian.tobytes())
        self._shapes[name] = values.shape
        return name

    def _stand_in(self, name: str, shape: Shape, value: float) -> str:
        extent = self._initializer(f"{name}__SHAPE", np.asarray(shape, np.int64))
        fill = numpy_helper.from_array(np.full(1, value, np.float32))
        self._graph.node.append(helper.make_node("ConstantOfShape", [extent], [name], f"{name}__FILL", value=fill))
        return name
