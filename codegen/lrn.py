"""Builders of local response normalisation: a thread reads the channels around its own, which the cache holds."""

from __future__ import annotations

from collections.abc import Sequence

from snplan.codegen.call import Call, builds, reads, writes
from snplan.codegen.launch import Launch
from snplan.codegen.pointwise import Body, pointwise
from snplan.codegen.scalars import accumulator


def _number(value: float) -> str:
    return f"A({float(value)!r})"


def _channel(rank: int) -> tuple[int, ...]:
    """Strides of the number `e0`, which is the element's channel."""
    return tuple(int(i == 1) for i in range(rank))


def _base(call: Call, channel: str, result: str) -> tuple[str, ...]:
    """Statements that declare `result`, the denominator's base at a channel `distance` away from this one."""
    x, size = call.inputs[0], int(call.attrs["size"])
    factor = _number(call.attrs["alpha"] / size)
    return (
        f"A {result} = A(0);",
        f"for (int k = {-((size - 1) // 2)}; k <= {size // 2}; ++k) {{",
        f"const i64 near = e0 + {channel} + k;",
        f"if (near < 0 || near >= {x.shape[1]}) continue;",
        f"const A value = (A)wide(p_a0[a0_at + (I)(({channel} + k) * {x.strides[1]})]);",
        f"{result} += value * value;",
        "}",
        f"{result} = {_number(call.attrs['bias'])} + {factor} * {result};",
    )


@builds("lrn")
def lrn(call: Call) -> Sequence[Launch]:
    """x * base^-beta."""
    x = call.inputs[0]
    body = Body(
        compute=accumulator(x.dtype),
        lines=_base(call, "0", "base"),
        results=(f"a0 * power(base, {_number(-call.attrs['beta'])})",),
        numbers=(_channel(x.rank),),
        limit=1,
    )
    return pointwise(call.kind, [reads(call, 0)], [writes(call)], body)


@builds("lrn_grad")
def lrn_grad(call: Call) -> Sequence[Launch]:
    """dy * base^-beta - 2 alpha beta / size * x * (sum of dy y / base over channels whose windows hold this one)."""
    (x, dy), size = call.inputs, int(call.attrs["size"])
    factor = _number(2.0 * call.attrs["alpha"] * call.attrs["beta"] / size)
    power = _number(-call.attrs["beta"])
    lines = (
        *_base(call, "0", "base"),
        "A spread = A(0);",
        f"for (int n = {-(size // 2)}; n <= {(size - 1) // 2}; ++n) {{",
        f"if (e0 + n < 0 || e0 + n >= {x.shape[1]}) continue;",
        *_base(call, "n", "other"),
        f"const A out = (A)wide(p_a0[a0_at + (I)(n * {x.strides[1]})]) * power(other, {power});",
        f"const A slope = (A)wide(p_a1[a1_at + (I)(n * {dy.strides[1]})]);",
        "spread += slope * out / other;",
        "}",
    )
    result = f"a1 * power(base, {power}) - {factor} * a0 * spread"
    body = Body(compute=accumulator(x.dtype), lines=lines, results=(result,), numbers=(_channel(x.rank),), limit=1)
    return pointwise(call.kind, [reads(call, k) for k in range(2)], [writes(call)], body)
