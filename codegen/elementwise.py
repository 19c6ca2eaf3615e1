"""Builders of elementwise ops: functions of one and two inputs, their gradients, choices, casts and copies."""

from __future__ import annotations

from collections.abc import Sequence

from snplan.codegen.call import Access, Call, builds, reads, writes
from snplan.codegen.expressions import FORWARD, GRADIENT, Expression
from snplan.codegen.expressions_binary import ARITHMETIC, CHOICES, GRADIENTS
from snplan.codegen.expressions_norm import NORMS
from snplan.codegen.launch import Launch
from snplan.codegen.move import copy, moved
from snplan.codegen.operand import broadcast, operand
from snplan.codegen.pointwise import Body, pointwise
from snplan.codegen.scalars import compute_type
from snplan.ir import DType, Spec

EXPRESSIONS: dict[str, Expression] = {**FORWARD, **GRADIENT, **ARITHMETIC, **GRADIENTS, **NORMS}


def names_of(call: Call) -> list[str]:
    """What a body calls the inputs."""
    return [f"a{k}" for k in range(len(call.inputs))]


def spread(call: Call, *, raw: bool = False) -> list[Access]:
    """All inputs, broadcast to the output's shape."""
    shape = call.outputs[0].shape
    return [reads(call, k, broadcast(x, shape), raw=raw) for k, x in enumerate(call.inputs)]


@builds(*EXPRESSIONS)
def elementwise(call: Call) -> Sequence[Launch]:
    """One kernel: the expression of the kind over broadcast inputs."""
    kind = compute_type(x.dtype for x in call.inputs)
    body = Body(compute=kind, results=(EXPRESSIONS[call.kind](call.attrs, names_of(call)),))
    return pointwise(call.kind, spread(call), [writes(call)], body)


@builds(*CHOICES)
def choose(call: Call) -> Sequence[Launch]:
    """`where` and `mask`: elements move as they are."""
    condition, *values = spread(call, raw=True)
    flag = Access(argument=condition.argument, operand=condition.operand, type="bool")
    body = Body(compute="int", results=(CHOICES[call.kind](call.attrs, names_of(call)),), raw=True)
    return pointwise(call.kind, [flag, *values], [writes(call, raw=True)], body)


@builds("view")
def view(call: Call) -> Sequence[Launch]:
    """A copy under another shape (plans have no views left; this is for whoever runs one as an op)."""
    y = call.outputs[0]
    source = operand(Spec(call.inputs[0].dtype, call.inputs[0].shape), view=y.shape)
    return moved("view", reads(call, 0, source, raw=True), writes(call, raw=True))


@builds("cast")
def cast(call: Call) -> Sequence[Launch]:
    """ONNX Cast: floats to integers truncate, to bool is "not zero"."""
    x, y = call.inputs[0], call.outputs[0]
    if x.dtype is y.dtype:
        return copy(call)
    kind = "i64" if x.dtype is DType.BOOL else compute_type([x.dtype])
    return pointwise("cast", [reads(call, 0)], [writes(call)], Body(compute=kind, results=("a0",)))
