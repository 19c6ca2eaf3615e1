"""Rule V's part on ops in place: where an output may never share its input's bytes, whatever a planner says."""

from __future__ import annotations

from snplan.plan.model import PlanOp, PlanTensor

_MIXES_ELEMENTS = frozenset(
    {
        *("transpose", "concat", "split", "slice", "slice_grad", "pad", "pad_grad", "expand", "tile", "trilu"),
        *("gather", "gather_grad", "gather_elements", "gather_nd", "gather_nd_grad", "scatter_add", "one_hot"),
        *("resize", "resize_grad", "top_k", "arg_max", "arg_min"),
        *("matmul", "conv", "conv_transpose", "conv_filter"),
        *("max_pool", "max_pool_grad", "average_pool", "average_pool_grad", "lrn", "lrn_grad"),
    }
)
"""Kinds that read an input element after they wrote other output elements (docs/ops.md)."""


def why_not_in_place(op: PlanOp, read: PlanTensor | None, written: PlanTensor | None) -> str | None:
    """Why `written` must not take the bytes of `read`, an input of `op`; None where it may, or a tensor is unknown.

    This is the least that holds for all executors: each output element is written where the one input element that it
    depends on was, so both have as many bytes. The op table says which kinds really may.
    """
    if read is None or written is None:
        return None
    if op.kind in _MIXES_ELEMENTS:
        return f"a {op.kind} reads elements after it wrote others"
    if read.bytes != written.bytes:
        return f"{written.bytes} bytes are not {read.bytes}"
    return None
