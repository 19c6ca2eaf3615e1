"""Executions of ops as the device sees them: operands with strides, addresses, engine and workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from snplan.codegen.operand import Operand
from snplan.plan.index import PlanIndex
from snplan.plan.model import Algorithm, PlanOp, Recompute, Run
from snplan.runtime.layout import Orders, op_operands


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCall:
    """One `run` or `recompute`: what it reads and writes, and where. Addresses of tensors without bytes are 0.

    `number` is the op's position in the plan. `engine` and the workspace are those of the `algorithm` action before
    it; without one, `engine` is None and there is no workspace.
    """

    op: PlanOp
    number: int
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    at_inputs: tuple[int, ...]
    at_outputs: tuple[int, ...]
    engine: int | None = None
    workspace: int = 0
    workspace_bytes: int = 0


def device_calls(index: PlanIndex, orders: Orders, arena: int) -> dict[int, DeviceCall]:
    """Every execution of an op by its action id; `arena` is the arena's address."""
    numbers = {op.name: number for number, op in enumerate(index.plan.ops)}
    operands = {name: op_operands(op, index, orders) for name, op in index.ops.items()}
    algorithms: dict[str, Algorithm] = {}
    calls = {}
    for action_id, action in enumerate(index.plan.actions):
        if isinstance(action, Algorithm):
            algorithms[action.op] = action
        elif isinstance(action, (Run, Recompute)):
            op = index.ops[action.op]
            inputs, outputs = operands[action.op]
            calls[action_id] = DeviceCall(
                op=op,
                number=numbers[action.op],
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                at_inputs=_addresses(op.inputs, dict(action.reads), index, arena),
                at_outputs=_addresses(op.outputs, dict(action.writes), index, arena),
                **_algorithm(algorithms.get(action.op), index, arena),
            )
    return calls


def planned_workspaces(calls: Mapping[int, DeviceCall]) -> dict[str, int]:
    """The smallest workspace that any execution of an op has: all of them must run the same engine."""
    smallest: dict[str, int] = {}
    for call in calls.values():
        smallest[call.op.name] = min(call.workspace_bytes, smallest.get(call.op.name, call.workspace_bytes))
    return smallest


def _addresses(names: Sequence[str], places: Mapping[str, int], index: PlanIndex, arena: int) -> tuple[int, ...]:
    return tuple(arena + index.buffers[places[name]].offset if name in places else 0 for name in names)


def _algorithm(action: Algorithm | None, index: PlanIndex, arena: int) -> dict[str, int]:
    if action is None:
        return {}
    if action.workspace is None:
        return {"engine": action.engine}
    extent = index.buffers[action.workspace]
    return {"engine": action.engine, "workspace": arena + extent.offset, "workspace_bytes": extent.bytes}


# A convolution's inputs, then its output, by what they are to the forward convolution.
_ROLES = {
    "conv": ("image", "filter", "bias", "result"),
    "conv_transpose": ("result", "filter", "image"),
    "conv_filter": ("image", "result", "filter"),
}


def role_addresses(call: DeviceCall) -> dict[str, int]:
    """Addresses of a convolution's image, filter, result and, where it has one, bias."""
    present = [role for role in _ROLES[call.op.kind] if role != "bias" or len(call.at_inputs) == 3]
    return dict(zip(present, (*call.at_inputs, *call.at_outputs), strict=True))
