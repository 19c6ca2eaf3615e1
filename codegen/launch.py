"""Kernel launches as frozen data: which function, over which grid, with which arguments. Nothing here needs a GPU."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Param: TypeAlias = "bool | int | float | str | tuple[Param, ...]"

# Words that kernels share with the executor, in device memory for the whole run. All zero at first; the executor sets
# `seed` once and `step` before each training step. `fault` becomes 1 + the number of the first op that found an index
# out of range. `tickets` are for blocks that wait for each other's partial sums; every kernel leaves them at zero.
TICKETS = 1024
CONTROL = np.dtype([("seed", "<u8"), ("step", "<i8"), ("fault", "<i8"), ("spare", "<i8"), ("tickets", "<u4", TICKETS)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The text of one kernel before it is rendered: a template's name and its parameters.

    `stem` leads the function's name (profilers show it); equal sources are one kernel.
    """

    template: str
    stem: str
    params: tuple[tuple[str, Param], ...]

    @property
    def name(self) -> str:
        """Name of the function: the stem and a digest of everything that the text depends on."""
        digest = hashlib.sha256(repr((self.template, self.params)).encode()).hexdigest()
        return f"{self.stem}_{digest[:12]}"


def source(template: str, stem: str, **params: Param) -> Source:
    """A source, its parameters in the order of their names."""
    return Source(template=template, stem=stem, params=tuple(sorted(params.items())))


@dataclass(frozen=True, slots=True)
class Input:
    """Address of input `index` of the op."""

    index: int


@dataclass(frozen=True, slots=True)
class Output:
    """Address of output `index` of the op."""

    index: int


@dataclass(frozen=True, slots=True)
class Workspace:
    """Address `offset` bytes into the op's workspace."""

    offset: int = 0


@dataclass(frozen=True, slots=True)
class Control:
    """Address of the words of type `CONTROL`."""


@dataclass(frozen=True, slots=True)
class OpNumber:
    """A number (int32) by which the executor knows the op again in `fault`."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number of NumPy's type `dtype`."""

    dtype: str
    value: int | float


Argument: TypeAlias = Input | Output | Workspace | Control | OpNumber | Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch. `workspace` is how many bytes of the op's workspace it touches, from the start."""

    source: Source
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared: int = 0
    workspace: int = 0

    @property
    def function(self) -> str:
        """Name of the function in the compiled module."""
        return self.source.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where an op's tensors are on the device, and what else its launches may ask for."""

    inputs: Sequence[int]
    outputs: Sequence[int]
    workspace: int = 0
    control: int = 0
    op_number: int = 0


def values(launch: Launch, at: Addresses) -> tuple[Any, ...]:
    """The kernel's arguments as NumPy scalars, in order: pointers are uint64."""
    return tuple(_value(argument, at) for argument in launch.arguments)


def _value(argument: Argument, at: Addresses) -> Any:
    match argument:
        case Input(index):
            return np.uint64(at.inputs[index])
        case Output(index):
            return np.uint64(at.outputs[index])
        case Workspace(offset):
            return np.uint64(at.workspace + offset)
        case Control():
            return np.uint64(at.control)
        case OpNumber():
            return np.int32(at.op_number)
        case Scalar(dtype, value):
            return np.dtype(dtype).type(value)
