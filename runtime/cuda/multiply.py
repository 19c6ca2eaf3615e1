"""Matrix products of a plan with their addresses: what cuBLASLt is asked, before there is a library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from snplan.ir import DType
from snplan.runtime.cuda.calls import DeviceCall
from snplan.runtime.cuda.products import Product, products


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiplication:
    """One product; `addresses` are those of b, a and y. `accumulate` adds to y; `bias` is an address, 0 for none."""

    product: Product
    dtype: DType
    addresses: tuple[int, int, int]
    alpha: float
    accumulate: bool
    bias: int


def is_empty_sum(call: DeviceCall) -> bool:
    """Whether the product adds up nothing: then the result is its bias, or zeros."""
    return 0 in call.inputs[0].shape


def multiplications(call: DeviceCall, *, bias_first: bool) -> Iterator[Multiplication]:
    """The library's calls for an op of kind `matmul`; `bias_first` where its bias has been written to y before."""
    y, attrs = call.outputs[0], call.op.attrs
    bias = call.at_inputs[2] if len(call.inputs) == 3 and not bias_first else 0
    for product in products(call.inputs[0], call.inputs[1], y, trans_a=attrs["trans_a"], trans_b=attrs["trans_b"]):
        yield Multiplication(
            product=product,
            dtype=y.dtype,
            addresses=(call.at_inputs[1], call.at_inputs[0], call.at_outputs[0]),
            alpha=attrs["alpha"],
            accumulate=bias_first,
            bias=bias,
        )
