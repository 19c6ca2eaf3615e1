"""How fast matrix products and convolutions run: their shape as a product of matrices, and a model of efficiency.

A convolution is the product that implicit-GEMM kernels run. The part of the published rate that is reached is

    compute_percent * n / (n + half_width) * k / (k + half_depth) * fill

with n the narrower side of the result and k the inner size: tiles of a narrow product are reused little, and a short
inner loop does not hide its start. `fill` is the part of the processors that have work, when result tiles of 128 x 128
are cut further along k in pieces of at least 512. The halves are 64 and 256 on tensor cores, 16 and 32 on vector units;
with filter gradients at half the speed of the others (they reduce over batch and positions) this is within 35 % of all
convolutions measured on an H200 (fp32 storage with TF32, bfloat16) and 15 % of large products.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from snplan.cost.device import Device, Precision
from snplan.ir import Attrs, DType, Spec
from snplan.ops.base import Specs
from snplan.ops.linear import matrix_sizes

MATRIX_KINDS = frozenset({"matmul", "conv", "conv_transpose", "conv_filter"})

_TILE = 128
_SPLIT = 512
_TENSOR_HALVES = (64, 256)
_VECTOR_HALVES = (16, 32)
_LEAST_VECTOR = 0.05  # depthwise kernels are written for their case and do better than the product they amount to


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """`batch` products of m x k by k x n matrices."""

    m: int
    n: int
    k: int
    batch: int

    @property
    def tiles(self) -> int:
        """Tiles of the results."""
        return self.batch * -(-self.m // _TILE) * -(-self.n // _TILE)

    @property
    def splits(self) -> int:
        """Pieces that the inner size can be cut into."""
        return max(1, self.k // _SPLIT)


def product_of(kind: str, inputs: Specs, output: Spec, attrs: Attrs) -> Product:
    """The product that an op of a matrix kind amounts to; its inputs as the op reads them."""
    if kind == "matmul":
        return _matmul(inputs, output, attrs)
    group = attrs["group"]
    assert isinstance(group, int)
    if kind == "conv":
        w = inputs[1].shape
        return Product(m=_positions(output), n=w[0] // group, k=prod(w[1:]), batch=group)
    if kind == "conv_transpose":
        w = inputs[1].shape
        return Product(m=_positions(inputs[0]), n=w[1], k=w[0] // group * prod(w[2:]), batch=group)
    w = output.shape
    return Product(m=w[0] // group, n=prod(w[1:]), k=_positions(inputs[1]), batch=group)


def is_tensor_core(dtype: DType, device: Device, precision: Precision) -> bool:
    """Whether products of `dtype` operands run faster than on the vector units."""
    return dtype != DType.FLOAT64 and matrix_flops(dtype, device, precision) > device.fp32_flops


def matrix_flops(dtype: DType, device: Device, precision: Precision) -> int:
    """Peak operations a second of products of `dtype` operands; `precision` says how float32 ones are computed."""
    if dtype == DType.FLOAT64:
        return device.fp64_flops
    if dtype == DType.FLOAT16:
        return device.fp16_flops
    if dtype == DType.BFLOAT16:
        return device.bf16_flops
    return device.flops(precision)


def reached_flops(product: Product, dtype: DType, device: Device, precision: Precision) -> float:
    """Operations a second that a product of this shape reaches."""
    fill = min(1.0, product.tiles * product.splits / device.processors)
    vector = max(_LEAST_VECTOR, _efficiency(product, _VECTOR_HALVES, device))
    if not is_tensor_core(dtype, device, precision):
        return matrix_flops(dtype, device, precision) * vector * fill
    tensor = matrix_flops(dtype, device, precision) * _efficiency(product, _TENSOR_HALVES, device)
    return max(tensor, device.fp32_flops * vector) * fill


def _efficiency(product: Product, halves: tuple[int, int], device: Device) -> float:
    width, depth = min(product.m, product.n), product.k
    return device.compute_percent / 100 * (width / (width + halves[0])) * (depth / (depth + halves[1]))


def _positions(spec: Spec) -> int:
    return spec.shape[0] * prod(spec.shape[2:])


def _matmul(inputs: Specs, output: Spec, attrs: Attrs) -> Product:
    m, n, k = matrix_sizes(inputs[0].shape, inputs[1].shape, attrs)
    batch = prod(output.shape[:-2])
    if prod(inputs[1].shape[:-2]) == 1:
        return Product(m=m * batch, n=n, k=k, batch=1)
    return Product(m=m, n=n, k=k, batch=batch)
