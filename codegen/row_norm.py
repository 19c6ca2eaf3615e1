"""Builders of layer and RMS normalisation. The forward reads x once where a row fits into registers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from snplan.codegen.call import Access, Call, builds, reads, writes
from snplan.codegen.fold import Fold, fold
from snplan.codegen.launch import Argument, Launch, Scalar
from snplan.codegen.operand import Operand, broadcast, without
from snplan.codegen.rows import RowBody, Stage, Tensors, rows
from snplan.codegen.scalars import SIZES, compute_type


class _Norm:
    """A layer or RMS norm over the axes from `axis`: what its kernels share."""

    def __init__(self, call: Call) -> None:
        self.call, self.x = call, call.inputs[0]
        self.axis = call.attrs["axis"]
        self.axes = list(range(self.axis, self.x.rank))
        self.compute = compute_type(x.dtype for x in call.inputs)
        length = prod(self.x.shape[self.axis :])
        self.extra: tuple[tuple[str, Argument], ...] = (("i64 elements", Scalar("int64", max(length, 1))),)
        self.epsilon = f"A({float(call.attrs['epsilon'])!r})"
        self.centred = call.kind.startswith("layer")

    def weight(self, index: int) -> Access:
        """A vector of the row's shape, the same for all rows."""
        return reads(self.call, index, broadcast(self.call.inputs[index], self.x.shape))

    def row(self, operand: Operand) -> Operand:
        """A statistic of each row, without the row's axes."""
        return without(operand, self.axes)


@builds("layer_norm", "rms_norm")
def row_norm(call: Call) -> Sequence[Launch]:
    """The mean, then the spread around it (no cancellation), then y."""
    norm = _Norm(call)
    a = norm.compute
    inverse = f"const A inverse = inverse_root(t{int(norm.centred)}.v / A(elements) + {norm.epsilon});"
    if norm.centred:
        average = Stage(monoid=f"Sum<{a}>", values=("a0",), after=("const A mean = t0.v / A(elements);",))
        spread = Stage(monoid=f"Sum<{a}>", values=("(a0 - mean) * (a0 - mean)",), after=(inverse,))
        stages: tuple[Stage, ...] = (average, spread)
    else:
        stages = (Stage(monoid=f"Sum<{a}>", values=("a0 * a0",), after=(inverse,)),)
    value = "(a0 - mean) * inverse" if norm.centred else "a0 * inverse"
    weights = [norm.weight(k) for k in range(1, len(call.inputs))]
    scaled = (value, f"{value} * l0", f"{value} * l0 + l1")[len(weights)]
    statistics = [writes(call, k, norm.row(call.outputs[k])) for k in range(1, len(call.outputs))]
    body = RowBody(
        compute=a,
        stages=stages,
        results=(scaled,),
        row_results=("mean", "inverse") if norm.centred else ("inverse",),
        extra=norm.extra,
    )
    tensors = Tensors(
        inputs=(reads(call, 0),), late=tuple(weights), outputs=(writes(call),), row_outputs=tuple(statistics)
    )
    return rows(call.kind, tensors, norm.axes, body)


@builds("layer_norm_grad", "rms_norm_grad")
def row_norm_grad(call: Call) -> Sequence[Launch]:
    """Gradients of the weights first, for dx may overwrite dy; then dx, one row at a time."""
    norm = _Norm(call)
    scaled, dy = bool(call.attrs["has_scale"]), len(call.inputs) - 1
    statistics = [reads(call, k, norm.row(call.inputs[k])) for k in range(1 + scaled, dy)]
    value = "(a0 - (A)b0) * (A)b1" if norm.centred else "a0 * (A)b0"
    gradient, inverse = ("a1 * a2" if scaled else "a1"), ("(A)b1" if norm.centred else "(A)b0")
    level = " - t0.w / A(elements)" if norm.centred else ""
    body = RowBody(
        compute=norm.compute,
        stages=(Stage(monoid=f"Sum2<{norm.compute}>", values=(f"{gradient} * ({value})", gradient)),),
        results=(f"({gradient} - {value} * (t0.v / A(elements)){level}) * {inverse}",),
        extra=norm.extra,
    )
    inputs = [reads(call, 0), reads(call, dy), *([norm.weight(1)] if scaled else [])]
    tensors = Tensors(inputs=tuple(inputs), outputs=(writes(call),), row_inputs=tuple(statistics))
    return (*_weights(norm, dy), *rows(call.kind, tensors, norm.axes, body))


def _weights(norm: _Norm, dy: int) -> Sequence[Launch]:
    """dscale, and dbias where there is one: sums over all rows."""
    call = norm.call
    if len(call.outputs) == 1:
        return ()
    statistics = [reads(call, k, broadcast(call.inputs[k], norm.x.shape)) for k in range(2, dy)]
    value = "(a0 - a2) * a3" if norm.centred else "a0 * a2"
    monoid, count = ("Sum2", 2) if len(call.outputs) == 3 else ("Sum", 1)
    body = Fold(
        compute=norm.compute,
        monoid=f"{monoid}<{norm.compute}>",
        size=count * SIZES[norm.compute],
        values=(f"a1 * ({value})", "a1")[:count],
        results=("t.v", "t.w")[:count],
    )
    inputs = [reads(call, 0), reads(call, dy), *statistics]
    outputs = [writes(call, k) for k in range(1, 1 + count)]
    return fold("norm_weights", inputs, list(range(norm.axis)), outputs, body)
