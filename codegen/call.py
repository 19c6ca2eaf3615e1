"""One op as kernel builders see it, and the registry of builders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from snplan.codegen.launch import Argument, Input, Launch, Output
from snplan.codegen.operand import Operand
from snplan.codegen.scalars import c_type, carrier


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An op: its kind and attributes, its tensors as it reads and writes them, and its random stream."""

    kind: str
    attrs: Mapping[str, Any]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    stream: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An operand, the argument that is its address, and the C++ type of its elements."""

    argument: Argument
    operand: Operand
    type: str


Builder: TypeAlias = Callable[[Call], Sequence[Launch]]

BUILDERS: dict[str, Builder] = {}


def builds(*kinds: str) -> Callable[[Builder], Builder]:
    """A decorator that registers the builder of `kinds`; a kind may be registered once."""

    def add(builder: Builder) -> Builder:
        for kind in kinds:
            if kind in BUILDERS:
                raise ValueError(f"kernels of kind {kind} are built twice")
            BUILDERS[kind] = builder
        return builder

    return add


def reads(call: Call, index: int, operand: Operand | None = None, *, raw: bool = False) -> Access:
    """Input `index`, seen as `operand` where one is given; `raw` moves elements without arithmetic."""
    seen = call.inputs[index] if operand is None else operand
    return Access(argument=Input(index), operand=seen, type=carrier(seen.dtype) if raw else c_type(seen.dtype))


def writes(call: Call, index: int = 0, operand: Operand | None = None, *, raw: bool = False) -> Access:
    """Output `index`, seen as `operand` where one is given."""
    seen = call.outputs[index] if operand is None else operand
    return Access(argument=Output(index), operand=seen, type=carrier(seen.dtype) if raw else c_type(seen.dtype))
