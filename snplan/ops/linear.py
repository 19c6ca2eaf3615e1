"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from snplan.ir import Attr, Attrs, Op, Spec
from snplan.ops.attributes import get_bool, get_float, get_int, get_ints, get_shape
from snplan.ops.base import Backward, Kind, ShapeError, Specs, register
from snplan.ops.forms import FLAG, INTEGER, INTEGERS, NUMBER, SHAPE, takes
from snplan.ops.gradients import reshaped, unbroadcast, with_shape
from snplan.ops.shapes import (
    Shape,
    broadcast,
    broadcasts_to,
    need,
    need_count,
    need_float,
    need_number,
    need_rank,
    need_same_dtype,
    need_shape,
    show,
)


def matrix_sizes(a: Shape, b: Shape, attrs: Attrs) -> tuple[int, int, int]:
    """Rows, columns and inner size of `op(a) @ op(b)`; raises ShapeError where the inner sizes differ."""
    rows, inner = a[-2:] if not get_bool(attrs, "trans_a") else (a[-1], a[-2])
    inner_b, columns = b[-2:] if not get_bool(attrs, "trans_b") else (b[-1], b[-2])
    if inner != inner_b:
        flags = [key for key in ("trans_a", "trans_b") if get_bool(attrs, key)]
        raise ShapeError(
            f"inner sizes {inner} of a {list(a)} and {inner_b} of b {list(b)} differ {flags or ''}".rstrip()
        )
    return rows, columns, inner


def infer_matmul(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """Leading axes broadcast, then rows and columns."""
    need_count(specs, 2, 3)
    a, b = specs[:2]
    need_number(a, "a")
    need_rank(a, 2, what="a")
    need_rank(b, 2, what="b")
    get_float(attrs, "alpha")
    rows, columns, _ = matrix_sizes(a.shape, b.shape, attrs)
    y = Spec(need_same_dtype(specs), (*broadcast(a.shape[:-2], b.shape[:-2]), rows, columns))
    if len(specs) == 3 and not broadcasts_to(specs[2].shape, y.shape):
        raise ShapeError(f"bias {show(specs[2])} does not broadcast to y {show(y)}")
    return (y,)


def window_count(size: int, kernel: int, stride: int, before: int, after: int, dilation: int) -> int:
    """How many windows of `kernel` elements fit along a padded axis (0 where none does)."""
    return max(0, (size + before + after - dilation * (kernel - 1) - 1) // stride + 1)


def conv_sizes(spatial: Shape, kernel: Shape, attrs: Attrs) -> Shape:
    """Spatial sizes of a `conv`'s result; raises ShapeError where attributes and shapes do not fit."""
    count = len(spatial)
    strides, pads, dilations = get_ints(attrs, "strides"), get_ints(attrs, "pads"), get_ints(attrs, "dilations")
    need(len(kernel) == count, f"the filter has {len(kernel)} spatial axes, the input {count}")
    need(len(strides) == count and len(dilations) == count, f"strides and dilations must have {count} entries")
    need(len(pads) == 2 * count, f"pads must have {2 * count} entries, they are {list(pads)}")
    need(min((*strides, *dilations), default=1) > 0, "strides and dilations must be positive")
    return tuple(map(window_count, spatial, kernel, strides, pads[:count], pads[count:], dilations))


def conv_result(x: Shape, w: Shape, attrs: Attrs) -> Shape:
    """Shape of `conv(x, w)`; raises ShapeError where channels, groups or windows do not fit."""
    group = get_int(attrs, "group")
    need(3 <= len(x) <= 5 and len(x) == len(w), f"x {list(x)} and w {list(w)} must be of one rank, 3 to 5")
    need(group > 0 and w[0] % group == 0, f"{w[0]} output channels do not divide into {group} groups")
    need(x[1] == w[1] * group, f"x has {x[1]} channels, w takes {w[1]} x {group} groups")
    sizes = conv_sizes(x[2:], w[2:], attrs)
    if 0 in sizes and 0 not in x:
        raise ShapeError(f"the filter {list(w[2:])} is larger than the padded input {list(x[2:])}")
    return (x[0], w[0], *sizes)


def infer_conv(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """N, output channels, spatial sizes."""
    need_count(specs, 2, 3)
    need_float(specs[0], "x")
    dtype = need_same_dtype(specs)
    y = Spec(dtype, conv_result(specs[0].shape, specs[1].shape, attrs))
    if len(specs) == 3:
        need_shape(specs[2], (y.shape[1],), "bias")
    return (y,)


def infer_conv_transpose(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape`: the input that a `conv` with these attributes maps to x's shape."""
    need_count(specs, 2)
    x, w = specs
    need_float(x, "x")
    shape = get_shape(attrs)
    need(len(shape) == x.rank, f"shape {list(shape)} must have the rank of x {show(x)}")
    forward = conv_result(shape, w.shape, attrs)
    need(forward == x.shape, f"a conv of {list(shape)} with w {show(w)} gives {list(forward)}, x is {show(x)}")
    return (Spec(need_same_dtype(specs), shape),)


def infer_conv_filter(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape`: the filter with which a `conv` maps x's shape to dy's."""
    need_count(specs, 2)
    x, dy = specs
    need_float(x, "x")
    shape = get_shape(attrs)
    need(len(shape) == x.rank, f"shape {list(shape)} must have the rank of x {show(x)}")
    forward = conv_result(x.shape, shape, attrs)
    need(
        forward == dy.shape,
        f"a conv of x {show(x)} with a filter {list(shape)} gives {list(forward)}, dy is {show(dy)}",
    )
    return (Spec(need_same_dtype(specs), shape),)


def gradient_matmul(b: Backward, op: Op) -> Mapping[int, str]:
    """alpha dy op(b)^T, alpha op(a)^T dy, and dy summed to the bias."""
    gradients = {}
    if b.wants(1):
        gradients[1] = _gradient_b(b, op)
    if b.wants(0):
        gradients[0] = _gradient_a(b, op)
    if len(op.inputs) == 3 and b.wants(2):
        gradients[2] = unbroadcast(b, b.dy(), op.inputs[2], "dbias")
    return gradients


def _product(b: Backward, left: str, right: str, trans: tuple[bool, bool], op: Op, label: str) -> str:
    attrs: Attrs = {"trans_a": trans[0], "trans_b": trans[1], "alpha": op.attrs["alpha"]}
    return b.emit("matmul", [left, right], attrs, label=label)[0]


def _gradient_a(b: Backward, op: Op) -> str:
    trans_a, trans_b = get_bool(op.attrs, "trans_a"), get_bool(op.attrs, "trans_b")
    if trans_a:
        product = _product(b, op.inputs[1], b.dy(), (trans_b, True), op, "da")
    else:
        product = _product(b, b.dy(), op.inputs[1], (False, not trans_b), op, "da")
    return unbroadcast(b, product, op.inputs[0], "da")


def _gradient_b(b: Backward, op: Op) -> str:
    trans_a, trans_b = get_bool(op.attrs, "trans_a"), get_bool(op.attrs, "trans_b")
    a, dy = op.inputs[0], b.dy()
    rows = _one_matrix(b.spec(op.inputs[1]).shape) and not trans_a
    if rows:
        # Rows of all matrices of the batch are rows of one: one product sums over the batch too.
        a, dy = _as_matrix(b, a, "a_rows"), _as_matrix(b, dy, "dy_rows")
    left, right, trans = (dy, a, (True, trans_a)) if trans_b else (a, dy, (not trans_a, False))
    product = _product(b, left, right, trans, op, "db")
    if rows:
        return reshaped(b, product, b.spec(op.inputs[1]).shape, "db")
    return unbroadcast(b, product, op.inputs[1], "db")


def _one_matrix(shape: Shape) -> bool:
    return prod(shape[:-2]) == 1


def _as_matrix(b: Backward, name: str, label: str) -> str:
    shape = b.spec(name).shape
    return reshaped(b, name, (prod(shape[:-1]), shape[-1]), label)


_WINDOW = ("strides", "pads", "dilations", "group")


def _window(op: Op) -> dict[str, Attr]:
    return {key: op.attrs[key] for key in _WINDOW}


def gradient_conv(b: Backward, op: Op) -> Mapping[int, str]:
    """Filter gradient, data gradient, dy summed to the bias: three ops, so that they need not be live together."""
    x, w = op.inputs[:2]
    gradients = {}
    if b.wants(1):
        gradients[1] = b.emit("conv_filter", [x, b.dy()], with_shape(_window(op), b, w), label="dw")[0]
    if b.wants(0):
        gradients[0] = b.emit("conv_transpose", [b.dy(), w], with_shape(_window(op), b, x))[0]
    if len(op.inputs) == 3 and b.wants(2):
        axes: list[Attr] = [axis for axis in range(len(b.spec(x).shape)) if axis != 1]
        gradients[2] = b.emit("reduce_sum", [b.dy()], {"axes": axes, "keepdims": False}, label="dbias")[0]
    return gradients


def gradient_conv_transpose(b: Backward, op: Op) -> Mapping[int, str]:
    """The `conv` that this is the data gradient of, and its filter gradient with dy as data."""
    x, w = op.inputs
    gradients = {}
    if b.wants(1):
        gradients[1] = b.emit("conv_filter", [b.dy(), x], with_shape(_window(op), b, w), label="dw")[0]
    if b.wants(0):
        gradients[0] = b.emit("conv", [b.dy(), w], _window(op))[0]
    return gradients


def matmul_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """Two for each multiply-add, and one for each addition of the bias."""
    _, _, inner = matrix_sizes(inputs[0].shape, inputs[1].shape, attrs)
    return outputs[0].elements * (2 * inner + (len(inputs) == 3))


def conv_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """Two for each multiply-add, and one for each addition of the bias."""
    return outputs[0].elements * (2 * prod(inputs[1].shape[1:]) + (len(inputs) == 3))


def conv_transpose_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """As the `conv` whose data gradient this is."""
    return 2 * inputs[0].elements * prod(inputs[1].shape[1:])


def conv_filter_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """As the `conv` whose filter gradient this is."""
    return 2 * inputs[1].elements * prod(outputs[0].shape[1:])


register(
    Kind(name="matmul", infer=infer_matmul, gradient=gradient_matmul, flops=matmul_flops),
    Kind(name="conv", infer=infer_conv, gradient=gradient_conv, flops=conv_flops),
    Kind(
        name="conv_transpose",
        infer=infer_conv_transpose,
        gradient=gradient_conv_transpose,
        flops=conv_transpose_flops,
    ),
    Kind(name="conv_filter", infer=infer_conv_filter, flops=conv_filter_flops),
)

takes("matmul", trans_a=FLAG, trans_b=FLAG, alpha=NUMBER)
takes(
    *("conv", "conv_transpose", "conv_filter"),
    strides=INTEGERS,
    pads=INTEGERS,
    dilations=INTEGERS,
    group=INTEGER,
)
takes("conv_transpose", "conv_filter", shape=SHAPE)
