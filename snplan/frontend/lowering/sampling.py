"""GridSample and RoiAlign: images read between their pixels, as gathers of corners and weights that sum them.

The image becomes a table [N * H * W, C], so that one `gather` reads a pixel's channels. Gradients reach the image by
the gather and the positions by the weights, which is what bilinear interpolation asks for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.binary import binary
from snplan.frontend.lowering.movement import split, transpose
from snplan.frontend.lowering.reduce import reduce
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.lowering.shape import cast
from snplan.frontend.node import NodeView
from snplan.frontend.values import Unsupported, Value
from snplan.ir import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Pixels as rows of a table, with where the rows of each point's image start (int64, broadcasts to the points)."""

    table: Value
    start: Value
    height: int
    width: int


def plus(ctx: LowerContext, x: Value, number: float) -> Value:
    """`x + number`."""
    return ctx.one("add", [x], {"scalar": number}) if number else x


def times(ctx: LowerContext, x: Value, number: float) -> Value:
    """`x * number`."""
    return ctx.one("mul", [x], {"scalar": number}) if number != 1 else x


def _table(ctx: LowerContext, x: Value) -> Value:
    n, c, h, w = x.spec.shape
    return ctx.view(transpose(ctx, x, (0, 2, 3, 1)), (n * h * w, c))


def _pixels(ctx: LowerContext, image: Image, y: Value, x: Value) -> Value:
    """Channels [..., C] of the pixels at whole positions, which are brought inside first."""
    rows = cast(ctx, ctx.one("clip", [y], {"min": 0.0, "max": float(image.height - 1)}), DType.INT64)
    columns = cast(ctx, ctx.one("clip", [x], {"min": 0.0, "max": float(image.width - 1)}), DType.INT64)
    place = binary(ctx, "add", times(ctx, rows, image.width), columns)
    return ctx.one("gather", [image.table, binary(ctx, "add", place, image.start)], {"axis": 0})


def _weighted(ctx: LowerContext, pixels: Value, weight: Value) -> Value:
    return ctx.one("mul", [pixels, ctx.view(weight, (*weight.spec.shape, 1))])


def _bilinear(ctx: LowerContext, image: Image, y: Value, x: Value, *, zeros: bool) -> Value:
    """Channels at positions between pixels; with `zeros`, pixels outside count as zero."""
    sides = []
    for at, size in ((y, image.height), (x, image.width)):
        first = ctx.one("floor", [at])
        far = binary(ctx, "sub", at, first)
        near = ctx.one("sub", [far], {"scalar": 1.0, "reverse": True})
        second = plus(ctx, first, 1.0)
        if zeros:
            near, far = _where_inside(ctx, first, size, near), _where_inside(ctx, second, size, far)
        sides.append(((first, near), (second, far)))
    corners = [
        _weighted(ctx, _pixels(ctx, image, row, column), binary(ctx, "mul", row_weight, column_weight))
        for row, row_weight in sides[0]
        for column, column_weight in sides[1]
    ]
    total = corners[0]
    for corner in corners[1:]:
        total = binary(ctx, "add", total, corner)
    return total


def _where_inside(ctx: LowerContext, at: Value, size: int, weight: Value) -> Value:
    """`weight` where 0 <= at < size, else zero."""
    low = ctx.one("greater_equal", [at], {"scalar": 0.0})
    high = ctx.one("less", [at], {"scalar": float(size)})
    return ctx.one("mask", [binary(ctx, "and", low, high), weight], {"keep": True})


@lowers("GridSample")
def lower_grid_sample(ctx: LowerContext, node: NodeView) -> None:
    """Pixels at the positions of a grid, whose numbers go from -1 to 1 over the image."""
    x, grid = node.value(0), node.value(1)
    if x.spec.rank != 4 or grid.spec.rank != 4:
        raise Unsupported(f"rank {x.spec.rank}; images of two dimensions are supported")
    mode, padding = node.attr_str("mode", "linear"), node.attr_str("padding_mode", "zeros")
    if mode not in ("linear", "bilinear", "nearest"):
        raise Unsupported(f"mode {mode}")
    node.need(padding in ("zeros", "border", "reflection"), f"padding_mode {padding!r} is unknown")
    align = bool(node.attr_int("align_corners", 0))
    n, c, h, w = x.spec.shape
    _, rows, columns, two = grid.spec.shape
    node.need(two == 2 and grid.spec.shape[0] == n, f"a grid {list(grid.spec.shape)} does not fit {list(x.spec.shape)}")
    parts = [ctx.view(part, (n, rows * columns)) for part in split(ctx, grid, 3, [1, 1])]
    at_x, at_y = (_position(ctx, part, size, align, padding) for part, size in zip(parts, (w, h), strict=True))
    start = ctx.one("range", [], {"dtype": "int64", "start": 0, "step": h * w, "size": n})
    image = Image(table=_table(ctx, x), start=ctx.view(start, (n, 1)), height=h, width=w)
    if mode == "nearest":
        found = _nearest(ctx, image, ctx.one("round", [at_y]), ctx.one("round", [at_x]), zeros=padding == "zeros")
    else:
        found = _bilinear(ctx, image, at_y, at_x, zeros=padding == "zeros")
    ctx.bind(0, ctx.view(transpose(ctx, found, (0, 2, 1)), (n, c, rows, columns)))


def _nearest(ctx: LowerContext, image: Image, y: Value, x: Value, *, zeros: bool) -> Value:
    pixels = _pixels(ctx, image, y, x)
    if not zeros:
        return pixels
    inside = [
        ctx.one(kind, [at], {"scalar": float(bound)})
        for at, size in ((y, image.height), (x, image.width))
        for kind, bound in (("greater_equal", 0), ("less", size))
    ]
    all_inside = inside[0]
    for each in inside[1:]:
        all_inside = binary(ctx, "and", all_inside, each)
    return ctx.one("mask", [ctx.view(all_inside, (*all_inside.spec.shape, 1)), pixels], {"keep": True})


def _position(ctx: LowerContext, part: Value, size: int, align: bool, padding: str) -> Value:
    """Grid numbers as positions in pixels, brought inside as the padding says."""
    half = (size - 1) / 2 if align else size / 2
    at = plus(ctx, times(ctx, part, half), (size - 1) / 2)
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        at = _reflected(ctx, at, low, span)
    if padding in ("border", "reflection"):
        at = ctx.one("clip", [at], {"min": 0.0, "max": float(size - 1)})
    return at


def _reflected(ctx: LowerContext, at: Value, low: float, span: float) -> Value:
    """Positions folded back into [low, low + span] at both ends, as often as needed."""
    if span == 0:
        return times(ctx, at, 0.0)
    moved = plus(ctx, at, -low)
    turns = ctx.one("floor", [times(ctx, moved, 1 / (2 * span))])
    rest = binary(ctx, "sub", moved, times(ctx, turns, 2 * span))
    fold = ctx.one("abs", [plus(ctx, rest, -span)])
    return ctx.one("sub", [fold], {"scalar": low + span, "reverse": True})


@lowers("RoiAlign")
def lower_roi_align(ctx: LowerContext, node: NodeView) -> None:
    """The mean of samples in each cell of each region (a known number of samples, mode avg)."""
    x, rois, batch = node.value(0), node.value(1), node.value(2)
    ratio, scale = node.attr_int("sampling_ratio", 0), node.attr_float("spatial_scale", 1.0)
    if node.attr_str("mode", "avg") != "avg" or ratio < 1:
        raise Unsupported("only mode avg with a sampling_ratio of 1 or more is supported")
    half = node.version >= 16 and node.attr_str("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    _, c, h, w = x.spec.shape
    regions = rois.spec.shape[0]
    cells = node.attr_int("output_height", 1), node.attr_int("output_width", 1)
    edges = [plus(ctx, times(ctx, edge, scale), -0.5 if half else 0.0) for edge in split(ctx, rois, 1, [1] * 4)]
    start = times(ctx, cast(ctx, batch, DType.INT64), h * w)
    image = Image(table=_table(ctx, x), start=ctx.view(start, (regions, 1)), height=h, width=w)
    steps_y = _steps(ctx, edges[1], edges[3], cells[0], ratio, half)
    steps_x = _steps(ctx, edges[0], edges[2], cells[1], ratio, half)
    shape = (regions, cells[0] * ratio, cells[1] * ratio)
    points = (regions, math.prod(shape[1:]))
    at_y = ctx.view(ctx.one("expand", [ctx.view(steps_y, (*shape[:2], 1))], {"shape": list(shape)}), points)
    at_x = ctx.view(ctx.one("expand", [ctx.view(steps_x, (regions, 1, shape[2]))], {"shape": list(shape)}), points)
    found = _bilinear(ctx, image, _inside(ctx, at_y, h), _inside(ctx, at_x, w), zeros=False)
    far = binary(ctx, "and", _near(ctx, at_y, h), _near(ctx, at_x, w))
    found = ctx.one("mask", [ctx.view(far, (*points, 1)), found], {"keep": True})
    samples = ctx.view(found, (regions, cells[0], ratio, cells[1], ratio, c))
    mean = reduce(ctx, "reduce_mean", samples, (2, 4), False)
    ctx.bind(0, transpose(ctx, mean, (0, 3, 1, 2)))


def _steps(ctx: LowerContext, first: Value, last: Value, cells: int, ratio: int, half: bool) -> Value:
    """Positions [regions, cells * ratio] of the samples along one axis."""
    size = binary(ctx, "sub", last, first)
    if not half:
        size = ctx.one("max", [size], {"scalar": 1.0})
    count = cells * ratio
    offsets = ctx.one(
        "range", [], {"dtype": str(first.spec.dtype), "start": 0.5 / count, "step": 1 / count, "size": count}
    )
    return binary(ctx, "add", binary(ctx, "mul", size, ctx.view(offsets, (1, count))), first)


def _inside(ctx: LowerContext, at: Value, size: int) -> Value:
    return ctx.one("clip", [at], {"min": 0.0, "max": float(size - 1)})


def _near(ctx: LowerContext, at: Value, size: int) -> Value:
    """Whether a position is at most one pixel outside; further out, samples are zero."""
    low = ctx.one("greater_equal", [at], {"scalar": -1.0})
    return binary(ctx, "and", low, ctx.one("less_equal", [at], {"scalar": float(size)}))
