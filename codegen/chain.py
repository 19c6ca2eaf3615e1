"""Chains of elementwise ops as one kernel body: what an op that fuses several is rendered from.

Intermediate values stay in registers in the type that arithmetic runs in, so for 16-bit tensors a chain rounds once
where separate ops would round each result; only a cast rounds where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from snplan.codegen.elementwise import EXPRESSIONS
from snplan.codegen.expressions import Expression
from snplan.codegen.expressions_binary import CHOICES
from snplan.codegen.pointwise import Body
from snplan.codegen.random import kept
from snplan.codegen.scalars import c_type
from snplan.errors import RunError
from snplan.ir import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One op of a chain. `operands` name inputs of the kernel ("a0", "a1", ...) and earlier steps ("t0", "t1", ...)."""

    kind: str
    operands: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


def _cast(attrs: Mapping[str, Any], names: Sequence[str]) -> str:
    """The value rounded to the type `to`."""
    return f"wide(narrow<{c_type(DType(attrs['to']))}>({names[0]}))"


DRAWING = ("dropout", "dropout_grad")
"""Kinds whose steps use `word`, the random word of the element (`snplan.codegen.random.drawing`)."""
_EXPRESSIONS: Mapping[str, Expression] = {**EXPRESSIONS, **CHOICES, "cast": _cast, **dict.fromkeys(DRAWING, kept)}


def statements(steps: Sequence[Step], first: int = 0, letter: str = "t") -> tuple[str, ...]:
    """C++ that computes the steps, numbered from `first`, as `t0`, `t1`, ... (or another letter).

    Raises RunError (SNP-R040) for a kind that is not elementwise.
    """
    for step in steps:
        if step.kind not in _EXPRESSIONS:
            raise RunError("SNP-R040", f"ops of kind {step.kind} cannot be part of an elementwise chain")
    return tuple(
        f"const A {letter}{number} = (A)({_EXPRESSIONS[step.kind](step.attrs, step.operands)});"
        for number, step in enumerate(steps, first)
    )


def chain(steps: Sequence[Step], results: Sequence[str], compute: str) -> Body:
    """The body that runs `steps` in order and stores `results` (names as in `Step.operands`), one for each output.

    Raises RunError (SNP-R040) for a kind that is not elementwise.
    """
    return Body(compute=compute, lines=statements(steps), results=tuple(results))
