"""Builders of optimiser updates: one kernel a parameter, every tensor read and written once, in place."""

from __future__ import annotations

from collections.abc import Sequence

from snplan.codegen.call import Call, builds, reads, writes
from snplan.codegen.launch import Control, Launch
from snplan.codegen.pointwise import Body, pointwise
from snplan.codegen.scalars import compute_type


def _number(value: float) -> str:
    return f"A({float(value)!r})"


def _decayed(call: Call) -> str:
    """The gradient with weight decay."""
    decay = call.attrs.get("weight_decay", 0.0)
    return f"(a1 + {_number(decay)} * a0)" if decay else "a1"


def _updated(call: Call, body: Body) -> Sequence[Launch]:
    inputs = [reads(call, k) for k in range(len(call.inputs))]
    return pointwise(call.kind, inputs, [writes(call, k) for k in range(len(call.outputs))], body)


def _compute(call: Call) -> str:
    return compute_type(x.dtype for x in call.inputs)


@builds("sgd_update")
def sgd(call: Call) -> Sequence[Launch]:
    """w - lr * g."""
    result = f"a0 - {_number(call.attrs['lr'])} * {_decayed(call)}"
    return _updated(call, Body(compute=_compute(call), results=(result,)))


@builds("momentum_update")
def momentum(call: Call) -> Sequence[Launch]:
    """m' = momentum * m + g, w' = w - lr * m'."""
    after = f"const A after = {_number(call.attrs['momentum'])} * a2 + {_decayed(call)};"
    results = (f"a0 - {_number(call.attrs['lr'])} * after", "after")
    return _updated(call, Body(compute=_compute(call), lines=(after,), results=results))


@builds("adam_update")
def adam(call: Call) -> Sequence[Launch]:
    """Adam, bias-corrected by the step number in the control words, with decoupled decay (AdamW).

    One thread of a block raises the betas to the step number, in double, for all of them.
    """
    attrs = call.attrs
    beta1, beta2, lr = float(attrs["beta1"]), float(attrs["beta2"]), float(attrs["lr"])
    decay = float(attrs.get("weight_decay") or 0.0)
    setup = (
        "__shared__ A shared_rate, shared_root;",
        "if (threadIdx.x == 0) {",
        f"  shared_rate = A({lr!r} / (1.0 - pow({beta1!r}, (double)control->step)));",
        f"  shared_root = A(sqrt(1.0 - pow({beta2!r}, (double)control->step)));",
        "}",
        "__syncthreads();",
        "const A rate = shared_rate, root = shared_root;",
    )
    lines = (
        f"const A mean = {_number(beta1)} * a2 + {_number(1.0 - beta1)} * a1;",
        f"const A square = {_number(beta2)} * a3 + {_number(1.0 - beta2)} * a1 * a1;",
        f"const A kept = {f'a0 - {_number(lr * decay)} * a0' if decay else 'a0'};",
    )
    result = f"kept - rate * mean / (sqrt(square) / root + {_number(attrs['epsilon'])})"
    body = Body(
        compute=_compute(call),
        setup=setup,
        lines=lines,
        results=(result, "mean", "square"),
        extra=(("const Control* control", Control()),),
    )
    return _updated(call, body)
