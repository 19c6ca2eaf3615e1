"""A warning for weights that were tied once: an exporter that folds a transpose into a copy unties them.

The embedding's table and the last layer's matrix are one weight in many language models. Where the file has a second
initializer that is the first one transposed (or copied), both are trained apart, and take memory twice. A few elements
of both are compared, at places that such a copy must agree on; the weights as a whole are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from snplan.frontend.context import LowerContext, Record
from snplan.frontend.values import INITIALIZER
from snplan.ir import Spec

_SAMPLES = 32

Peek = Callable[[str, Spec, Sequence[int]], "list[bytes] | None"]
"""Bytes of the elements at flat positions of a stored tensor, wherever its data is; None where it has none."""


def untied(ctx: LowerContext, records: Sequence[Record], peek: Peek) -> list[str]:
    """A warning for each pair of a table that is gathered from and a matrix that looks like its transpose or copy."""
    found = []
    matrices = _read_by(ctx, records, "matmul", 1)
    for table in _read_by(ctx, records, "gather", 0):
        spec = ctx.specs[table]
        if spec.rank != 2 or spec.dtype.bits < 8:
            continue
        for matrix in matrices:
            relation = None if matrix == table else _relation(ctx, table, matrix, peek)
            if relation is not None:
                found.append(
                    f"{ctx.sources[matrix].name} is {relation.format(ctx.sources[table].name)}: the exporter untied "
                    f"them, so both are trained, {spec.bytes:,} bytes each; export without constant folding to keep "
                    "them tied"
                )
    return found


def _read_by(ctx: LowerContext, records: Sequence[Record], kind: str, index: int) -> list[int]:
    """Initializers that an op of `kind` reads as input `index`."""
    handles = dict.fromkeys(record.inputs[index] for record in records if record.kind == kind)
    sources: Mapping[int, object] = ctx.sources
    return [handle for handle in handles if handle in sources and ctx.sources[handle].kind == INITIALIZER]


def _relation(ctx: LowerContext, table: int, matrix: int, peek: Peek) -> str | None:
    """What the matrix seems to be of the table, in words with a place for its name; None for nothing."""
    spec, other = ctx.specs[table], ctx.specs[matrix]
    names = ctx.sources[table].name, ctx.sources[matrix].name
    if other == Spec(spec.dtype, spec.shape[::-1]) and _agree(names, spec, peek, transposed=True):
        return "{} transposed"
    return "a copy of {}" if other == spec and _agree(names, spec, peek, transposed=False) else None


def _agree(names: tuple[str, str], spec: Spec, peek: Peek, *, transposed: bool) -> bool:
    rows, columns = spec.shape
    count = rows * columns
    picks = [int(pick) for pick in np.linspace(0, count - 1, num=min(_SAMPLES, count)).astype(np.int64)]
    places = [(pick % columns) * rows + pick // columns for pick in picks] if transposed else picks
    table, matrix = peek(names[0], spec, picks), peek(names[1], spec, places)
    # Equal elements throughout say nothing: a fresh weight may be all zeros.
    return table is not None and table == matrix and len(set(table)) > 1
