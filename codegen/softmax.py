"""Builders of softmax and log-softmax and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snplan.codegen.call import Call, builds, reads, writes
from snplan.codegen.launch import Launch
from snplan.codegen.rows import RowBody, Stage, Tensors, rows
from snplan.codegen.scalars import accumulator

_LOG_SUM = "const A log_sum = log(total);"


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """A softmax, or its gradient, as stages over a row and the expression of its result."""

    stages: tuple[Stage, ...]
    result: str
    long_stages: tuple[Stage, ...] = ()


def exponent_stages(compute: str, x: str = "a0") -> tuple[Stage, Stage]:
    """Stages that declare `top`, the largest `x` of the row, `total`, the sum of exp(x - top), and its logarithm."""
    return (
        Stage(monoid=f"Largest<{compute}>", values=(x,), start="A(-infinity())", after=("const A top = t0.v;",)),
        Stage(monoid=f"Sum<{compute}>", values=(f"exp({x} - top)",), after=("const A total = t1.v;", _LOG_SUM)),
    )


def exponent_stage(compute: str, x: str = "a0") -> tuple[Stage]:
    """The same in one stage, which keeps its sum relative to the largest so far; an infinity makes all of it NaN."""
    total = "const A total = t0.top == A(infinity()) ? A(not_a_number()) : t0.sum;"
    return (Stage(monoid=f"LogSum<{compute}>", values=(x,), after=("const A top = t0.top;", total, _LOG_SUM)),)


_GRADIENTS = {
    "softmax_grad": ("{dy} * {y}", "{y} * ({dy} - t0.v)"),
    "log_softmax_grad": ("{dy}", "{dy} - exp({y}) * t0.v"),
}


def softmax_of(kind: str, compute: str, names: Sequence[str]) -> Softmax:
    """What an op of `kind` does to a row whose elements are `names`: x, or y and dy."""
    if kind in _GRADIENTS:
        y, dy = names
        added, result = (text.format(y=y, dy=dy) for text in _GRADIENTS[kind])
        return Softmax(stages=(Stage(monoid=f"Sum<{compute}>", values=(added,)),), result=result)
    (x,) = names
    result = f"exp({x} - top) / total" if kind == "softmax" else f"({x} - top) - log_sum"
    return Softmax(stages=exponent_stages(compute, x), long_stages=exponent_stage(compute, x), result=result)


@builds("softmax", "log_softmax", *_GRADIENTS)
def softmax(call: Call) -> Sequence[Launch]:
    """One kernel, one read of rows that fit into registers."""
    compute, count = accumulator(call.inputs[0].dtype), len(call.inputs)
    found = softmax_of(call.kind, compute, [f"a{k}" for k in range(count)])
    body = RowBody(compute=compute, stages=found.stages, long_stages=found.long_stages, results=(found.result,))
    tensors = Tensors(inputs=tuple(reads(call, k) for k in range(count)), outputs=(writes(call),))
    return rows(call.kind, tensors, [call.attrs["axis"]], body)
