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


Sample = tuple[Spec, tuple[bytes, ...]]
"""A matrix's spec, and its elements at the places that are compared."""


def untied(ctx: LowerContext, records: Sequence[Record], peek: Peek) -> list[str]:
    """A warning for each matrix that looks like the transpose or copy of a table that is gathered from.

    Every weight is sampled once, and equal samples meet in a dictionary: the work does not grow with the pairs. Of
    tables that are equal to one another the first is named.
    """
    tables = _read_by(ctx, records, "gather", 0)
    samples = {table: _sample(ctx, table, peek, transposed=False) for table in tables}
    specs = {ctx.specs[table] for table in tables}
    matrices = _read_by(ctx, records, "matmul", 1)
    copies = _by_sample(ctx, [m for m in matrices if ctx.specs[m] in specs], peek, transposed=False)
    turned = [m for m in matrices if _transposed(ctx.specs[m]) in specs]
    transposed = _by_sample(ctx, turned, peek, transposed=True)
    found = []
    for table, sample in samples.items():
        # Equal elements throughout say nothing: a fresh weight may be all zeros.
        if sample is None or len(set(sample[1])) < 2:
            continue
        alike = dict.fromkeys(_taken(copies, sample, table), "a copy of {}")
        alike.update(dict.fromkeys(_taken(transposed, sample, table), "{} transposed"))
        found += [_text(ctx, table, matrix, alike[matrix]) for matrix in sorted(alike)]
    return found


def _text(ctx: LowerContext, table: int, matrix: int, relation: str) -> str:
    return (
        f"{ctx.sources[matrix].name} is {relation.format(ctx.sources[table].name)}: the exporter untied "
        f"them, so both are trained, {ctx.specs[table].bytes:,} bytes each; export without constant folding to keep "
        "them tied"
    )


def _taken(matrices: dict[Sample, list[int]], sample: Sample, table: int) -> list[int]:
    """The matrices of that sample, which no later table gets again; `table` is no copy of itself."""
    alike = matrices.pop(sample, [])
    if table in alike:
        matrices[sample] = [table]
    return [matrix for matrix in alike if matrix != table]


def _by_sample(ctx: LowerContext, matrices: Sequence[int], peek: Peek, *, transposed: bool) -> dict[Sample, list[int]]:
    found: dict[Sample, list[int]] = {}
    for matrix in matrices:
        sample = _sample(ctx, matrix, peek, transposed=transposed)
        if sample is not None:
            found.setdefault(sample, []).append(matrix)
    return found


def _read_by(ctx: LowerContext, records: Sequence[Record], kind: str, index: int) -> list[int]:
    """Initializers that an op of `kind` reads as input `index`."""
    handles = dict.fromkeys(record.inputs[index] for record in records if record.kind == kind)
    sources: Mapping[int, object] = ctx.sources
    return [handle for handle in handles if handle in sources and ctx.sources[handle].kind == INITIALIZER]


def _transposed(spec: Spec) -> Spec:
    return Spec(spec.dtype, spec.shape[::-1])


def _sample(ctx: LowerContext, handle: int, peek: Peek, *, transposed: bool) -> Sample | None:
    """The sample of a matrix, or of its transpose; None where it is no matrix, or has no data."""
    spec = ctx.specs[handle]
    if spec.rank != 2 or spec.dtype.bits < 8:
        return None
    seen = _transposed(spec) if transposed else spec
    rows, columns = seen.shape
    count = rows * columns
    picks = [int(pick) for pick in np.linspace(0, count - 1, num=min(_SAMPLES, count)).astype(np.int64)]
    places = [(pick % columns) * rows + pick // columns for pick in picks] if transposed else picks
    elements = peek(ctx.sources[handle].name, spec, places)
    return None if elements is None else (seen, tuple(elements))
