"""Builders of softmax and log-softmax and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

from snplan.codegen.call import Call, builds, reads, writes
from snplan.codegen.launch import Launch
from snplan.codegen.rows import RowBody, Stage, Tensors, rows
from snplan.codegen.scalars import accumulator

_LOG_SUM = "const A log_sum = log(total);"


def exponent_stages(compute: str) -> tuple[Stage, Stage]:
    """Stages that declare `top`, the largest of the row, `total`, the sum of exp(x - top), and its logarithm."""
    return (
        Stage(monoid=f"Largest<{compute}>", values=("a0",), start="A(-infinity())", after=("const A top = t0.v;",)),
        Stage(monoid=f"Sum<{compute}>", values=("exp(a0 - top)",), after=("const A total = t1.v;", _LOG_SUM)),
    )


def exponent_stage(compute: str) -> tuple[Stage]:
    """The same in one stage, which keeps its sum relative to the largest so far; an infinity makes all of it NaN."""
    total = "const A total = t0.top == A(infinity()) ? A(not_a_number()) : t0.sum;"
    return (Stage(monoid=f"LogSum<{compute}>", values=("a0",), after=("const A top = t0.top;", total, _LOG_SUM)),)


@builds("softmax", "log_softmax")
def softmax(call: Call) -> Sequence[Launch]:
    """One kernel, one read of rows that fit into registers."""
    compute = accumulator(call.inputs[0].dtype)
    result = "exp(a0 - top) / total" if call.kind == "softmax" else "(a0 - top) - log_sum"
    body = RowBody(
        compute=compute, stages=exponent_stages(compute), long_stages=exponent_stage(compute), results=(result,)
    )
    return rows(call.kind, Tensors(inputs=(reads(call, 0),), outputs=(writes(call),)), [call.attrs["axis"]], body)


_GRADIENTS = {"softmax_grad": ("a1 * a0", "a0 * (a1 - t0.v)"), "log_softmax_grad": ("a1", "a1 - exp(a0) * t0.v")}


@builds(*_GRADIENTS)
def gradient(call: Call) -> Sequence[Launch]:
    """From y (`a0`) and dy (`a1`)."""
    compute = accumulator(call.inputs[0].dtype)
    added, result = _GRADIENTS[call.kind]
    body = RowBody(compute=compute, stages=(Stage(monoid=f"Sum<{compute}>", values=(added,)),), results=(result,))
    tensors = Tensors(inputs=(reads(call, 0), reads(call, 1)), outputs=(writes(call),))
    return rows(call.kind, tensors, [call.attrs["axis"]], body)
