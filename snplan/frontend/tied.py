"""A warning for weights that were tied once: an exporter that folds a transpose into a copy unties them.

The embedding's table and the last layer's matrix are one weight in many language models. Where the file has a second
initializer that is the first one transposed, both are trained apart, and take memory twice. A few elements of both are
compared, at places that a transposed copy must agree on; the weights as a whole are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from snplan.frontend.context import LowerContext, Record
from snplan.frontend.values import INITIALIZER
from snplan.ir import Spec

_SAMPLES = 32

Peek = Callable[[str, Spec, Sequence[int]], "list[bytes] | None"]
"""Bytes of the elements at flat positions of a stored tensor; None where that cannot be had without reading it all."""


def untied(ctx: LowerContext, records: Sequence[Record], peek: Peek) -> list[str]:
    """A warning for each pair of a table that is gathered from and a matrix that looks like its transpose."""
    tables = _read_by(ctx, records, "gather", 0)
    matrices = {ctx.specs[handle].shape: handle for handle in _read_by(ctx, records, "matmul", 1)}
    found = []
    for table in tables:
        spec = ctx.specs[table]
        matrix = matrices.get(spec.shape[::-1])
        if spec.rank != 2 or matrix is None or matrix == table or ctx.specs[matrix].dtype is not spec.dtype:
            continue
        names = ctx.sources[table].name, ctx.sources[matrix].name
        if _transposed(names, spec, peek):
            found.append(
                f"{names[1]} is {names[0]} transposed: the exporter untied them, so both are trained, {spec.bytes:,} "
                "bytes each; export without constant folding to keep them tied"
            )
    return found


def _read_by(ctx: LowerContext, records: Sequence[Record], kind: str, index: int) -> list[int]:
    """Initializers that an op of `kind` reads as input `index`."""
    handles = dict.fromkeys(record.inputs[index] for record in records if record.kind == kind)
    sources: Mapping[int, object] = ctx.sources
    return [handle for handle in handles if handle in sources and ctx.sources[handle].kind == INITIALIZER]


def _transposed(names: tuple[str, str], spec: Spec, peek: Peek) -> bool:
    rows, columns = spec.shape
    picks = np.linspace(0, rows * columns - 1, num=min(_SAMPLES, rows * columns)).astype(np.int64)
    places = [divmod(int(pick), columns) for pick in picks]
    table = peek(names[0], spec, [row * columns + column for row, column in places])
    matrix = peek(names[1], spec, [column * rows + row for row, column in places])
    # Equal elements throughout say nothing: a fresh weight may be all zeros.
    return table is not None and table == matrix and len(set(table)) > 1
