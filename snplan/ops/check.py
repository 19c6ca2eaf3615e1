"""Rule K of step plans: every op is what the op table says of its kind.

The verifier of `snplan.plan.verify` follows bytes and knows no kinds on purpose; executors and code generators take
each op's kind, attributes and shapes for granted. Here they are held against the op table (docs/ops.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from snplan.ir import Attrs, DType, Spec
from snplan.ir.signature import signature
from snplan.ops.base import KINDS, ShapeError, Specs
from snplan.ops.forms import check_attributes
from snplan.ops.fused import parts_of
from snplan.ops.pieces import check_pieces
from snplan.ops.shapes import show_all
from snplan.ops.table import infer, viewed
from snplan.plan.model import Algorithm, PlanOp, StepPlan
from snplan.plan.pieces import pieces_of
from snplan.plan.verifier.findings import Finding

_VIEWS = "in_shapes"


def op_findings(plan: StepPlan) -> Iterator[Finding]:
    """What is wrong with the ops of `plan`, one finding an op at most; its tensors and names are sound."""
    known = {dtype.value: dtype for dtype in DType}
    specs = {row.name: Spec(known[row.dtype], tuple(row.shape)) for row in plan.tensors}
    sound: set[tuple[object, ...]] = set()  # what holds for an op holds for those of its signature
    for op in plan.ops:
        inputs, outputs = [specs[name] for name in op.inputs], [specs[name] for name in op.outputs]
        key = (op.rng is None, *signature(op.kind, op.attrs, inputs, outputs))
        if key in sound:
            continue
        reason = why_wrong(op, specs)
        if reason is None:
            sound.add(key)
        else:
            yield Finding(rule="K", where=f"op {op.name}", message=reason)
    yield from _piece_findings(plan, specs)


def _piece_findings(plan: StepPlan, specs: Mapping[str, Spec]) -> Iterator[Finding]:
    """What is wrong with the algorithms that run an op in pieces of its batch."""
    ops = {op.name: op for op in plan.ops}
    sizes = {extent.id: extent.bytes for extent in plan.buffers}
    for number, action in enumerate(plan.actions):
        if not isinstance(action, Algorithm) or pieces_of(action.engine)[1] == 1:
            continue
        op, workspace = ops[action.op], 0 if action.workspace is None else sizes[action.workspace]
        reason = _why_not_cut(op, specs, pieces_of(action.engine)[1], workspace)
        if reason is not None:
            yield Finding(rule="K", where=f"action {number}", message=f"{op.name}: {reason}")


def _why_not_cut(op: PlanOp, specs: Mapping[str, Spec], pieces: int, workspace: int) -> str | None:
    """Why `op` cannot run in so many pieces and bytes of workspace; None where it can, or is wrong itself."""
    if why_wrong(op, specs) is not None:
        return None
    try:
        check_pieces(op.kind, viewed([specs[name] for name in op.inputs], op.attrs), op.attrs, pieces)
    except ShapeError as error:
        return str(error)
    partial = specs[op.outputs[0]].bytes if op.kind == "conv_filter" else 0
    if workspace < partial:
        return f"{pieces} pieces need {partial} bytes for a partial filter, the workspace has {workspace}"
    return None


def why_wrong(op: PlanOp, specs: Mapping[str, Spec]) -> str | None:
    """Why the op table does not have `op` over tensors of these `specs`; None where it does."""
    kind = KINDS.get(op.kind)
    if kind is None:
        return f"there is no op kind {op.kind!r:.80}; see docs/ops.md"
    if kind.view:
        return f"a {op.kind} is no op of a plan: its reader names the tensor that holds the bytes"
    try:
        _check_attributes(op.kind, op.attrs)
        if op.rng is None and _is_random(op.kind, op.attrs):
            return f"a {op.kind} draws random numbers; rng must be the number of its stream"
        expected = infer(op.kind, [specs[name] for name in op.inputs], op.attrs)
    except ShapeError as error:
        return str(error)
    return _difference(op.kind, expected, [specs[name] for name in op.outputs])


def _check_attributes(kind: str, attrs: Attrs) -> None:
    """Raises ShapeError for attributes that the kind, or a part of a fused op, does not take."""
    check_attributes(kind, {name: value for name, value in attrs.items() if name != _VIEWS})
    if kind == "fused":
        for part in parts_of(attrs):
            check_attributes(part.kind, part.attrs)


def _is_random(kind: str, attrs: Attrs) -> bool:
    if kind == "fused":
        return any(KINDS[part.kind].random for part in parts_of(attrs))
    return KINDS[kind].random


def _difference(kind: str, expected: Specs, written: Specs) -> str | None:
    if len(expected) != len(written):
        return f"a {kind} of these inputs gives {len(expected)} outputs ({show_all(expected)}), not {len(written)}"
    if any(a.dtype is not b.dtype or a.shape != b.shape for a, b in zip(expected, written, strict=True)):
        return f"a {kind} of these inputs gives {show_all(expected):.200}, the plan says {show_all(written):.200}"
    return None
