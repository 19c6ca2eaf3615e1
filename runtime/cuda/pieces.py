"""Convolutions in pieces of the batch: each piece as a call of its own, at its place in operands and workspace.

The batch is the outermost axis in both physical orders, so that a piece of an operand is one stretch of its bytes. The
first piece of a filter gradient writes the result; the others write a partial filter at the start of the workspace,
which is added to the result before the next piece writes it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from snplan.codegen.operand import Operand
from snplan.ops.pieces import piece_sizes
from snplan.plan.index import PlanIndex
from snplan.plan.model import Algorithm
from snplan.plan.pieces import pieces_of
from snplan.runtime.cuda.calls import DeviceCall
from snplan.units import round_up


def piece_calls(call: DeviceCall, pieces: int) -> tuple[DeviceCall, ...]:
    """The calls of the pieces of a convolution, in order; the call itself where there is one piece."""
    if pieces == 1:
        return (call,)
    whole = _summed(call) if call.op.kind == "conv_filter" else call
    return tuple(_pieces(whole, call, piece_sizes(call.inputs[0].shape[0], pieces)))


def summed_ops(index: PlanIndex) -> frozenset[str]:
    """Filter gradients that the plan runs in pieces."""
    return frozenset(
        action.op
        for action in index.plan.actions
        if isinstance(action, Algorithm)
        and pieces_of(action.engine)[1] > 1
        and index.ops[action.op].kind == "conv_filter"
    )


def _summed(call: DeviceCall) -> DeviceCall:
    """The call with its result at the start of the workspace, and what is left of that."""
    size = round_up(call.outputs[0].elements * _item(call.outputs[0]))
    return replace(
        call,
        at_outputs=(call.workspace,),
        workspace=call.workspace + size,
        workspace_bytes=call.workspace_bytes - size,
    )


def _pieces(whole: DeviceCall, call: DeviceCall, sizes: tuple[int, ...]) -> Iterator[DeviceCall]:
    start = 0
    for number, size in enumerate(sizes):
        inputs = [_piece(x, at, start, size) for x, at in zip(call.inputs, call.at_inputs, strict=True)]
        if call.op.kind == "conv_filter":
            outputs, at_outputs = call.outputs, whole.at_outputs if number else call.at_outputs
        else:
            inputs[1:] = zip(call.inputs[1:], call.at_inputs[1:], strict=True)
            y, at_y = _piece(call.outputs[0], call.at_outputs[0], start, size)
            outputs, at_outputs = (y,), (at_y,)
        yield replace(
            whole,
            inputs=tuple(x for x, _ in inputs),
            at_inputs=tuple(at for _, at in inputs),
            outputs=outputs,
            at_outputs=at_outputs,
        )
        start += size


def _piece(x: Operand, address: int, start: int, images: int) -> tuple[Operand, int]:
    """`images` images of an operand from image `start`, and their address."""
    return replace(x, shape=(images, *x.shape[1:])), address + start * x.strides[0] * _item(x)


def _item(x: Operand) -> int:
    return x.dtype.bits // 8
