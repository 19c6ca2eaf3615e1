"""Builders of constants and ranges."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from snplan.codegen.call import Call, builds, writes
from snplan.codegen.launch import Launch
from snplan.codegen.operand import row_major
from snplan.codegen.pointwise import Body, pointwise
from snplan.codegen.scalars import literal
from snplan.ir import DType


def _value(value: Any, dtype: DType) -> str:
    """One value as NumPy converts it to `dtype`."""
    if dtype is DType.BOOL:
        return "1" if value else "0"
    return literal(float(value) if dtype.is_float else int(value))


def _type(dtype: DType) -> str:
    if dtype.is_float:
        return "double"
    return "u64" if dtype is DType.UINT64 else "i64"


@builds("constant")
def constant(call: Call) -> Sequence[Launch]:
    """The values of the attribute, held in the kernel's text; a single one fills."""
    y, values = call.outputs[0], call.attrs["values"]
    if len(values) == 1:
        body = Body(compute=_type(y.dtype), results=(_value(values[0], y.dtype),))
    else:
        lines, result = _table(values, y.dtype)
        body = Body(compute=_type(y.dtype), setup=lines, results=(result,), numbers=(row_major(y.shape),))
    return pointwise("constant", [], [writes(call)], body)


def _table(values: Sequence[Any], dtype: DType) -> tuple[tuple[str, ...], str]:
    """Tables in the kernel's text, and element e0 of them; compilers take infinities and NaN only as their bits."""
    finite = [value if not dtype.is_float or isfinite(float(value)) else 0.0 for value in values]
    lines = (f"static const A table[] = {{{', '.join(_value(value, dtype) for value in finite)}}};",)
    marks = [0 if not dtype.is_float or isfinite(float(value)) else _bits(float(value)) for value in values]
    if not any(marks):
        return lines, "table[e0]"
    text = ", ".join(f"{mark:#x}u" for mark in marks)
    return (*lines, f"static const u32 marks[] = {{{text}}};"), "(marks[e0] ? A(bits_float(marks[e0])) : table[e0])"


def _bits(value: float) -> int:
    """Bits of an infinity or NaN in float32."""
    return int(np.float32(value).view(np.uint32))


@builds("range")
def arange(call: Call) -> Sequence[Launch]:
    """`start + step * i`: exact in integers, each step rounded in double for floats."""
    dtype = call.outputs[0].dtype
    start, step = call.attrs["start"], call.attrs["step"]
    if dtype.is_float:
        result = f"exact_sum({float(start)!r}, exact_product({float(step)!r}, (double)e0))"
    else:
        result = f"{_value(start, dtype)} + {_value(step, dtype)} * A(e0)"
    return pointwise("range", [], [writes(call)], Body(compute=_type(dtype), results=(result,), numbers=((1,),)))
