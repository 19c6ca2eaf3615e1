"""The op table's frame: what each op kind declares, and the registry of all kinds.

A kind is declared once, in its family module, with everything that planning needs: shape rule, cost, gradient rule and
in-place rule. Executors hold one kernel for each kind (docs/add-an-op.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from snplan.ir import Attr, Attrs, Op, Spec

Specs: TypeAlias = Sequence[Spec]
Infer: TypeAlias = Callable[[Specs, Attrs], tuple[Spec, ...]]
Count: TypeAlias = Callable[[Specs, Specs, Attrs], int]
Pairs: TypeAlias = Callable[[Op], tuple[tuple[int, int], ...]]
Refusal: TypeAlias = Callable[[Attrs, Sequence[bool]], "str | None"]


class ShapeError(ValueError):
    """A shape rule found inputs that the kind does not take; the message says which and why."""


class Backward(Protocol):
    """What a gradient rule works with: it emits backward ops for one forward op and returns gradient names."""

    def spec(self, name: str) -> Spec:
        """Element type and shape of a tensor, forward or backward."""

    def wants(self, index: int) -> bool:
        """Whether input `index` of the forward op needs a gradient."""

    def dy(self, index: int = 0) -> str:
        """The gradient of output `index` (a tensor of zeros is emitted where no reader gave one)."""

    def has_dy(self, index: int) -> bool:
        """Whether a gradient reached output `index`."""

    def emit(
        self, kind: str, inputs: Sequence[str], attrs: Mapping[str, Attr] | None = None, *, label: str = "dx"
    ) -> tuple[str, ...]:
        """Outputs of a new backward op; `label` tells the ops of one rule apart ("dx", "dw", ...)."""


GradientRule: TypeAlias = Callable[[Backward, Op], Mapping[int, str]]


def elementwise_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """One operation for each output element."""
    return sum(spec.elements for spec in outputs)


def no_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """Zero: the kind only moves bytes."""
    return 0


def read_write_bytes(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """Bytes of all inputs and outputs, each moved once."""
    return sum(spec.bytes for spec in inputs) + sum(spec.bytes for spec in outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One op kind.

    infer           specs of the outputs from specs of the inputs and attributes; raises ShapeError
    gradient        rule that emits the backward; None: gradients cannot pass (an error where one has to)
    refuses         why an op with these attributes, and gradients at these outputs, has no gradient; None: it has one
    differentiable  indices of the inputs that gradients flow to; None: every floating-point input
    inplace         (output, input) pairs that may share one buffer when nothing else needs the input's bytes
                    (`snplan.ops.inplace_pairs` leaves out inputs that an op has not, and other types or sizes)
    pairs           the same as a function of the op, where its attributes decide
    flops, traffic  arithmetic operations, and bytes moved in device memory, of one execution
    random          the op draws from its random stream (`Op.rng`)
    view            the output is the input's bytes under another shape; removed before planning
    """

    name: str
    infer: Infer
    gradient: GradientRule | None = None
    refuses: Refusal | None = None
    differentiable: tuple[int, ...] | None = None
    inplace: tuple[tuple[int, int], ...] = ()
    pairs: Pairs | None = None
    flops: Count = elementwise_flops
    traffic: Count = read_write_bytes
    random: bool = False
    view: bool = False


KINDS: dict[str, Kind] = {}


def register(*kinds: Kind) -> None:
    """Add kinds to the op table; a name may be declared once."""
    for kind in kinds:
        if kind.name in KINDS:
            raise ValueError(f"op kind {kind.name} is declared twice")
        KINDS[kind.name] = kind
