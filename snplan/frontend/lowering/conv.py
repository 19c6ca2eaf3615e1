"""Conv and ConvTranspose."""

from __future__ import annotations

from collections.abc import Sequence

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.binary import binary
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.lowering.windows import Window, window_of
from snplan.frontend.node import NodeView
from snplan.frontend.values import Unsupported, Value
from snplan.ir import Attr


def _attrs(window: Window, group: int) -> dict[str, Attr]:
    return {
        "strides": list(window.strides),
        "pads": list(window.pads),
        "dilations": list(window.dilations),
        "group": group,
    }


def _window(node: NodeView, x: Value, w: Value) -> Window:
    node.need(x.spec.rank >= 3 and w.spec.rank == x.spec.rank, f"ranks {x.spec.rank} and {w.spec.rank} do not fit")
    kernel = node.attr_ints("kernel_shape")
    node.need(not kernel or tuple(kernel) == w.spec.shape[2:], f"kernel_shape {kernel} is not the filter's")
    return window_of(node, x.spec.shape[2:], w.spec.shape[2:])


def convolution(ctx: LowerContext, node: NodeView) -> Value:
    """`conv` with the bias that the node has."""
    x, w, bias = node.value(0), node.value(1), node.optional(2)
    attrs = _attrs(_window(node, x, w), node.attr_int("group", 1))
    return ctx.one("conv", [x, w] if bias is None else [x, w, bias], attrs)


@lowers("Conv")
def lower_conv(ctx: LowerContext, node: NodeView) -> None:
    """`conv`."""
    ctx.bind(0, convolution(ctx, node))


@lowers("com.microsoft::FusedConv")
def lower_fused_conv(ctx: LowerContext, node: NodeView) -> None:
    """`conv`, the addition of a fourth input, an activation."""
    y, added = convolution(ctx, node), node.optional(3)
    if added is not None:
        y = binary(ctx, "add", y, added)
    ctx.bind(0, _activated(ctx, node, y))


def _activated(ctx: LowerContext, node: NodeView, y: Value) -> Value:
    activation, parameters = node.attr_str("activation", ""), node.attr_floats("activation_params") or []
    if not activation:
        return y
    if activation in ("Relu", "Tanh", "Sigmoid"):
        return ctx.one(activation.lower(), [y])
    names = {
        "LeakyRelu": ("leaky_relu", "alpha"),
        "HardSigmoid": ("hard_sigmoid", "alpha", "beta"),
        "Clip": ("clip", "min", "max"),
    }
    kind, *keys = names.get(activation, ("",))
    if not kind or len(keys) != len(parameters):
        raise Unsupported(f"its activation {activation} is not known")
    return ctx.one(kind, [y], dict(zip(keys, parameters, strict=True)))


_ACTIVATIONS = {
    "Clip": ("clip", "min", "max"),
    "HardSigmoid": ("hard_sigmoid", "alpha", "beta"),
    "LeakyRelu": ("leaky_relu", "alpha"),
}


@lowers("ConvTranspose")
def lower_conv_transpose(ctx: LowerContext, node: NodeView) -> None:
    """`conv_transpose`, then the bias."""
    x, w, bias = node.value(0), node.value(1), node.optional(2)
    group = node.attr_int("group", 1)
    window, sizes = _transposed_window(node, x, w)
    shape = [x.spec.shape[0], w.spec.shape[1] * group, *sizes]
    y = ctx.one("conv_transpose", [x, w], {**_attrs(window, group), "shape": [*shape]})
    if bias is not None:
        y = binary(ctx, "add", y, ctx.view(bias, (1, bias.spec.elements) + (1,) * len(sizes)))
    ctx.bind(0, y)


def _transposed_window(node: NodeView, x: Value, w: Value) -> tuple[Window, list[int]]:
    """The window, its pads resolved, and the spatial sizes of the result."""
    spatial = x.spec.shape[2:]
    auto = node.attr_str("auto_pad", "NOTSET") or "NOTSET"
    plain = _unpadded(node, x, w)
    more = node.attr_ints("output_padding") or [0] * len(spatial)
    node.need(len(more) == len(spatial) and min(more) >= 0, f"output_padding {more} does not fit")
    full = [plain.strides[axis] * (size - 1) + more[axis] + plain.extent(axis) for axis, size in enumerate(spatial)]
    wanted = node.attr_ints("output_shape")
    if wanted:
        wanted = wanted[-len(spatial) :]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * stride for size, stride in zip(spatial, plain.strides, strict=True)]
    if wanted:
        return _with_pads(plain, _pads_for(full, wanted, upper=auto == "SAME_UPPER")), wanted
    pads = node.attr_ints("pads") if auto == "NOTSET" else None
    pads = pads or [0] * (2 * len(spatial))
    node.need(len(pads) == 2 * len(spatial) and min(pads) >= 0, f"pads {pads} do not fit")
    sizes = [size - pads[axis] - pads[axis + len(spatial)] for axis, size in enumerate(full)]
    node.need(min(sizes) > 0, f"the result would be of size {sizes}")
    return _with_pads(plain, pads), sizes


def _unpadded(node: NodeView, x: Value, w: Value) -> Window:
    node.need(x.spec.rank >= 3 and w.spec.rank == x.spec.rank, f"ranks {x.spec.rank} and {w.spec.rank} do not fit")
    rank = x.spec.rank - 2
    if rank > 3:
        raise Unsupported(f"it has {rank} spatial axes; 1 to 3 are supported")
    strides, dilations = node.attr_ints("strides") or [1] * rank, node.attr_ints("dilations") or [1] * rank
    node.need(len(strides) == rank and len(dilations) == rank, "strides or dilations do not fit the rank")
    node.need(min(strides) > 0 and min(dilations) > 0, "strides and dilations must be positive")
    return Window(kernel=w.spec.shape[2:], strides=tuple(strides), dilations=tuple(dilations), pads=(0,) * (2 * rank))


def _with_pads(window: Window, pads: Sequence[int]) -> Window:
    return Window(kernel=window.kernel, strides=window.strides, dilations=window.dilations, pads=tuple(pads))


def _pads_for(full: Sequence[int], wanted: Sequence[int], *, upper: bool) -> list[int]:
    """Pads that cut the full result down to `wanted`; the odd one at the end (`upper`) or the beginning."""
    before, after = [], []
    for size, target in zip(full, wanted, strict=True):
        total = max(size - target, 0)
        first = total // 2 if upper else total - total // 2
        before.append(first)
        after.append(total - first)
    return [*before, *after]
