"""The op table: every kind of op with its shape rule, cost, gradient rule and in-place rule (docs/ops.md)."""

from snplan.ops import (
    batch_norm,
    binary,
    constants,
    fused,
    indexing,
    linear,
    losses,
    movement,
    normalization,
    pooling,
    random,
    reductions,
    resize,
    unary,
    updates,
)
from snplan.ops.base import KINDS, Backward, Kind, ShapeError, register
from snplan.ops.table import infer, inplace_pairs, input_specs

__all__ = [
    "KINDS",
    "Backward",
    "Kind",
    "ShapeError",
    "batch_norm",
    "binary",
    "constants",
    "fused",
    "indexing",
    "infer",
    "inplace_pairs",
    "input_specs",
    "linear",
    "losses",
    "movement",
    "normalization",
    "pooling",
    "random",
    "reductions",
    "register",
    "resize",
    "unary",
    "updates",
]
