"""Values known at compile time: constants and shape arithmetic are evaluated while a graph is lowered.

A node folds when all its inputs are known and its results are small (MOST_ELEMENTS); `Shape` and `Size` need only the
spec of their input. The evaluators are NumPy, one for each ONNX operator, and check the size of what they would make
before they make it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from snplan.frontend.folding_data import MOVERS
from snplan.frontend.folding_math import ARITHMETIC
from snplan.frontend.node import NodeView
from snplan.frontend.tensors import MOST_ELEMENTS, Array
from snplan.frontend.values import Unsupported, Value, constant

Fold: TypeAlias = Callable[[NodeView, Sequence[Array]], Array | Sequence[Array] | None]

FOLDS: dict[str, Fold] = {**ARITHMETIC, **MOVERS}
"""Evaluators by operator of ai.onnx. None as the result: it would be too large, or is not to be folded."""


def fold(view: NodeView) -> list[Value] | None:
    """Results of the node where they are known at compile time; None where it has to be lowered."""
    if view.domain:
        return None
    if view.op in ("Shape", "Size"):
        return _of_spec(view)
    evaluate = FOLDS.get(view.op)
    if evaluate is None or not view.items:
        return None
    arrays = _known(view)
    if arrays is None:
        return None
    with np.errstate(all="ignore"):
        found = evaluate(view, arrays)
    if found is None:
        return None
    results: Sequence[Array] = [found] if isinstance(found, np.ndarray | np.generic) else found
    if any(array.size > MOST_ELEMENTS for array in results):
        return None
    return [constant(np.asarray(array)) for array in results]


def _known(view: NodeView) -> list[Array] | None:
    """Values of all inputs that are given; None where one is not known."""
    arrays: list[Array] = []
    for item in view.items:
        if not isinstance(item, Value) or item.spec.elements > MOST_ELEMENTS:
            return None
        array = item.array()
        if array is None:
            return None
        arrays.append(array)
    return arrays


def _of_spec(view: NodeView) -> list[Value] | None:
    item = view.items[0] if view.items else None
    if not isinstance(item, Value):
        raise Unsupported("its input is not a tensor")
    if view.op == "Size":
        return [constant(np.array(item.spec.elements, np.int64))]
    shape = item.spec.shape
    start, end = view.attr_int("start", 0), view.attr_int("end", len(shape))
    return [constant(np.array(shape[slice(*_clamped(start, end, len(shape)))], np.int64))]


def _clamped(start: int, end: int, rank: int) -> tuple[int, int]:
    start = start + rank if start < 0 else start
    end = end + rank if end < 0 else end
    return min(max(start, 0), rank), min(max(end, 0), rank)
