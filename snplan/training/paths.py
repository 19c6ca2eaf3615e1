"""Which tensors lie on a path of gradients: from an initializer, through differentiable inputs, to the loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from snplan.errors import ModelError
from snplan.ir import Forward, Graph, Op, Phase, Tensor
from snplan.ops import KINDS


def gradient_inputs(op: Op, tensors: Mapping[str, Tensor]) -> list[int]:
    """Indices of the inputs of `op` that gradients could flow to, if one reaches it."""
    if op.phase is not Phase.FORWARD:
        return []
    differentiable = KINDS[op.kind].differentiable
    indices = range(len(op.inputs)) if differentiable is None else differentiable
    return [i for i in indices if i < len(op.inputs) and tensors[op.inputs[i]].dtype.is_float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Paths of gradients to `loss` in `graph`.

    `onward` maps every tensor that the loss depends on, through differentiable inputs, to the op (by index) that reads
    it on the way; the loss itself is there with -1.
    """

    graph: Graph
    loss: str
    onward: Mapping[str, int]

    def reached(self, starts: Iterable[str]) -> set[str]:
        """The tensors that depend on `starts` and that the loss depends on: those that need a gradient."""
        reached = {name for name in starts if name in self.onward}
        for op in self.graph.ops:
            if any(op.inputs[i] in reached for i in gradient_inputs(op, self.graph.tensors)):
                reached.update(name for name in op.outputs if name in self.onward)
        return reached

    def to_loss(self, op: Op) -> list[Op]:
        """The ops on a path from `op`, which comes first, to the loss."""
        path = [op]
        while True:
            reader = max((self.onward.get(name, -1) for name in path[-1].outputs), default=-1)
            if reader < 0 or self.loss in path[-1].outputs:
                return path
            path.append(self.graph.ops[reader])


def paths_to(graph: Graph, loss: str) -> Paths:
    """The paths of gradients to `loss`."""
    onward = {loss: -1}
    for index in range(len(graph.ops) - 1, -1, -1):
        op = graph.ops[index]
        if any(name in onward for name in op.outputs if graph.tensors[name].dtype.is_float):
            for i in gradient_inputs(op, graph.tensors):
                onward.setdefault(op.inputs[i], index)
    return Paths(graph=graph, loss=loss, onward=onward)


def check_rules(paths: Paths, needed: set[str]) -> None:
    """Raise ModelError (SNP-D001) that lists every op without a gradient between a parameter and the loss.

    `needed` are the tensors that need a gradient.
    """
    found = [(op, reason) for op in paths.graph.ops if (reason := _why_not(op, paths, needed))]
    if not found:
        return
    listed = [{"kind": op.kind, "op": op.name, "nodes": [*op.nodes], "reason": reason} for op, reason in found]
    count = "1 op" if len(found) == 1 else f"{len(found)} ops"
    lines = [f"{count} between a parameter and the loss cannot be differentiated:"]
    lines += [_line(op, reason, paths) for op, reason in found[:_LISTED]]
    lines += [f"  and {len(found) - _LISTED} more (all of them with --json)"] * (len(found) > _LISTED)
    lines += ["  freeze the parameters before them (--freeze GLOB), choose another loss (--loss), or plan --mode infer"]
    raise ModelError("SNP-D001", "\n".join(lines), details={"ops": listed})


_LISTED = 20
_SHOWN = 4


def _why_not(op: Op, paths: Paths, needed: set[str]) -> str | None:
    """Why no gradient passes `op`, or None where one can, or none has to."""
    outputs = [name in needed for name in op.outputs]
    inputs = gradient_inputs(op, paths.graph.tensors)
    if not any(outputs) or not any(op.inputs[i] in needed for i in inputs):
        return None
    kind = KINDS[op.kind]
    if kind.gradient is None:
        return f"{op.kind} has no gradient"
    return kind.refuses(op.attrs, outputs) if kind.refuses else None


def _line(op: Op, reason: str, paths: Paths) -> str:
    path = [step.name for step in paths.to_loss(op)]
    if len(path) > _SHOWN + 1:
        path = [*path[:_SHOWN], f"({len(path) - _SHOWN} more)"]
    nodes = f", node {', '.join(op.nodes)}" if op.nodes else ""
    return f"  {op.kind} {op.name}{nodes}: {reason}; path to the loss: {' -> '.join([*path, paths.loss])}"


def without_dead_ops(forward: Forward) -> Forward:
    """`forward` without the ops and sources that neither its outputs nor the running statistics depend on."""
    graph = forward.graph
    live = {*graph.outputs, *forward.state_updates, *forward.state_updates.values()}
    ops: list[Op] = []
    for op in reversed(graph.ops):
        if any(name in live for name in op.outputs):
            ops.append(op)
            live.update(op.inputs)
    ops.reverse()
    kept = {*(name for name in graph.sources if name in live), *(name for op in ops for name in op.outputs)}
    return Forward(
        graph=Graph(
            tensors={name: tensor for name, tensor in graph.tensors.items() if name in kept},
            ops=tuple(ops),
            sources=tuple(name for name in graph.sources if name in live),
            outputs=graph.outputs,
        ),
        inputs=tuple(name for name in forward.inputs if name in live),
        initializers=tuple(name for name in forward.initializers if name in live),
        state_updates=forward.state_updates,
        loss=forward.loss,
        warnings=forward.warnings,
    )
