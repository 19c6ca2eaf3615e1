"""MatMul and Gemm."""

from __future__ import annotations

import math

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.binary import scaled
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.values import Value
from snplan.ir import Attr


@lowers("MatMul")
def lower_matmul(ctx: LowerContext, node: NodeView) -> None:
    """`matmul`."""
    ctx.bind(0, matmul(ctx, node.value(0), node.value(1)))


def matmul(ctx: LowerContext, a: Value, b: Value, alpha: float = 1.0) -> Value:
    """`alpha * a @ b` by NumPy's rules for vectors and stacks.

    Vectors become matrices by views; a stack times one matrix becomes a single product of matrices. A transpose of the
    last two axes on the way in becomes `trans_a` or `trans_b`.
    """
    shape = _product_shape(a.spec.shape, b.spec.shape)
    if a.spec.rank == 1:
        a = ctx.view(a, (1, a.spec.shape[0]))
    if b.spec.rank == 1:
        b = ctx.view(b, (b.spec.shape[0], 1))
    if b.spec.rank == 2 and a.spec.rank > 2:
        a = ctx.view(a, (math.prod(a.spec.shape[:-1]), a.spec.shape[-1]))
    return ctx.view(product(ctx, a, b, alpha=alpha), shape)


def _product_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The result's shape where a or b is a vector or b a matrix; of two stacks, `matmul`'s own rule says it."""
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    if len(b) <= 2:
        return (*a[:-1], *columns)
    if len(a) <= 2:
        return (*b[:-2], *rows, *columns)
    from snplan.ops.shapes import broadcast

    return (*broadcast(a[:-2], b[:-2]), *rows, *columns)


def product(
    ctx: LowerContext,
    a: Value,
    b: Value,
    bias: Value | None = None,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    alpha: float = 1.0,
) -> Value:
    """A `matmul` op of tensors of rank 2 and more."""
    a, flipped_a = _untransposed(ctx, a)
    b, flipped_b = _untransposed(ctx, b)
    attrs: dict[str, Attr] = {"trans_a": trans_a != flipped_a, "trans_b": trans_b != flipped_b, "alpha": alpha}
    return ctx.one("matmul", [a, b] if bias is None else [a, b, bias], attrs)


def _untransposed(ctx: LowerContext, x: Value) -> tuple[Value, bool]:
    """`x`, or the tensor that it is the transpose of (last two axes), and whether it is."""
    record = ctx.producer(x)
    if record is None or record.kind != "transpose":
        return x, False
    perm = record.attrs["perm"]
    rank = x.spec.rank
    if perm != [*range(rank - 2), rank - 1, rank - 2]:
        return x, False
    return ctx.existing(record.inputs[0]), True


@lowers("Gemm", "com.microsoft::FusedGemm")
def lower_gemm(ctx: LowerContext, node: NodeView) -> None:
    """`matmul` with C as bias, scaled by beta first."""
    a, b, c = node.value(0), node.value(1), node.optional(2)
    node.need(a.spec.rank == 2 and b.spec.rank == 2, f"ranks {a.spec.rank} and {b.spec.rank}, both must be 2")
    alpha, beta = node.attr_float("alpha", 1.0), node.attr_float("beta", 1.0)
    bias = None if c is None or beta == 0 else scaled(ctx, c, beta)
    trans_a, trans_b = bool(node.attr_int("transA", 0)), bool(node.attr_int("transB", 0))
    ctx.bind(0, product(ctx, a, b, bias, trans_a=trans_a, trans_b=trans_b, alpha=alpha))


@lowers("com.microsoft::FusedMatMul", "com.microsoft::TransposeMatMul")
def lower_fused_matmul(ctx: LowerContext, node: NodeView) -> None:
    """`matmul` with both inputs transposed as attributes say."""
    node.need(not node.attr_int("transBatchA", 0) and not node.attr_int("transBatchB", 0), "batch transposes")
    trans_a, trans_b = bool(node.attr_int("transA", 0)), bool(node.attr_int("transB", 0))
    alpha = node.attr_float("alpha", 1.0)
    ctx.bind(0, product(ctx, node.value(0), node.value(1), trans_a=trans_a, trans_b=trans_b, alpha=alpha))
