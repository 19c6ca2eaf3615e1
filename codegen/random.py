"""Builders of ops that draw random numbers: bit for bit those of `snplan.runtime.rng`.

A thread that makes four neighbours draws their block of four words once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from snplan.codegen.call import Call, builds, reads, writes
from snplan.codegen.launch import Argument, Control, Launch, Scalar
from snplan.codegen.operand import Operand, row_major
from snplan.codegen.pointwise import Body, pointwise
from snplan.codegen.rows import RowBody, Tensors
from snplan.codegen.scalars import compute_type
from snplan.ir import DType

_WORDS = ("const Words words = random_words(control, stream, (u64)e0_at >> 2);",)
_WORD = "const u32 word = V == 4 ? words.v[j] : pick(words, (int)(e0 & 3));"


def drawing(call: Call, body: Body) -> Body:
    """`body`, whose lines may use `word`, the random word of the output's element."""
    return replace(
        body,
        lines=(_WORD, *body.lines),
        prepare=_WORDS,
        numbers=(row_major(call.outputs[0].shape),),
        extra=(("const Control* control", Control()), ("u32 stream", Scalar("uint32", call.stream & 0xFFFFFFFF))),
        limit=4,
    )


def drawing_rows(call: Call, body: RowBody, tensors: Tensors) -> tuple[RowBody, Tensors]:
    """The same for a row kernel."""
    drawn = drawing(call, Body(compute=body.compute, results=()))
    shape = call.outputs[0].shape
    numbers = Operand(dtype=DType.UINT8, shape=shape, strides=row_major(shape))
    lines, limit = (*drawn.lines, *body.lines), drawn.limit
    row_body = replace(body, lines=lines, prepare=drawn.prepare, extra=drawn.extra, limit=limit)
    return row_body, replace(tensors, numbers=numbers)


def kept(attrs: Mapping[str, Any], names: Sequence[str]) -> str:
    """The expression of a dropout, whose element has the random word `word`."""
    ratio = attrs["ratio"]
    return f"((word >> 8) >= {ceil(ratio * 2**24)}u ? {names[0]} * A({1.0 / (1.0 - ratio)!r}) : A(0))"


def _drawn(call: Call, compute: str, result: str, lines: tuple[str, ...] = (), *extra: tuple[str, Argument]) -> Body:
    """A body that draws for each element of the output, by its row-major number."""
    return Body(
        compute=compute,
        results=(result,),
        lines=lines,
        prepare=_WORDS,
        numbers=(row_major(call.outputs[0].shape),),
        extra=(
            ("const Control* control", Control()),
            ("u32 stream", Scalar("uint32", call.stream & 0xFFFFFFFF)),
            *extra,
        ),
        limit=4,
    )


def _limit(call: Call) -> tuple[str, Argument]:
    """The parameter `limit`: an element is kept where 24 bits of its word reach it."""
    return "u32 limit", Scalar("uint32", ceil(call.attrs["ratio"] * 2**24))


@builds("dropout", "dropout_grad")
def dropout(call: Call) -> Sequence[Launch]:
    """Kept elements times 1 / (1 - ratio), 0 elsewhere; the backward is the same map."""
    compute, ratio = compute_type([call.inputs[0].dtype]), call.attrs["ratio"]
    factor = Scalar("float64", 1.0 / (1.0 - ratio) if ratio < 1 else 0.0)
    result = "(word >> 8) >= limit ? a0 * A(factor) : A(0)"
    body = _drawn(call, compute, result, (_WORD,), _limit(call), ("double factor", factor))
    return pointwise("dropout", [reads(call, 0)], [writes(call)], body)


@builds("dropout_mask")
def dropout_mask(call: Call) -> Sequence[Launch]:
    """Which elements the dropout of the same stream keeps."""
    return pointwise(call.kind, [], [writes(call)], _drawn(call, "int", "(word >> 8) >= limit", (_WORD,), _limit(call)))


@builds("random_uniform")
def random_uniform(call: Call) -> Sequence[Launch]:
    """`low + (high - low) * u`, each step rounded in double."""
    low, high = float(call.attrs["low"]), float(call.attrs["high"])
    result = f"exact_sum({low!r}, exact_product({high - low!r}, unit(word)))"
    return pointwise(call.kind, [], [writes(call)], _drawn(call, "double", result, (_WORD,)))


@builds("random_normal")
def random_normal(call: Call) -> Sequence[Launch]:
    """`mean + scale * z`, each step rounded in double."""
    mean, scale = float(call.attrs["mean"]), float(call.attrs["scale"])
    result = f"exact_sum({mean!r}, exact_product({scale!r}, normal(words, V == 4 ? j : (int)(e0 & 3))))"
    return pointwise(call.kind, [], [writes(call)], _drawn(call, "double", result))
