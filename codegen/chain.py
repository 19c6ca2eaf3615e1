"""Chains of elementwise ops as one kernel body: what an op that fuses several is rendered from.

Intermediate values stay in registers in the type that arithmetic runs in, so for 16-bit tensors a chain rounds once
where separate ops would round each result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from snplan.codegen.elementwise import EXPRESSIONS
from snplan.codegen.expressions_binary import CHOICES
from snplan.codegen.pointwise import Body
from snplan.errors import RunError


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One op of a chain. `operands` name inputs of the kernel ("a0", "a1", ...) and earlier steps ("t0", "t1", ...)."""

    kind: str
    operands: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


def chain(steps: Sequence[Step], results: Sequence[str], compute: str) -> Body:
    """The body that runs `steps` in order and stores `results` (names as in `Step.operands`), one for each output.

    Raises RunError (SNP-R040) for a kind that is not elementwise.
    """
    expressions = {**EXPRESSIONS, **CHOICES}
    lines = []
    for number, step in enumerate(steps):
        if step.kind not in expressions:
            raise RunError("SNP-R040", f"ops of kind {step.kind} cannot be part of an elementwise chain")
        lines.append(f"const A t{number} = (A)({expressions[step.kind](step.attrs, step.operands)});")
    return Body(compute=compute, lines=tuple(lines), results=tuple(results))
