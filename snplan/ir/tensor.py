"""Tensors: logical values, assigned once."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from snplan.ir.dtype import DType, elements, nbytes


class Role(StrEnum):
    """What a tensor is to the training step; the plan file and the report's breakdown use these words."""

    PARAMETER = "parameter"
    STATE = "state"
    OPTIMIZER = "optimizer"
    INPUT = "input"
    CONSTANT = "constant"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    LOSS = "loss"


@dataclass(frozen=True, slots=True)
class Spec:
    """Element type and shape of a value: what shape rules take and give."""

    dtype: DType
    shape: tuple[int, ...]
    _bytes: int = field(init=False, repr=False, compare=False, default=0)  # asked for far more often than made

    def __post_init__(self) -> None:
        object.__setattr__(self, "_bytes", nbytes(self.dtype, self.shape))

    @property
    def bytes(self) -> int:
        """Exact bytes, not rounded to the granule."""
        return self._bytes

    @property
    def elements(self) -> int:
        """Number of elements."""
        return elements(self.shape)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A logical value of the step: written by one op, or there when the step starts."""

    name: str
    spec: Spec
    role: Role = Role.ACTIVATION

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.spec.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions; () for a scalar."""
        return self.spec.shape

    @property
    def bytes(self) -> int:
        """Exact bytes, not rounded to the granule."""
        return self.spec.bytes
