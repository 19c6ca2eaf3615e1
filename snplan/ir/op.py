"""Ops: nodes of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

Attr: TypeAlias = "bool | int | float | str | list[Attr] | dict[str, Attr] | None"
Attrs: TypeAlias = Mapping[str, Attr]


class Phase(StrEnum):
    """Part of the training step that an op belongs to; only forward ops may be recomputed."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One op: its kind (a key of the op table), the tensors it reads and writes, and its attributes.

    `attrs` holds JSON values only (infinite floats are left out, never written). Where an input is read through a
    view, `attrs["in_shapes"]` lists a shape for each input (None: the tensor's own). `nodes` names the ONNX nodes that
    the op comes from. `rng` is the id of the op's random stream, or None.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    phase: Phase = Phase.FORWARD
    attrs: Attrs = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    rng: int | None = None
