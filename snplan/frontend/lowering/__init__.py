"""Lowerings of ONNX operators, one module a family; importing this package fills the table."""

from snplan.frontend.lowering import (
    binary,
    constants,
    conv,
    indexing,
    linear,
    losses,
    movement,
    norm,
    pool,
    random,
    reduce,
    resize,
    shape,
    unary,
)
from snplan.frontend.lowering.registry import LOWERINGS, Lowering, lowers

__all__ = [
    "LOWERINGS",
    "Lowering",
    "binary",
    "constants",
    "conv",
    "indexing",
    "linear",
    "losses",
    "lowers",
    "movement",
    "norm",
    "pool",
    "random",
    "reduce",
    "resize",
    "shape",
    "unary",
]
