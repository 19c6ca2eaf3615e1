"""A tiny interpreter of graphs with the NumPy kernels, and a writer of forward graphs with values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from snplan.ir import Attrs, DType, Forward, Graph, Op, Phase, Role, Spec, Step, Tensor, problems
from snplan.ops import infer
from snplan.runtime.numpy import KERNELS, Array, Context
from snplan.training import build_step, make_optimizer

NONE = make_optimizer("none")


def spec_of(x: Array) -> Spec:
    """The spec of an array."""
    return Spec(DType(x.dtype.name), x.shape)


@dataclass
class Model:
    """A forward graph under construction, with a value for every source."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    values: dict[str, Array] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    initializers: list[str] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)

    def source(self, name: str, value: Any, *, fed: bool = False) -> str:
        """A source: an initializer, or with `fed` an input."""
        array = np.asarray(value)
        role = Role.INPUT if fed else Role.CONSTANT
        self.tensors[name] = Tensor(name=name, spec=spec_of(array), role=role)
        self.values[name] = array
        (self.inputs if fed else self.initializers).append(name)
        return name

    def op(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str] | None = None,
        *,
        name: str | None = None,
        phase: Phase = Phase.FORWARD,
        rng: int | None = None,
        **attrs: Any,
    ) -> tuple[str, ...]:
        """The outputs of a new op; they are named after it unless `outputs` says otherwise."""
        name = name or f"{kind}_{len(self.ops)}"
        specs = infer(kind, [self.tensors[i].spec for i in inputs], attrs)
        outputs = outputs or tuple(f"{name}.{i}" for i in range(len(specs)))
        for output, spec in zip(outputs, specs, strict=True):
            self.tensors[output] = Tensor(name=output, spec=spec)
        self.ops.append(
            Op(
                name=name,
                kind=kind,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                phase=phase,
                attrs=attrs,
                nodes=(f"/{name}",),
                rng=rng,
            )
        )
        return tuple(outputs)

    def then(self, kind: str, *inputs: str, **attrs: Any) -> str:
        """The first output of a new op."""
        return self.op(kind, inputs, **attrs)[0]

    def matmul(self, a: str, b: str) -> str:
        """a @ b."""
        return self.then("matmul", a, b, trans_a=False, trans_b=False, alpha=1.0)

    def sum(self, x: str) -> str:
        """The sum of all elements."""
        axes = [*range(len(self.tensors[x].shape))]
        return self.then("reduce_sum", x, axes=axes, keepdims=False)

    def forward(self, *outputs: str, loss: str | None = None) -> Forward:
        """The forward graph; the first output is its loss unless `loss` names another or there is none."""
        graph = Graph(
            tensors=dict(self.tensors),
            ops=tuple(self.ops),
            sources=(*self.inputs, *self.initializers),
            outputs=outputs,
        )
        return Forward(
            graph=graph,
            inputs=tuple(self.inputs),
            initializers=tuple(self.initializers),
            state_updates=dict(self.states),
            loss=loss,
        )

    def step(self, loss: str, **options: Any) -> Step:
        """The step that trains for `loss`, without an optimiser unless `optimizer` is given."""
        step = build_step(self.forward(loss, loss=loss), **{"optimizer": NONE, **options})
        assert problems(step.graph) == []
        return step

    def gradients(self, loss: str, **options: Any) -> dict[str, Array]:
        """The gradients that the step computes, in the parameters' shapes."""
        return gradients_of(self.step(loss, **options), self.values)


def gradients_of(step: Step, values: Mapping[str, Array]) -> dict[str, Array]:
    """The gradients that `step` computes, in the parameters' shapes."""
    found = evaluate(step.graph, values)
    return {name: found[gradient].reshape(values[name].shape) for name, gradient in step.gradients.items()}


def evaluate(graph: Graph, values: Mapping[str, Array], *, step: int = 1) -> dict[str, Array]:
    """Every tensor's value; each is checked to be what the graph says it is."""
    found = {name: values[name] for name in graph.sources if name in values}
    for op in graph.ops:
        outputs = KERNELS[op.kind](read(op, found), op.attrs, Context(stream=op.rng or 0, step=step))
        for name, value in zip(op.outputs, outputs, strict=True):
            assert spec_of(value) == graph.tensors[name].spec, (op, spec_of(value), graph.tensors[name].spec)
            found[name] = value
    return found


def read(op: Op, found: Mapping[str, Array]) -> list[Array]:
    """The inputs of `op`, under the shapes that it reads them."""
    arrays = [found[name] for name in op.inputs]
    shapes: Attrs | Any = op.attrs.get("in_shapes") or [None] * len(arrays)
    return [x if shape is None else x.reshape(tuple(shape)) for x, shape in zip(arrays, shapes, strict=True)]


def differences(graph: Graph, loss: str, values: Mapping[str, Array], name: str, width: float = 1e-6) -> Array:
    """The gradient of `loss` with respect to source `name`, by central differences in float64."""
    base = values[name]
    result = np.zeros(base.size, np.float64)
    for i in range(base.size):
        ends = []
        for sign in (1, -1):
            moved = base.copy().reshape(-1)
            moved[i] += sign * width
            ends.append(float(evaluate(graph, {**values, name: moved.reshape(base.shape)})[loss].reshape(())))
        result[i] = (ends[0] - ends[1]) / (2 * width)
    return result.reshape(base.shape)
