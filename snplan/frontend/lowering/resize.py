"""Resize and Upsample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.values import Unsupported, Value
from snplan.ir import Attr

_MODES = ("nearest", "linear", "cubic")
_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
)


@lowers("Upsample")
def lower_upsample(ctx: LowerContext, node: NodeView) -> None:
    """`resize` with the left edges of pixels aligned; scales are an input from opset 9 on."""
    x = node.value(0)
    scales = _floats(node, 1) if node.input_form("scales", 9, 1) else node.attr_floats("scales") or []
    mode = _mode(node)
    sizes = _scaled_sizes(node, x, scales)
    ctx.bind(0, _resized(ctx, node, x, sizes, scales, mode, "asymmetric", "floor"))


@lowers("Resize")
def lower_resize(ctx: LowerContext, node: NodeView) -> None:
    """`resize`; before opset 11 as Upsample."""
    x = node.value(0)
    if node.version < 11:
        scales = _floats(node, 1)
        ctx.bind(0, _resized(ctx, node, x, _scaled_sizes(node, x, scales), scales, _mode(node), "asymmetric", "floor"))
        return
    coordinates = node.attr_str("coordinate_transformation_mode", "half_pixel")
    if coordinates not in _COORDINATES:
        raise Unsupported(f"coordinate_transformation_mode {coordinates} is not supported")
    sizes, scales = _target(node, x)
    if node.attr_int("antialias", 0) and any(scale < 1 for scale in scales):
        raise Unsupported("antialias is not supported")
    nearest = node.attr_str("nearest_mode", "round_prefer_floor")
    ctx.bind(0, _resized(ctx, node, x, sizes, scales, _mode(node), coordinates, nearest))


def _mode(node: NodeView) -> str:
    mode = node.attr_str("mode", "nearest")
    mode = {"bilinear": "linear", "trilinear": "linear"}.get(mode, mode)
    node.need(mode in _MODES, f"mode {mode!r} is unknown")
    return mode


def _floats(node: NodeView, index: int) -> list[float]:
    return [float(number) for number in node.array(index, "its scales").astype(np.float32).reshape(-1)]


def _scaled_sizes(node: NodeView, x: Value, scales: Sequence[float]) -> list[int]:
    node.need(len(scales) == x.spec.rank, f"{len(scales)} scales for rank {x.spec.rank}")
    node.need(all(scale > 0 for scale in scales), f"scales {list(scales)} must be positive")
    # float32 as the runtimes compute it: 10 * 0.7 is 7 there, and less in float64.
    return [int(np.float32(size) * np.float32(scale)) for size, scale in zip(x.spec.shape, scales, strict=True)]


def _target(node: NodeView, x: Value) -> tuple[list[int], list[float]]:
    """Sizes of the result and scales of every axis, from input `scales` or input `sizes`."""
    rank = x.spec.rank
    axes = node.attr_ints("axes") or list(range(rank))
    places = [node.checked_axis(axis, rank) for axis in axes]
    scales, sizes = [1.0] * rank, list(x.spec.shape)
    if node.given(3) and node.value(3).spec.elements:
        wanted = node.array_ints(3, "its sizes")
        node.need(len(wanted) == len(places), f"{len(wanted)} sizes for {len(places)} axes")
        wanted = _kept_ratio(node, [x.spec.shape[axis] for axis in places], wanted)
        for axis, size in zip(places, wanted, strict=True):
            node.need(size > 0 and x.spec.shape[axis] > 0, f"axis {axis} cannot go from {x.spec.shape[axis]} to {size}")
            sizes[axis], scales[axis] = size, size / x.spec.shape[axis]
        return sizes, scales
    found = _floats(node, 2)
    node.need(len(found) == len(places), f"{len(found)} scales for {len(places)} axes")
    for axis, scale in zip(places, found, strict=True):
        scales[axis] = scale
    return _scaled_sizes(node, x, scales), scales


def _kept_ratio(node: NodeView, shape: Sequence[int], wanted: Sequence[int]) -> list[int]:
    policy = node.attr_str("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return list(wanted)
    ratios = [target / size for target, size in zip(wanted, shape, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [int(scale * size + 0.5) for size in shape]


def _resized(
    ctx: LowerContext,
    node: NodeView,
    x: Value,
    sizes: Sequence[int],
    scales: Sequence[float],
    mode: str,
    coordinates: str,
    nearest: str,
) -> Value:
    if tuple(sizes) == x.spec.shape and all(scale == 1 for scale in scales):
        return x
    attrs: dict[str, Attr] = {
        "sizes": list(sizes),
        "scales": list(scales),
        "mode": mode,
        "coordinate_mode": coordinates,
        "nearest_mode": nearest,
        "cubic_coeff": node.attr_float("cubic_coeff_a", -0.75),
        "exclude_outside": bool(node.attr_int("exclude_outside", 0)),
    }
    return ctx.one("resize", [x], attrs)
