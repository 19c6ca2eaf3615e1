"""Builders of ops along lines: running sums, and the k best."""

from __future__ import annotations

from collections.abc import Sequence

from snplan.codegen.call import Access, Call, builds, reads, writes
from snplan.codegen.launch import Launch, Param, Scalar, source
from snplan.codegen.operand import without
from snplan.codegen.scalars import accumulator, quotient
from snplan.codegen.space import space_of

_BLOCK = 256
_SHORT_LINE = 64


def _along(call: Call, template: str, accesses: dict[str, Access], outputs: int, **params: Param) -> Sequence[Launch]:
    """A launch with a group of threads for each line along `axis`; the first `outputs` accesses are written."""
    axis = call.attrs["axis"]
    x = call.inputs[0]
    kept = space_of([without(a.operand, [axis]) for a in accesses.values()])
    if kept.count == 0 or x.shape[axis] == 0 or _any_empty(accesses):
        return ()
    near = abs(x.strides[axis]) <= min((abs(s) for s in kept.strides[-1]), default=2**63)
    group = _BLOCK if near and x.shape[axis] > _SHORT_LINE else 1
    parameters = [
        f"{'' if k < outputs else 'const '}{a.type}* p_{name}" for k, (name, a) in enumerate(accesses.items())
    ]
    text = source(
        template,
        call.kind,
        group=group,
        parameters=", ".join([*parameters, "i64 lines", "i64 length"]),
        kept=tuple(kept.code("o", [f"{name}_line" for name in accesses], "i64")),
        types=tuple((name, a.type, a.operand.strides[axis]) for name, a in accesses.items()),
        **params,
    )
    grid = (quotient(kept.count, _BLOCK // group), 1, 1)
    numbers = (Scalar("int64", kept.count), Scalar("int64", x.shape[axis]))
    arguments = (*(a.argument for a in accesses.values()), *numbers)
    return (Launch(source=text, grid=grid, block=(_BLOCK, 1, 1), arguments=arguments),)


def _any_empty(accesses: dict[str, Access]) -> bool:
    """Whether any operand has no elements."""
    return any(a.operand.elements == 0 for a in accesses.values())


@builds("cum_sum")
def cum_sum(call: Call) -> Sequence[Launch]:
    """Running sums, in double for floats: a block walks a line in chunks, or a thread each line."""
    dtype = call.inputs[0].dtype
    return _along(
        call,
        "cum_sum",
        {"y": writes(call), "x": reads(call, 0)},
        1,
        compute="double" if dtype.is_float else accumulator(dtype),
        exclusive=bool(call.attrs.get("exclusive")),
        reverse=bool(call.attrs.get("reverse")),
    )


@builds("top_k")
def top_k(call: Call) -> Sequence[Launch]:
    """k passes over a line, each of which finds the best of what comes after the one before: no memory, any k."""
    accesses = {"y": writes(call, 0), "at": writes(call, 1), "x": reads(call, 0)}
    largest = bool(call.attrs.get("largest", True))
    return _along(
        call, "top_k", accesses, 2, compute=accumulator(call.inputs[0].dtype), largest=largest, k=int(call.attrs["k"])
    )
