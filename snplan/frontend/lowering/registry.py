"""The table of lowerings by operator, and how a family module adds to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from snplan.frontend.context import LowerContext
from snplan.frontend.node import NodeView

Lowering: TypeAlias = Callable[[LowerContext, NodeView], None]
"""Writes the ops that an ONNX node stands for and binds the node's outputs."""

LOWERINGS: dict[str, Lowering] = {}
"""By operator; those of other domains than ai.onnx as DOMAIN::OPERATOR."""


def lowers(*operators: str) -> Callable[[Lowering], Lowering]:
    """Enters a function as the lowering of `operators`."""

    def enter(lowering: Lowering) -> Lowering:
        for operator in operators:
            if operator in LOWERINGS:
                raise ValueError(f"operator {operator} has two lowerings")
            LOWERINGS[operator] = lowering
        return lowering

    return enter
