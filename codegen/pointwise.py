"""Launches of kernels in which every thread makes a few neighbouring elements of the outputs from those of the inputs.

Stages: operands of one shape (broadcasts and slices are strides) -> one index space in the first output's physical
order -> as many neighbours a thread as 16 bytes and the strides allow -> text. A thread reads all that it needs before
it writes, so an output may be an input's buffer wherever both lie alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snplan.codegen.call import Access
from snplan.codegen.launch import Argument, Launch, Param, Scalar, source
from snplan.codegen.operand import Ints, Operand
from snplan.codegen.scalars import item_bytes, quotient
from snplan.codegen.space import Space, in_vectors, index_type, space_of, vector_width
from snplan.ir import DType

BLOCK = 256
_VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What happens to one element, as C++: inputs are `a0`, `a1`, ...

    compute   the type `A`
    results   one expression for each output
    lines     statements before them
    setup     statements once a thread, before any thread leaves (they may synchronise the block)
    prepare   statements once for `V` neighbours
    numbers   strides over the axes, one tuple for each of `e0`, `e1`, ...: linear functions of the element's position
    extra     further parameters: C++ declaration and argument
    guard     what must hold for inputs to be read, over `e0_at`, ... of the first neighbour; `inside` is its value
    early     statements before the inputs that `shifts` names are read; `shifts` moves their offsets
    raw       inputs stay as stored, not widened to `A`
    limit     most neighbours a thread may make
    """

    compute: str
    results: tuple[str, ...]
    lines: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    numbers: tuple[Ints, ...] = ()
    extra: tuple[tuple[str, Argument], ...] = ()
    guard: str = ""
    early: tuple[str, ...] = ()
    shifts: tuple[tuple[int, str], ...] = ()
    raw: bool = False
    limit: int = 8


def pointwise(stem: str, inputs: Sequence[Access], outputs: Sequence[Access], body: Body) -> tuple[Launch, ...]:
    """The launch that computes `outputs`, all of one shape, which inputs are broadcast to; none without elements."""
    shape = outputs[0].operand.shape
    if outputs[0].operand.elements == 0:
        return ()
    operands = [x.operand for x in (*outputs, *inputs)]
    operands += [Operand(dtype=DType.UINT8, shape=shape, strides=strides) for strides in body.numbers]
    space = space_of(operands)
    # By the outputs' elements: vectors of channels, often of a wider type, come from the cache in two accesses.
    widest = max(item_bytes(x.operand.dtype) for x in outputs)
    width = vector_width(space, min(_VECTOR_BYTES // widest, body.limit))
    vectors = in_vectors(space, width)
    kind = index_type(operands, space.count)
    arguments = [x.argument for x in (*outputs, *inputs)]
    counts = [Scalar("int32" if kind == "int" else "int64", n) for n in (vectors.count, space.count)]
    return (
        Launch(
            source=source("pointwise", stem, **_text(inputs, outputs, body, vectors, width, kind)),
            grid=(quotient(vectors.count, BLOCK), 1, 1),
            block=(BLOCK, 1, 1),
            arguments=(*arguments, *counts, *(argument for _, argument in body.extra)),
        ),
    )


def _text(
    inputs: Sequence[Access], outputs: Sequence[Access], body: Body, space: Space, width: int, kind: str
) -> dict[str, Param]:
    names = [*(f"o{k}" for k in range(len(outputs))), *(f"a{k}" for k in range(len(inputs)))]
    offsets = [f"{name}_at" for name in names] + [f"e{k}_at" for k in range(len(body.numbers))]
    pointers = [f"{x.type}* p_{name}" for x, name in zip(outputs, names, strict=False)]
    pointers += [f"const {x.type}* p_{name}" for x, name in zip(inputs, names[len(outputs) :], strict=True)]
    shifts = dict(body.shifts)
    return {
        "compute": body.compute,
        "kind": kind,
        "width": width,
        "guarded": len(space.sizes) == 1 and width > 1,
        "parameters": ", ".join([*pointers, f"{kind} vectors", f"{kind} count", *(text for text, _ in body.extra)]),
        "offsets": tuple(space.code("i", offsets, kind)),
        "inputs": tuple(
            (
                f"a{k}",
                x.type,
                _moves(space, len(outputs) + k),
                body.raw or _as_stored(x.operand.dtype, body.compute),
                shifts.get(k, ""),
            )
            for k, x in enumerate(inputs)
        ),
        "outputs": tuple(
            (f"o{k}", x.type, result) for k, (x, result) in enumerate(zip(outputs, body.results, strict=True))
        ),
        "numbers": tuple(
            (f"e{k}", width > 1 and _moves(space, len(outputs) + len(inputs) + k)) for k in range(len(body.numbers))
        ),
        "setup": body.setup,
        "guard": body.guard,
        "early": body.early,
        "prepare": body.prepare,
        "lines": body.lines,
        "raw": body.raw,
    }


def _as_stored(dtype: DType, compute: str) -> bool:
    """Whether an operand keeps its own type: flags, and whole numbers beside floats, which may not fit the float."""
    return dtype is DType.BOOL or (compute in ("float", "double") and not dtype.is_float)


def _moves(space: Space, operand: int) -> bool:
    """Whether the operand moves along the innermost axis (else neighbours share one element)."""
    return bool(space.sizes) and space.strides[operand][-1] != 0
