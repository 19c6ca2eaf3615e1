"""Builders of `pad` and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from snplan.codegen.call import Call, builds, reads, writes
from snplan.codegen.launch import Launch
from snplan.codegen.move import moved
from snplan.codegen.operand import Operand
from snplan.codegen.pointwise import Body, pointwise
from snplan.codegen.scalars import accumulator, c_type, literal
from snplan.ir import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """One padded axis: its size before, pads at both ends (negative ones crop), and its coordinate's name."""

    axis: int
    size: int
    before: int
    after: int
    name: str

    @property
    def kept(self) -> tuple[int, int]:
        """First entry that cropping leaves, and how many it leaves."""
        first = max(-self.before, 0)
        return first, self.size - first - max(-self.after, 0)


def _padded_axes(shape: Sequence[int], before: Sequence[int], after: Sequence[int]) -> list[_Axis]:
    found = [(i, n, b, a) for i, (n, b, a) in enumerate(zip(shape, before, after, strict=True)) if b or a]
    return [_Axis(axis=i, size=n, before=b, after=a, name=f"e{k}") for k, (i, n, b, a) in enumerate(found)]


def _unit_strides(axes: Sequence[_Axis], rank: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(i == a.axis) for i in range(rank)) for a in axes)


def _fill(value: Any, dtype: DType) -> str:
    """The fill value as it is stored, in the type that carries elements."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    kind = accumulator(dtype)
    return f"narrow<{c_type(dtype)}>({literal(float(value) if dtype.is_float else int(value), kind)})"


@builds("pad")
def pad(call: Call) -> Sequence[Launch]:
    """Padded, and cropped where a pad is negative."""
    x, y = call.inputs[0], call.outputs[0]
    axes = _padded_axes(x.shape, call.attrs["before"], call.attrs["after"])
    if not axes:
        return moved("pad", reads(call, 0, raw=True), writes(call, raw=True))
    if call.attrs.get("mode", "constant") == "constant":
        return _constant(call, axes, _fill(call.attrs.get("value") or 0, y.dtype))
    mode = call.attrs["mode"]
    places = " + ".join(
        f"pad_{mode}(e{k} - {max(a.before, 0)}, {a.kept[1]}) * {x.strides[a.axis]}" for k, a in enumerate(axes)
    )
    first = sum(a.kept[0] * x.strides[a.axis] for a in axes)
    body = Body(
        compute="int",
        results=(f"p_a0[a0_at + (I)({places} + {first})]",),
        raw=True,
        numbers=_unit_strides(axes, y.rank),
        limit=1,
    )
    return pointwise("pad", [reads(call, 0, _still(x, axes, y.shape), raw=True)], [writes(call, raw=True)], body)


def _still(x: Operand, axes: Sequence[_Axis], shape: tuple[int, ...]) -> Operand:
    """`x` over `shape`, at entry 0 of the padded axes."""
    padded = {a.axis for a in axes}
    return replace(x, shape=shape, strides=tuple(0 if i in padded else s for i, s in enumerate(x.strides)))


def _constant(call: Call, axes: Sequence[_Axis], fill: str) -> Sequence[Launch]:
    """Elements that lie in x once the pads are taken off; the fill value elsewhere, where nothing is read."""
    x, y = call.inputs[0], call.outputs[0]
    offset = x.offset - sum(a.before * x.strides[a.axis] for a in axes)
    guard = " && ".join(f"e{k}_at >= {a.before} && e{k}_at < {a.before + a.size}" for k, a in enumerate(axes))
    innermost = min((i for i in range(y.rank) if y.shape[i] != 1), key=lambda i: abs(y.strides[i]), default=0)
    body = Body(
        compute="int",
        results=(f"(inside ? a0 : {fill})",),
        raw=True,
        guard=guard,
        numbers=_unit_strides(axes, y.rank),
        # Neighbours share one test only where the innermost axis is not padded.
        limit=1 if innermost in {a.axis for a in axes} else 8,
    )
    seen = replace(x, shape=y.shape, offset=offset)
    typed = replace(reads(call, 0, seen), type=c_type(x.dtype))
    return pointwise("pad", [typed], [replace(writes(call), type=c_type(y.dtype))], body)


@builds("pad_grad")
def pad_grad(call: Call) -> Sequence[Launch]:
    """dy at each position's own place, and where padding repeated it."""
    dy, dx = call.inputs[0], call.outputs[0]
    axes = _padded_axes(dx.shape, call.attrs["before"], call.attrs["after"])
    if not axes:
        return moved("pad_grad", reads(call, 0, raw=True), writes(call, raw=True))
    mode = call.attrs.get("mode", "constant")
    if mode == "constant":
        turned = [replace(a, size=dy.shape[a.axis], before=-a.before, after=-a.after) for a in axes]
        return _constant(call, turned, _fill(0, dx.dtype))
    compute = accumulator(dx.dtype)
    body = Body(
        compute=compute,
        lines=_gathered(dy, axes, mode),
        results=("sum",),
        numbers=_unit_strides(axes, dx.rank),
        limit=1,
    )
    return pointwise("pad_grad", [reads(call, 0, _still(dy, axes, dx.shape))], [writes(call)], body)


def _gathered(dy: Operand, axes: Sequence[_Axis], mode: str) -> tuple[str, ...]:
    """Statements that sum dy over the positions that padding filled from this one."""
    lines = ["A sum = A(0);"]
    for k, a in enumerate(axes):
        first, kept = a.kept
        before, after = max(a.before, 0), max(a.after, 0)
        tries = before + after + 1 if mode == "edge" else 3
        arguments = f"e{k} - {first}, n{k}, {kept}, {before}, {after}"
        lines.append(f"for (int n{k} = 0; n{k} < {tries}; ++n{k}) {{")
        lines.append(f"const i64 p{k} = unpad_{mode}({arguments});")
        lines.append(f"if (p{k} < 0) continue;")
    places = " + ".join(f"p{k} * {dy.strides[a.axis]}" for k, a in enumerate(axes))
    lines.append(f"sum += (A)wide(p_a0[a0_at + (I)({places})]);")
    return (*lines, *("}" for _ in axes))
