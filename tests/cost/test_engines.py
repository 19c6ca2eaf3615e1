"""Convolution engines: the fit to what was measured, and what must hold of every list of engines."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snplan.cost.device import Device, Precision, device_names, load_device
from snplan.cost.engines import Engine, engines
from snplan.cost.gemm import Product, product_of, reached_flops
from snplan.cost.profile import FORMAT, MeasuredOp, Profile, signature
from snplan.ir import DType, Op, Spec
from snplan.ops import KINDS

F, B = DType.FLOAT32, DType.BFLOAT16
H200 = load_device("h200")

# (n, c, size, k, filter, pad), kind, dtype -> microseconds of the fastest engine, of the fastest without workspace.
MEASURED: dict[tuple[tuple[int, ...], str, DType], tuple[int, int]] = {
    ((64, 64, 56, 64, 3, 1), "conv", F): (105, 482),
    ((64, 64, 56, 64, 3, 1), "conv_transpose", F): (93, 163),
    ((64, 64, 56, 64, 3, 1), "conv_filter", F): (203, 767),
    ((64, 64, 56, 64, 3, 1), "conv", B): (65, 91),
    ((64, 64, 56, 64, 3, 1), "conv_transpose", B): (60, 82),
    ((64, 64, 56, 64, 3, 1), "conv_filter", B): (69, 1000),
    ((64, 256, 56, 128, 1, 0), "conv", F): (87, 103),
    ((64, 256, 56, 128, 1, 0), "conv_transpose", F): (103, 148),
    ((64, 256, 56, 128, 1, 0), "conv_filter", F): (105, 492),
    ((64, 256, 56, 128, 1, 0), "conv", B): (51, 67),
    ((64, 256, 56, 128, 1, 0), "conv_transpose", B): (54, 60),
    ((64, 256, 56, 128, 1, 0), "conv_filter", B): (57, 514),
}


def conv(
    kind: str, n: int, c: int, size: int, k: int, r: int, pad: int, *, dtype: DType = F, stride: int = 1, group: int = 1
) -> tuple[Op, tuple[Spec, ...]]:
    """An op of a convolution kind for square images, and its inputs."""
    attrs: dict[str, Any] = {"strides": [stride] * 2, "pads": [pad] * 4, "dilations": [1, 1], "group": group}
    x, w = Spec(dtype, (n, c, size, size)), Spec(dtype, (k, c // group, r, r))
    (y,) = KINDS["conv"].infer((x, w), attrs)
    specs = {"conv": (x, w), "conv_transpose": (y, w), "conv_filter": (x, y)}[kind]
    if kind != "conv":
        attrs["shape"] = list((x if kind == "conv_transpose" else w).shape)
    return Op(name="op", kind=kind, inputs=(), outputs=(), attrs=attrs), specs


def matmul(m: int, n: int, k: int, batch: tuple[int, ...] = (), dtype: DType = F) -> tuple[Op, tuple[Spec, ...]]:
    attrs: dict[str, Any] = {"trans_a": False, "trans_b": False, "alpha": 1.0}
    specs = (Spec(dtype, (*batch, m, k)), Spec(dtype, (*batch, k, n)))
    return Op(name="op", kind="matmul", inputs=(), outputs=(), attrs=attrs), specs


def product(op: Op, specs: tuple[Spec, ...]) -> Product:
    return product_of(op.kind, specs, KINDS[op.kind].infer(specs, op.attrs)[0], op.attrs)


@pytest.mark.parametrize(("case", "times"), MEASURED.items(), ids=str)
def test_fit_to_the_measured_convolutions(case: tuple[tuple[int, ...], str, DType], times: tuple[int, int]) -> None:
    sizes, kind, dtype = case
    found = engines(*conv(kind, *sizes, dtype=dtype), H200, "tf32")
    assert found[-1].us == pytest.approx(times[0], rel=0.35)
    assert found[0].us == pytest.approx(times[1], rel=0.35)
    assert found[0].workspace_bytes == 0
    assert found[-1].workspace_bytes <= 8_700_000


@pytest.mark.parametrize(("precision", "tflops"), [("fp32", 51), ("tf32", 420)])
def test_fit_to_the_measured_products(precision: Precision, tflops: int) -> None:
    (engine,) = engines(*matmul(4096, 4096, 4096), H200, precision)
    assert 2 * 4096**3 / engine.us / 1e6 == pytest.approx(tflops, rel=0.15)


def test_a_few_megabytes_buy_filter_gradients_much_time() -> None:
    found = engines(*conv("conv_filter", 64, 256, 56, 128, 1, 0, dtype=B), H200, "bf16")
    assert found[0].us > 5 * found[-1].us
    # One float32 copy of the 128 x 256 filter for each of 132 / 2 pieces.
    assert found[-1].workspace_bytes == 4 * 128 * 256 * 66


def test_filter_gradients_with_enough_tiles_need_no_pieces() -> None:
    found = engines(*conv("conv_filter", 32, 2048, 14, 1024, 3, 1), H200, "tf32")
    assert [engine.workspace_bytes for engine in found] == [0]


def test_products() -> None:
    assert product(*conv("conv", 8, 6, 10, 4, 3, 1)) == Product(m=800, n=4, k=54, batch=1)
    assert product(*conv("conv_transpose", 8, 6, 10, 4, 3, 1)) == Product(m=800, n=6, k=36, batch=1)
    assert product(*conv("conv_filter", 8, 6, 10, 4, 3, 1)) == Product(m=4, n=54, k=800, batch=1)
    assert product(*conv("conv", 8, 6, 10, 4, 3, 1, stride=2, group=2)) == Product(m=200, n=2, k=27, batch=2)
    assert product(*matmul(5, 6, 7)) == Product(m=5, n=6, k=7, batch=1)
    assert product(*matmul(5, 6, 7, batch=(2, 3))) == Product(m=5, n=6, k=7, batch=6)


def test_a_batched_product_with_one_matrix_is_one_product() -> None:
    op, _ = matmul(5, 6, 7)
    specs = (Spec(F, (3, 4, 5, 7)), Spec(F, (7, 6)))
    assert product(op, specs) == Product(m=60, n=6, k=7, batch=1)


@pytest.mark.parametrize("kind", ["conv", "conv_transpose", "conv_filter"])
def test_the_product_does_the_ops_arithmetic(kind: str) -> None:
    for stride, group in ((1, 1), (2, 1), (1, 2)):
        op, specs = conv(kind, 8, 6, 12, 4, 3, 1, stride=stride, group=group)
        found = product(op, specs)
        outputs = KINDS[kind].infer(specs, op.attrs)
        assert 2 * found.batch * found.m * found.n * found.k == KINDS[kind].flops(specs, outputs, op.attrs)


def test_tiles_and_splits() -> None:
    found = Product(m=129, n=128, k=1024, batch=3)
    assert (found.tiles, found.splits) == (6, 2)
    assert Product(m=1, n=1, k=1, batch=1).splits == 1


def test_efficiency_falls_for_narrow_short_and_few_tiles() -> None:
    big = reached_flops(Product(m=4096, n=4096, k=4096, batch=1), F, H200, "tf32")
    assert big < H200.tf32_flops * H200.compute_percent / 100
    narrow = reached_flops(Product(m=4096, n=16, k=4096, batch=1), F, H200, "tf32")
    short = reached_flops(Product(m=4096, n=4096, k=16, batch=1), F, H200, "tf32")
    few = reached_flops(Product(m=128, n=128, k=128, batch=1), F, H200, "tf32")
    assert narrow < big / 3
    assert short < big / 5
    assert few < big / 100


def test_tensor_cores_never_make_a_product_slower() -> None:
    for n in (1, 8, 64, 512):
        shape = Product(m=100_000, n=n, k=9, batch=1)
        assert reached_flops(shape, F, H200, "tf32") >= reached_flops(shape, F, H200, "fp32")


def test_rates_follow_the_operands_type() -> None:
    shape = Product(m=4096, n=4096, k=4096, batch=1)
    half = reached_flops(shape, DType.FLOAT16, H200, "fp32")
    assert half == reached_flops(shape, F, H200, "fp16") > 2 * reached_flops(shape, F, H200, "tf32") * 0.99
    assert reached_flops(shape, DType.FLOAT64, H200, "tf32") < reached_flops(shape, F, H200, "fp32")


def test_depthwise_convolutions_are_near_their_memory_traffic() -> None:
    found = engines(*conv("conv", 64, 32, 112, 32, 3, 1, group=32), H200, "tf32")
    traffic_us = 2 * 64 * 32 * 112 * 112 * 4 / 4.3e6
    assert traffic_us < found[-1].us < 6 * traffic_us


def test_classic_engines_of_a_3x3_convolution_on_a_titan_xp() -> None:
    op, specs = conv("conv", 100, 384, 13, 384, 3, 1)
    found = engines(op, specs, load_device("titan-xp"), "fp32")
    assert [engine.id for engine in found] == [0, 1, 3]
    images, weights = 2 * 100 * 384 * 13 * 13 * 4, 384 * 384 * 9 * 4
    assert [engine.workspace_bytes for engine in found] == [0, 4 * 384 * 9, images * 9 // 4 + weights * 4]


def test_classic_engines_of_a_5x5_convolution_on_a_k40c() -> None:
    op, specs = conv("conv", 10, 96, 27, 256, 5, 2)
    found = engines(op, specs, load_device("k40c"), "fp32")
    assert [engine.id for engine in found] == [0, 1, 4]
    images = 10 * (96 + 256) * 27 * 27 * 4
    assert found[-1].workspace_bytes == 2 * images + 96 * 256 * 27 * 27 * 4


@pytest.mark.parametrize(("stride", "group", "r"), [(2, 1, 3), (1, 2, 3), (1, 1, 1), (4, 1, 11)])
def test_fast_algorithms_take_plain_convolutions_only(stride: int, group: int, r: int) -> None:
    op, specs = conv("conv", 10, 96, 27, 96, r, r // 2, stride=stride, group=group)
    assert {engine.id for engine in engines(op, specs, load_device("k40c"), "fp32")} <= {0, 1}


def test_a_profile_comes_first() -> None:
    op, specs = conv("conv", 2, 4, 8, 4, 3, 1)
    measured = [
        Engine(id=17, workspace_bytes=4096, us=3),
        Engine(id=2, workspace_bytes=0, us=9),
        Engine(id=5, workspace_bytes=8192, us=4),
    ]
    ops = [MeasuredOp(signature=signature("conv", specs, op.attrs, "tf32"), engines=measured)]
    device = replace(H200, profile=Profile(format=FORMAT, device=H200.summary(), versions={}, ops=ops))
    assert engines(op, specs, device, "tf32") == (measured[1], measured[0])
    assert engines(op, specs, device, "fp32") == engines(op, specs, H200, "fp32")


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Op, tuple[Spec, ...]]:
    r = draw(st.sampled_from((1, 3, 5, 7)))
    group = draw(st.sampled_from((1, 2)))
    return conv(
        draw(st.sampled_from(("conv", "conv_transpose", "conv_filter"))),
        draw(st.sampled_from((1, 3, 64))),
        group * draw(st.sampled_from((1, 16, 96, 512))),
        draw(st.sampled_from((7, 28, 57))),
        group * draw(st.sampled_from((1, 8, 128, 1000))),
        r,
        r // 2,
        dtype=draw(st.sampled_from((F, B, DType.FLOAT16, DType.FLOAT64))),
        stride=draw(st.sampled_from((1, 2))),
        group=group,
    )


@given(
    convolutions(),
    st.sampled_from([load_device(name) for name in device_names()]),
    st.sampled_from(("fp32", "tf32", "bf16", "fp16")),
)
@settings(max_examples=150, deadline=None)
def test_engines_trade_workspace_for_time(
    case: tuple[Op, tuple[Spec, ...]], device: Device, precision: Precision
) -> None:
    found = engines(*case, device, precision)
    assert found[0].workspace_bytes == 0
    assert all(type(value) is int for engine in found for value in (engine.id, engine.workspace_bytes, engine.us))
    assert all(engine.us >= 1 for engine in found)
    assert len({engine.id for engine in found}) == len(found)
    for smaller, larger in pairwise(found):
        assert smaller.workspace_bytes < larger.workspace_bytes
        assert smaller.us > larger.us
