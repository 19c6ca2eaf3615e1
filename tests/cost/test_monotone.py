"""The cost model bends one way: faster devices and smaller ops never take longer, and rates bound every op."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from snplan.cost.device import PRECISIONS, Device, Precision, device_names, load_device
from snplan.cost.roofline import op_cost
from snplan.ir import DType, Op, Spec
from snplan.ops import infer

DEVICES = st.sampled_from([load_device(name) for name in device_names()])
FLOPS = ("fp64_flops", "fp32_flops", "tf32_flops", "bf16_flops", "fp16_flops")
WINDOW = {"strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "group": 1}
PRODUCT = {"trans_a": False, "trans_b": False, "alpha": 1.0}
F = DType.FLOAT32


def cost(kind: str, shapes: list[tuple[int, ...]], device: Device, precision: Precision, **attrs: Any) -> int:
    """Microseconds of one op over float32 tensors."""
    specs = [Spec(F, shape) for shape in shapes]
    op = Op(name="y", kind=kind, inputs=tuple(f"x{i}" for i in range(len(specs))), outputs=("y",), attrs=attrs)
    return op_cost(op, specs, infer(kind, specs, attrs), device, precision)


Shapes = list[tuple[int, ...]]


@st.composite
def ops(draw: st.DrawFn) -> tuple[str, Shapes, Shapes, dict[str, Any]]:
    """A kind, its inputs' shapes, shapes with a larger batch, and its attributes."""
    batch, larger = draw(st.integers(1, 64)), draw(st.integers(1, 4))
    a, b, side = draw(st.integers(1, 256)), draw(st.integers(1, 256)), draw(st.integers(3, 56))
    kind = draw(st.sampled_from(["matmul", "conv", "relu", "add", "softmax", "reduce_sum"]))

    def shapes(n: int) -> Shapes:
        known: dict[str, Shapes] = {
            "matmul": [(n, a), (a, b)],
            "conv": [(n, a, side, side), (b, a, 3, 3)],
            "relu": [(n, a, b)],
            "add": [(n, a, b), (n, a, b)],
            "softmax": [(n, a)],
            "reduce_sum": [(n, a, b)],
        }
        return known[kind]

    known: dict[str, dict[str, Any]] = {
        "matmul": PRODUCT,
        "conv": WINDOW,
        "softmax": {"axis": 1},
        "reduce_sum": {"axes": [1, 2], "keepdims": False},
    }
    return kind, shapes(batch), shapes(batch * larger), known.get(kind, {})


@given(
    ops(), DEVICES, st.sampled_from(PRECISIONS), st.sampled_from([FLOPS, ("memory_bytes_per_s",)]), st.integers(2, 10)
)
def test_a_faster_device_is_never_slower(
    drawn: Any, device: Device, precision: Precision, rates: tuple[str, ...], factor: int
) -> None:
    """All arithmetic faster, or memory: which of the arithmetic rates are tensor cores' is told by their ratios."""
    kind, shapes, _, attrs = drawn
    faster = replace(device, **{rate: getattr(device, rate) * factor for rate in rates})
    assert cost(kind, shapes, faster, precision, **attrs) <= cost(kind, shapes, device, precision, **attrs)


@given(ops(), DEVICES, st.sampled_from(PRECISIONS))
def test_nothing_is_faster_than_the_published_rates(drawn: Any, device: Device, precision: Precision) -> None:
    """Each input is read at least once; multiply-adds of products are bounded by the fastest rate that there is."""
    kind, shapes, _, attrs = drawn
    found = cost(kind, shapes, device, precision, **attrs)
    moved = 4 * sum(map(prod, shapes))
    assert found >= moved * 1e6 / device.memory_bytes_per_s
    if kind == "matmul":
        (n, inner), (_, columns) = shapes
        assert found >= 2 * n * inner * columns * 1e6 / max(getattr(device, rate) for rate in FLOPS)


@given(ops(), DEVICES, st.sampled_from(PRECISIONS))
def test_more_samples_never_take_less_time(drawn: Any, device: Device, precision: Precision) -> None:
    kind, shapes, larger, attrs = drawn
    assert cost(kind, larger, device, precision, **attrs) >= cost(kind, shapes, device, precision, **attrs)
