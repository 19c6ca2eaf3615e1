"""A warning for masks that overflowed: float32's lowest value is -inf in a type of 16 bits.

Exporters mask attention scores with the lowest number of the type. Where a graph was converted to half precision, that
constant became -inf, and a row that is masked throughout is NaN after its softmax instead of a uniform one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from snplan.frontend.context import LowerContext, Record
from snplan.frontend.tensors import numpy_dtype
from snplan.frontend.values import INITIALIZER
from snplan.ir import DType, Spec

_HALVES = (DType.FLOAT16, DType.BFLOAT16)
_MOST = 64
"""Elements of an initializer that is looked into: a mask's value is one number, or one for each head."""

Peek = Callable[[str, Spec, Sequence[int]], "list[bytes] | None"]
"""Bytes of elements at flat positions of an initializer; None where it has none."""


def infinite_constants(ctx: LowerContext, records: Sequence[Record], peek: Peek) -> list[str]:
    """A warning for each constant of half precision that holds an infinity, with the first node that reads it.

    A node that tests for infinities compares with one, which is no mask.
    """
    made = {record.outputs[0]: record for record in records if record.kind == "constant"}
    found: dict[int, str] = {}
    for record in records:
        for handle in () if record.kind == "equal" else record.inputs:
            spec = ctx.specs[handle]
            if spec.dtype not in _HALVES or handle in found:
                continue
            infinity = _in_record(made[handle]) if handle in made else _in_source(ctx, handle, spec, peek)
            if infinity is not None:
                found[handle] = _text(ctx, handle, infinity, spec, record)
    return list(found.values())


def _in_record(record: Record) -> str | None:
    values = record.attrs["values"]
    assert isinstance(values, list)
    return next((str(value) for value in values if value in ("inf", "-inf")), None)


def _in_source(ctx: LowerContext, handle: int, spec: Spec, peek: Peek) -> str | None:
    source = ctx.sources.get(handle)
    if source is None or source.kind != INITIALIZER or not 0 < spec.elements <= _MOST:
        return None
    stored = peek(source.name, spec, range(spec.elements))
    numbers = np.frombuffer(b"".join(stored or ()), numpy_dtype(spec.dtype)).astype(np.float32)
    infinite = numbers[np.isinf(numbers)]
    return str(float(infinite[0])) if infinite.size else None


def _text(ctx: LowerContext, handle: int, infinity: str, spec: Spec, reader: Record) -> str:
    name = ctx.sources[handle].name if handle in ctx.sources else ctx.hints[handle]
    what = f"constant {name}" if name else "a constant"
    return (
        f"{what}, read by node {reader.node!r} ({reader.kind}), holds {infinity} in {spec.dtype}: float32's lowest "
        "number is out of that type's range, and a row that is masked with it throughout becomes NaN; use -1e4 instead"
    )
