"""DFT and STFT as products with matrices of cosines and sines, which are computed from ranges."""

from __future__ import annotations

import math

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.binary import binary
from snplan.frontend.lowering.linear import matmul
from snplan.frontend.lowering.movement import concat, padded, sliced, split, transpose
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.values import Unsupported, Value
from snplan.ir import DType

MOST_LENGTH = 4096
"""The longest transform: its matrices have the square of it as elements."""


def _range(ctx: LowerContext, dtype: DType, size: int, step: int = 1) -> Value:
    start = 0.0 if dtype.is_float else 0
    return ctx.one("range", [], {"dtype": str(dtype), "start": start, "step": step + start, "size": size})


def _waves(ctx: LowerContext, length: int, bins: int, dtype: DType) -> tuple[Value, Value]:
    """cos and sin of 2 pi k n / length, [length, bins]."""
    n = ctx.view(_range(ctx, DType.INT64, length), (length, 1))
    k = ctx.view(_range(ctx, DType.INT64, bins), (1, bins))
    turns = ctx.one("mod", [binary(ctx, "mul", n, k)], {"scalar": length, "fmod": False})
    angles = ctx.one("mul", [ctx.one("cast", [turns], {"to": str(dtype)})], {"scalar": 2 * math.pi / length})
    return ctx.one("cos", [angles]), ctx.one("sin", [angles])


def _transform(ctx: LowerContext, parts: list[Value], bins: int, *, inverse: bool) -> Value:
    """[..., bins, 2] of the real and maybe imaginary parts [..., length]."""
    length = parts[0].spec.shape[-1]
    cosines, sines = _waves(ctx, length, bins, parts[0].spec.dtype)
    real, imaginary = matmul(ctx, parts[0], cosines), matmul(ctx, parts[0], sines)
    if not inverse:
        imaginary = ctx.one("neg", [imaginary])
    if len(parts) == 2:
        other = matmul(ctx, parts[1], sines)
        real = binary(ctx, "sub" if inverse else "add", real, other)
        imaginary = binary(ctx, "add", imaginary, matmul(ctx, parts[1], cosines))
    both = concat(ctx, [ctx.view(part, (*part.spec.shape, 1)) for part in (real, imaginary)], real.spec.rank)
    return ctx.one("mul", [both], {"scalar": 1 / length}) if inverse else both


def _parts(ctx: LowerContext, node: NodeView, x: Value) -> list[Value]:
    """Real and, where there is one, imaginary part: the last axis, taken away."""
    count = x.spec.shape[-1]
    node.need(count in (1, 2), f"the last axis has {count} entries; 1 or 2 are needed")
    return [ctx.view(part, x.spec.shape[:-1]) for part in split(ctx, x, x.spec.rank - 1, [1] * count)]


@lowers("DFT")
def lower_dft(ctx: LowerContext, node: NodeView) -> None:
    """The transform along one axis, which is an input from opset 20 on."""
    x = node.value(0)
    rank = x.spec.rank
    if node.input_form("axis", 20, 2):
        axis = int(node.array_scalar(2, "axis")) if node.given(2) else -2
    else:
        axis = node.attr_int("axis", 1)
    axis = node.checked_axis(axis, rank)
    node.need(axis < rank - 1, "the axis is the one of real and imaginary parts")
    length = int(node.array_scalar(1, "dft_length")) if node.given(1) else x.spec.shape[axis]
    inverse, onesided = bool(node.attr_int("inverse", 0)), bool(node.attr_int("onesided", 0))
    if not 0 < length <= MOST_LENGTH or (inverse and onesided):
        raise Unsupported(f"length {length}, inverse {inverse}, onesided {onesided}")
    perm = [*(place for place in range(rank - 1) if place != axis), axis]
    parts = [_fitted(ctx, transpose(ctx, part, perm), length) for part in _parts(ctx, node, x)]
    y = _transform(ctx, parts, length // 2 + 1 if onesided else length, inverse=inverse)
    back = [*(perm.index(place) for place in range(rank - 1)), rank - 1]
    ctx.bind(0, transpose(ctx, y, back))


def _fitted(ctx: LowerContext, x: Value, length: int) -> Value:
    """The last axis cut or filled up with zeros to `length`."""
    size, rank = x.spec.shape[-1], x.spec.rank
    if size >= length:
        return sliced(ctx, x, [0] * rank, (*x.spec.shape[:-1], length), [1] * rank)
    return padded(ctx, x, [0] * rank, [0] * (rank - 1) + [length - size])


@lowers("STFT")
def lower_stft(ctx: LowerContext, node: NodeView) -> None:
    """Frames [batch, frames, length], weighted by the window, transformed."""
    x, window = node.value(0), node.optional(2)
    step = int(node.array_scalar(1, "frame_step"))
    length = int(node.array_scalar(3, "frame_length")) if node.given(3) else (window.spec.elements if window else 0)
    if not 0 < length <= MOST_LENGTH:
        raise Unsupported(f"frames of length {length}")
    signal = _parts(ctx, node, x if x.spec.rank == 3 else ctx.view(x, (*x.spec.shape, 1)))
    if len(signal) > 1:
        raise Unsupported("complex signals")
    samples = signal[0].spec.shape[1]
    node.need(step > 0 and samples >= length, f"{samples} samples, frames of {length}, a step of {step}")
    frames = (samples - length) // step + 1
    start = ctx.view(_range(ctx, DType.INT64, frames, step), (frames, 1))
    places = binary(ctx, "add", start, ctx.view(_range(ctx, DType.INT64, length), (1, length)))
    cut = ctx.one("gather", [signal[0], places], {"axis": 1})
    if window is not None:
        cut = binary(ctx, "mul", cut, window)
    bins = length // 2 + 1 if node.attr_int("onesided", 1) else length
    ctx.bind(0, _transform(ctx, [cut], bins, inverse=False))
