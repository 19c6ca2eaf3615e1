"""Builders of reductions, arg-extrema and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snplan.codegen.call import Access, Call, builds, reads, writes
from snplan.codegen.fold import Fold, fold
from snplan.codegen.launch import Launch, Workspace
from snplan.codegen.operand import Operand, broadcast, row_major, with_ones, without
from snplan.codegen.pointwise import Body, pointwise
from snplan.codegen.scalars import C_TYPES, SIZES, accumulator, literal
from snplan.ir import DType

WORK = {"float": DType.FLOAT32, "double": DType.FLOAT64}


def reduced(y: Operand, axes: Sequence[int], rank: int) -> Operand:
    """The result `y` of a reduction of `rank` axes, without the reduced ones (kept or not)."""
    return without(y, axes) if y.rank == rank else y


def stretched(y: Operand, axes: Sequence[int], shape: tuple[int, ...]) -> Operand:
    """The result `y` of a reduction, repeated along the reduced axes to `shape`."""
    return broadcast(with_ones(y, axes, len(shape)), shape)


def scratch(dtype: DType, shape: tuple[int, ...], offset: int = 0) -> Access:
    """A tensor in the op's workspace."""
    tensor = Operand(dtype=dtype, shape=shape, strides=row_major(shape))
    return Access(argument=Workspace(offset), operand=tensor, type=C_TYPES[dtype])


def _end(dtype: DType, kind: str, *, lowest: bool) -> str:
    if dtype.is_float:
        return f"A({'-' if lowest else ''}infinity())"
    signed = not dtype.startswith("uint")
    low, high = (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1) if signed else (0, 2**dtype.bits - 1)
    return literal(low if lowest else high)


def _fold_of(kind: str, dtype: DType) -> Fold:
    """The fold of a reduction kind."""
    a = accumulator(dtype)
    size = SIZES[a]
    mean = "t.v / A(count)" if dtype.is_float else "(double)t.v / (double)count"
    match kind:
        case "reduce_sum":
            monoid, result, start = f"Sum<{a}>", "t.v", ""
        case "reduce_mean":
            monoid, result, start = f"Sum<{a}>", mean, ""
        case "reduce_prod":
            monoid, result, start = f"Product<{a}>", "t.v", ""
        case "reduce_max":
            monoid, result, start = f"Largest<{a}>", "t.v", _end(dtype, a, lowest=True)
        case "reduce_min":
            monoid, result, start = f"Smallest<{a}>", "t.v", _end(dtype, a, lowest=False)
        case _:
            monoid, result, start, size = f"LogSum<{a}>", "t.top + log(t.sum)", "", 2 * size
    return Fold(compute=a, monoid=monoid, size=size, values=("a0",), results=(result,), start=start)


@builds("reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min", "reduce_log_sum_exp")
def reduction(call: Call) -> Sequence[Launch]:
    """One fold."""
    x, axes = call.inputs[0], call.attrs["axes"]
    y = writes(call, 0, reduced(call.outputs[0], axes, x.rank))
    return fold(call.kind, [reads(call, 0)], axes, [y], _fold_of(call.kind, x.dtype))


@builds("arg_max", "arg_min")
def arg_extremum(call: Call) -> Sequence[Launch]:
    """One fold of (value, index) pairs."""
    x, axis = call.inputs[0], call.attrs["axis"]
    a = accumulator(x.dtype)
    flags = f"{str(call.kind == 'arg_max').lower()}, {str(bool(call.attrs.get('last'))).lower()}"
    body = Fold(compute=a, monoid=f"Best<{a}, {flags}>", size=16, values=("a0",), results=("t.at",))
    y = writes(call, 0, reduced(call.outputs[0], [axis], x.rank))
    return fold(call.kind, [reads(call, 0)], [axis], [y], body)


@builds("reduce_log_sum_exp_grad")
def log_sum_exp_grad(call: Call) -> Sequence[Launch]:
    """dy * exp(x - y), elementwise."""
    x, y, dy = call.inputs
    axes = call.attrs["axes"]
    inputs = [reads(call, 0), *(reads(call, k, stretched(v, axes, x.shape)) for k, v in ((1, y), (2, dy)))]
    body = Body(compute=accumulator(x.dtype), results=("a2 * exp(a0 - a1)",))
    return pointwise(call.kind, inputs, [writes(call)], body)


@builds("reduce_extremum_grad")
def extremum_grad(call: Call) -> Sequence[Launch]:
    """Ties are counted first, into the workspace; then each of them gets its share."""
    x, axes = call.inputs[0], call.attrs["axes"]
    a = accumulator(x.dtype)
    y, dy = (reads(call, k, stretched(call.inputs[k], axes, x.shape)) for k in (1, 2))
    kept = without(x, axes).shape
    ties = scratch(WORK[a], kept)
    counting = Fold(
        compute=a, monoid=f"Sum<{a}>", size=SIZES[a], values=("(a0 == a1 ? A(1) : A(0))",), results=("t.v",)
    )
    spread = Access(argument=ties.argument, operand=stretched(ties.operand, axes, x.shape), type=ties.type)
    share = Body(compute=a, results=("(a0 == a1 ? a2 / a3 : A(0))",))
    return with_scratch(
        ties.operand.elements * SIZES[a],
        fold(call.kind, [reads(call, 0), y], axes, [ties], counting, ties.operand.elements * SIZES[a]),
        pointwise(call.kind, [reads(call, 0), y, dy, spread], [writes(call)], share),
    )


@builds("reduce_prod_grad")
def prod_grad(call: Call) -> Sequence[Launch]:
    """From the product of all that is not zero, and the number of zeros: right also where x has zeros."""
    x, axes = call.inputs[0], call.attrs["axes"]
    dy = reads(call, 1, stretched(call.inputs[1], axes, x.shape))
    kept = without(x, axes)
    held = kept.elements * 8
    parts = [scratch(DType.FLOAT64, kept.shape), scratch(DType.FLOAT64, kept.shape, held)]
    factors = Fold(compute="double", monoid="Factors<double>", size=16, values=("a0",), results=("t.v", "t.zeros"))
    spread = [Access(argument=p.argument, operand=stretched(p.operand, axes, x.shape), type=p.type) for p in parts]
    others = "(a3 == A(0) ? a2 / a0 : a3 == A(1) && a0 == A(0) ? a2 : A(0))"
    return with_scratch(
        2 * held,
        fold(call.kind, [reads(call, 0)], axes, parts, factors, 2 * held),
        pointwise(
            call.kind,
            [reads(call, 0), dy, *spread],
            [writes(call)],
            Body(compute="double", results=(f"a1 * {others}",)),
        ),
    )


def with_scratch(held: int, *groups: Sequence[Launch]) -> tuple[Launch, ...]:
    """All launches, each of which touches at least the first `held` bytes of the workspace."""
    return tuple(replace(launch, workspace=max(launch.workspace, held)) for group in groups for launch in group)
