"""Builders of reads at indices held in a tensor. An index out of range is reported and reads entry 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from snplan.codegen.call import Access, Call, builds, reads, writes
from snplan.codegen.launch import Argument, Control, Launch, OpNumber
from snplan.codegen.operand import Operand
from snplan.codegen.pointwise import Body, pointwise
from snplan.codegen.scalars import c_type

REPORT: tuple[tuple[str, Argument], ...] = (("Control* control", Control()), ("int op", OpNumber()))


def checked(name: str, value: str, size: int) -> tuple[str, ...]:
    """Statements that declare `name`, the index `value` of an axis of `size`: negative ones count from the end."""
    return (
        f"i64 {name} = (i64)({value});",
        f"{name} += {name} < 0 ? {size} : 0;",
        f"if ({name} < 0 || {name} >= {size}) {{ report(control, op); {name} = 0; }}",
    )


def _read(
    call: Call, x: Operand, indices: Operand, early: tuple[str, ...], shift: str, steps: Sequence[int]
) -> Sequence[Launch]:
    """A kernel that reads input 0, seen as `x`, moved by `shift` (multiples of `steps`) once `early` has run."""
    y = call.outputs[0]
    innermost = min((i for i in range(y.rank) if y.shape[i] != 1), key=lambda i: abs(y.strides[i]), default=0)
    still = not indices.strides or indices.strides[innermost] == 0
    number = Access(argument=reads(call, 1).argument, operand=indices, type=c_type(indices.dtype))
    body = Body(
        compute="int",
        results=("a0",),
        raw=True,
        early=early,
        shifts=((0, shift),),
        extra=REPORT,
        # Neighbours share one index, and what it moves by must keep alignment.
        limit=gcd(16, *steps) if still else 1,
    )
    return pointwise(call.kind, [reads(call, 0, x, raw=True), number], [writes(call, raw=True)], body)


def _spread(x: Operand, lead: int, rank: int) -> Operand:
    """`x` with `lead` axes of stride 0 before it and as many after it as make `rank`; only strides count."""
    after = rank - lead - x.rank
    return replace(x, shape=(1,) * rank, strides=(*(0,) * lead, *x.strides, *(0,) * after))


@builds("gather")
def gather(call: Call) -> Sequence[Launch]:
    """Entries of x at `indices` along an axis."""
    x, indices, axis = *call.inputs, call.attrs["axis"]
    shape = call.outputs[0].shape
    moving = replace(x, shape=shape, strides=(*x.strides[:axis], *(0,) * indices.rank, *x.strides[axis + 1 :]))
    seen = replace(_spread(indices, axis, len(shape)), shape=shape)
    step = x.strides[axis]
    return _read(call, moving, seen, checked("index", "v_a1.v[0]", x.shape[axis]), f"index * {step}", [step])


@builds("gather_elements")
def gather_elements(call: Call) -> Sequence[Launch]:
    """ONNX GatherElements."""
    x, indices, axis = *call.inputs, call.attrs["axis"]
    strides = tuple(0 if i == axis else s for i, s in enumerate(x.strides))
    moving = replace(x, shape=indices.shape, strides=strides)
    step = x.strides[axis]
    return _read(call, moving, indices, checked("index", "v_a1.v[0]", x.shape[axis]), f"index * {step}", [step])


@builds("gather_nd")
def gather_nd(call: Call) -> Sequence[Launch]:
    """ONNX GatherND."""
    x, indices, batch = *call.inputs, call.attrs["batch_dims"]
    shape, depth = call.outputs[0].shape, indices.shape[-1]
    between = indices.rank - 1 - batch
    moving = replace(x, shape=shape, strides=(*x.strides[:batch], *(0,) * between, *x.strides[batch + depth :]))
    leading = replace(indices, shape=indices.shape[:-1], strides=indices.strides[:-1])
    seen = replace(_spread(leading, 0, len(shape)), shape=shape)
    steps = x.strides[batch : batch + depth]
    early = tuple(
        line
        for k in range(depth)
        for line in checked(f"index{k}", f"p_a1[a1_at + {k * indices.strides[-1]}]", x.shape[batch + k])
    )
    shift = " + ".join(f"index{k} * {step}" for k, step in enumerate(steps)) or "0"
    return _read(call, moving, seen, early, shift, steps)
