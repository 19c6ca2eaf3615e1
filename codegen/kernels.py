"""The launches that execute one op of a plan on a GPU: a pure function of the op, its tensors and their orders.

Convolutions and matrix products (`LIBRARY`) have none: cuDNN and cuBLASLt run them. All other kinds of the op table do;
each takes one or two launches, a few rare ones more. No launch allocates; partial sums go into the op's workspace.
"""

from __future__ import annotations

from collections.abc import Sequence

from snplan.codegen import (
    batch_norm,
    constants,
    elementwise,
    fused,
    gather,
    group_norm,
    loss,
    lrn,
    move,
    pad,
    pool,
    random,
    reduce,
    resize,
    row_norm,
    scan,
    scatter,
    softmax,
    updates,
)
from snplan.codegen.call import BUILDERS, Call
from snplan.codegen.launch import Launch
from snplan.codegen.operand import Order, operand
from snplan.errors import RunError
from snplan.ir import Spec
from snplan.plan.model import PlanOp

FAMILIES = (
    batch_norm,
    constants,
    elementwise,
    fused,
    gather,
    group_norm,
    loss,
    lrn,
    move,
    pad,
    pool,
    random,
    reduce,
    resize,
    row_norm,
    scan,
    scatter,
    softmax,
    updates,
)
LIBRARY = frozenset({"conv", "conv_transpose", "conv_filter", "matmul"})


def kernel_for(
    op: PlanOp, inputs: Sequence[Spec], outputs: Sequence[Spec], layouts: Sequence[Order] | None = None
) -> tuple[Launch, ...]:
    """The launches of `op`, in order, on one stream; none where every output is empty.

    `inputs` and `outputs` are the tensors' own specs (views of attribute `in_shapes` are applied here); `layouts` are
    the physical orders of the inputs, then of the outputs (None: all plain). An output may have the address of an input
    where the op table says so and both have one shape and order.

    Raises RunError (SNP-R040) for kinds, element types and views of channels-last tensors that no kernel handles.
    """
    if op.kind not in BUILDERS:
        raise RunError("SNP-R040", f"op {op.name} is of kind {op.kind}, which the CUDA backend has no kernel for")
    try:
        return tuple(BUILDERS[op.kind](call_of(op, inputs, outputs, layouts)))
    except RunError as error:
        raise RunError(error.code, f"op {op.name} ({op.kind}): {error.message}", {"op": op.name}) from error


def workspace_bytes(
    op: PlanOp, inputs: Sequence[Spec], outputs: Sequence[Spec], layouts: Sequence[Order] | None = None
) -> int:
    """Bytes of workspace that the launches of `op` need: 0 for most ops."""
    return max((launch.workspace for launch in kernel_for(op, inputs, outputs, layouts)), default=0)


def call_of(op: PlanOp, inputs: Sequence[Spec], outputs: Sequence[Spec], layouts: Sequence[Order] | None) -> Call:
    """The op with operands: views, then physical orders applied."""
    orders: Sequence[Order] = layouts or ["plain"] * (len(inputs) + len(outputs))
    views = op.attrs.get("in_shapes") or [None] * len(inputs)
    read = [operand(spec, order, view) for spec, order, view in zip(inputs, orders, views, strict=False)]
    written = [operand(spec, order) for spec, order in zip(outputs, orders[len(inputs) :], strict=True)]
    return Call(kind=op.kind, attrs=op.attrs, inputs=tuple(read), outputs=tuple(written), stream=op.rng or 0)
