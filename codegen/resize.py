"""Builders of `resize` and its gradient. Positions are computed in double, step by step as other executors do, so that
"nearest" takes the same elements; the gradient gathers from the results that an element was mixed into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from snplan.codegen.call import Call, builds, reads, writes
from snplan.codegen.launch import Launch, Scalar, source
from snplan.codegen.move import moved
from snplan.codegen.operand import Operand
from snplan.codegen.scalars import accumulator, item_bytes, quotient
from snplan.codegen.space import channel_width, coordinate_code, linear

_BLOCK = 256
_ROUNDING = {
    "round_prefer_floor": "ceil(x - 0.5)",
    "round_prefer_ceil": "floor(x + 0.5)",
    "floor": "floor(x)",
    "ceil": "ceil(x)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """A resized axis. The position in x of result `i` is `position` as C++, and as a line `slope * i + start`."""

    axis: int
    size: int
    out: int
    position: str
    slope: float
    start: float


def _axis(axis: int, size: int, out: int, scale: float, mode: str) -> _Axis:
    if mode == "align_corners":
        slope = (size - 1) / (out - 1) if out > 1 else 0.0
        return _Axis(axis=axis, size=size, out=out, position=f"i * {slope!r}", slope=slope, start=0.0)
    if mode == "pytorch_half_pixel" and out <= 1:
        return _Axis(axis=axis, size=size, out=out, position="i * 0.0", slope=0.0, start=0.0)
    half = "i + 0.5" if mode != "asymmetric" else "i"
    position, start = f"({half}) / {scale!r}", 0.0 if mode == "asymmetric" else 0.5 / scale
    if mode == "half_pixel_symmetric":
        centre = size / 2 * (1 - out / (scale * size))
        position, start = f"{centre!r} + {position} - 0.5", start + centre - 0.5
    elif mode in ("half_pixel", "pytorch_half_pixel"):
        position, start = f"{position} - 0.5", start - 0.5
    return _Axis(axis=axis, size=size, out=out, position=position, slope=1.0 / scale, start=start)


def _axes(attrs: dict[str, Any], shape: Sequence[int]) -> list[_Axis]:
    """The axes that change."""
    sizes = attrs["sizes"]
    scales = attrs.get("scales") or [o / n for n, o in zip(shape, sizes, strict=True)]
    mode = attrs.get("coordinate_mode", "half_pixel")
    rows = enumerate(zip(shape, sizes, scales, strict=True))
    return [_axis(i, n, o, float(s), mode) for i, (n, o, s) in rows if n != o or s != 1]


def _launch(call: Call, x: Operand, y: Operand, axes: list[_Axis], *, gradient: bool) -> Sequence[Launch]:
    """A thread for each element (or group of neighbouring channels) of the result, which is dx in the gradient."""
    attrs = call.attrs
    result, read = (x, y) if gradient else (y, x)
    limit = 16 // item_bytes(x.dtype)
    channels = x.rank > 1 and all(a.axis != 1 for a in axes)
    width = channel_width([x, y], limit) if channels else 1
    still = {a.axis for a in axes}
    names = [f"c{i}" for i in range(x.rank)]
    fixed = tuple(0 if i in still else s for i, s in enumerate(read.strides))
    text = source(
        "resize_grad" if gradient else "resize",
        call.kind,
        type=writes(call).type,
        compute=accumulator(x.dtype),
        width=width,
        coordinates=tuple(coordinate_code(result, width, "i64")),
        base=linear(names, fixed, read.offset),
        place=linear(names, result.strides, result.offset),
        axes=tuple((a.axis, a.size, a.out, a.position, a.slope, a.start, read.strides[a.axis]) for a in axes),
        mode=attrs["mode"],
        rounding=_ROUNDING[attrs.get("nearest_mode") or "round_prefer_floor"],
        cubic=float(attrs.get("cubic_coeff", -0.75)),
        exclude=attrs["mode"] == "cubic" and bool(attrs.get("exclude_outside")),
    )
    count = result.elements // width
    arguments = (writes(call).argument, reads(call, 0).argument, Scalar("int64", count))
    return (Launch(source=text, grid=(quotient(count, _BLOCK), 1, 1), block=(_BLOCK, 1, 1), arguments=arguments),)


@builds("resize")
def resize(call: Call) -> Sequence[Launch]:
    """x resized to `sizes`."""
    x, y = call.inputs[0], call.outputs[0]
    axes = _axes(dict(call.attrs), x.shape)
    if y.elements == 0:
        return ()
    if not axes:
        return moved("resize", reads(call, 0, raw=True), writes(call, raw=True))
    return _launch(call, x, y, axes, gradient=False)


@builds("resize_grad")
def resize_grad(call: Call) -> Sequence[Launch]:
    """The transpose of the linear map."""
    dy, dx = call.inputs[0], call.outputs[0]
    axes = _axes(dict(call.attrs), dx.shape)
    if dx.elements == 0:
        return ()
    if not axes:
        return moved("resize_grad", reads(call, 0, raw=True), writes(call, raw=True))
    return _launch(call, dx, dy, axes, gradient=True)
