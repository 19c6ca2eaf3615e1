"""The reverse pass: gradient rules of the op table applied from the loss back to the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from snplan.ir import Attr, Op, Spec
from snplan.ops import KINDS
from snplan.training.draft import Draft
from snplan.training.paths import Paths, gradient_inputs


class ReversePass:
    """Gradients of the tensors `needed`, emitted into `draft`.

    Gradients of a tensor with several readers are summed as they come, the last reader's first: that order is fixed,
    and no more than one partial sum and one summand are live together.
    """

    def __init__(self, draft: Draft, paths: Paths, needed: set[str]) -> None:
        self.draft = draft
        self.paths = paths
        self.needed = needed
        self.gradients: dict[str, str] = {}

    def run(self, after: Callable[[int], None]) -> None:
        """Emit everything; `after(i)` is called when the gradients that come through forward op `i` are there."""
        self.seed()
        ops = self.paths.graph.ops
        for index in range(len(ops) - 1, -1, -1):
            self.differentiate(ops[index])
            after(index)

    def seed(self) -> None:
        """The gradient of the loss: one."""
        spec = self.draft.tensors[self.paths.loss].spec
        attrs: Mapping[str, Attr] = {"dtype": str(spec.dtype), "shape": [*spec.shape], "values": [1.0]}
        (self.gradients[self.paths.loss],) = self.draft.emit("constant", [], attrs, f"{self.paths.loss}:seed")

    def differentiate(self, op: Op) -> None:
        """Emit the backward of `op`, where a gradient reached it and has to go on."""
        if not any(name in self.gradients for name in op.outputs):
            return
        wanted = [i for i in gradient_inputs(op, self.draft.tensors) if op.inputs[i] in self.needed]
        rule = KINDS[op.kind].gradient
        if not wanted or rule is None:
            return
        found = rule(_OpBackward(self, op, frozenset(wanted)), op)
        for index in wanted:
            if index in found:
                self.contribute(op, op.inputs[index], found[index])

    def contribute(self, op: Op, name: str, gradient: str) -> None:
        """Add `gradient`, which comes through `op`, to the gradient of tensor `name`."""
        wanted, given = self.draft.tensors[name].spec, self.draft.tensors[gradient].spec
        if wanted != given:
            raise AssertionError(f"the gradient rule of {op.kind} gives {given} for {wanted}")
        if name in self.gradients:
            operands = [self.gradients[name], gradient]
            (gradient,) = self.draft.emit("add", operands, {}, f"{name}:grad_sum", nodes=op.nodes)
        self.gradients[name] = gradient


class _OpBackward:
    """What the gradient rule of one op works with (`snplan.ops.Backward`)."""

    def __init__(self, reverse: ReversePass, op: Op, wanted: frozenset[int]) -> None:
        self.reverse = reverse
        self.op = op
        self.wanted = wanted
        self.zeros: dict[int, str] = {}

    def spec(self, name: str) -> Spec:
        return self.reverse.draft.tensors[name].spec

    def wants(self, index: int) -> bool:
        return index in self.wanted

    def has_dy(self, index: int) -> bool:
        return self.op.outputs[index] in self.reverse.gradients

    def dy(self, index: int = 0) -> str:
        name = self.op.outputs[index]
        if name in self.reverse.gradients:
            return self.reverse.gradients[name]
        if index not in self.zeros:
            spec = self.spec(name)
            attrs: Mapping[str, Attr] = {"dtype": str(spec.dtype), "shape": [*spec.shape], "values": [0.0]}
            (self.zeros[index],) = self.emit("constant", [], attrs, label="zeros")
        return self.zeros[index]

    def emit(
        self, kind: str, inputs: Sequence[str], attrs: Mapping[str, Attr] | None = None, *, label: str = "dx"
    ) -> tuple[str, ...]:
        op = self.op
        return self.reverse.draft.emit(kind, inputs, attrs or {}, f"{op.name}:{label}", nodes=op.nodes, rng=op.rng)
