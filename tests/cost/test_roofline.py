"""Op times: formulas by hand, views, profiles, and what must hold of every op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest

from snplan.cost.device import PRECISIONS, device_names, load_device
from snplan.cost.engines import engines
from snplan.cost.profile import FORMAT, Engine, MeasuredOp, Profile, signature
from snplan.cost.roofline import op_cost, op_costs
from snplan.ir import DType, Graph, Op, Spec, Tensor

F = DType.FLOAT32
H200 = load_device("h200")


def graph(sources: dict[str, Spec], ops: Sequence[tuple[Op, Sequence[Spec]]]) -> Graph:
    """A graph of ops, each with the specs of its outputs."""
    tensors = {name: Tensor(name=name, spec=spec) for name, spec in sources.items()}
    for op, outputs in ops:
        tensors |= {name: Tensor(name=name, spec=spec) for name, spec in zip(op.outputs, outputs, strict=True)}
    return Graph(tensors=tensors, ops=tuple(op for op, _ in ops), sources=tuple(sources), outputs=())


def op(kind: str, inputs: str, outputs: str, **attrs: Any) -> Op:
    return Op(name=outputs, kind=kind, inputs=tuple(inputs.split()), outputs=tuple(outputs.split()), attrs=attrs)


def cost_of(kind: str, specs: dict[str, Spec], output: Spec, device: str = "h200", **attrs: Any) -> int:
    only = graph(specs, [(op(kind, " ".join(specs), "y", **attrs), [output])])
    (cost,) = op_costs(only, load_device(device), "fp32").tolist()
    assert type(cost) is int
    return cost


def test_an_elementwise_op_takes_its_traffic() -> None:
    # 2^28 B in and out at 90 % of 4.8 TB/s: 124.3 us, and 1 us of launch.
    spec = Spec(F, (1 << 26,))
    assert cost_of("relu", {"x": spec}, spec) == ceil(2 * (1 << 28) / 4.32e6) + 1 == 126


def test_the_same_op_on_a_k40c() -> None:
    # 70 % of 288 GB/s; 4 us of launch.
    spec = Spec(F, (1 << 26,))
    assert cost_of("relu", {"x": spec}, spec, "k40c") == ceil(2 * (1 << 28) / 201_600) + 4 == 2668


def test_fit_to_the_measured_batch_norm() -> None:
    x, vector = Spec(F, (256, 256, 56, 56)), Spec(F, (256,))
    train = op("batch_norm_train", "x s b", "y mean var", epsilon=1e-5)
    found = op_costs(graph({"x": x, "s": vector, "b": vector}, [(train, [x, vector, vector])]), H200, "tf32")
    assert found[0] == pytest.approx(730, rel=0.05)


def test_nothing_is_free() -> None:
    empty = Spec(F, (0,))
    assert cost_of("relu", {"x": empty}, empty) >= 1
    free = replace(H200, graph_launch_us=0)
    assert op_cost(op("relu", "x", "y"), [empty], [empty], free, "fp32") == 1


def test_a_product_takes_its_arithmetic() -> None:
    # 2 * 4096^3 operations; 80 % of 66.9 TFLOP/s, 4096 / 4112 for the width and 4096 / 4128 for the depth.
    square = Spec(F, (4096, 4096))
    rate = 0.8 * 66.9e6 * 4096 / 4112 * 4096 / 4128
    found = cost_of("matmul", {"a": square, "b": square}, square, trans_a=False, trans_b=False, alpha=1.0)
    assert found == ceil(2 * 4096**3 / rate) + 1 == 2600


def test_float64_runs_at_its_own_rate() -> None:
    square = Spec(DType.FLOAT64, (4096, 4096))
    found = cost_of("matmul", {"a": square, "b": square}, square, trans_a=False, trans_b=False, alpha=1.0)
    assert found > 1.9 * 2600


@pytest.mark.parametrize(("device", "faster"), [("h200", True), ("a100", True), ("k40c", False), ("v100", False)])
def test_tf32_helps_where_there_is_tf32(device: str, faster: bool) -> None:
    square = Spec(F, (2048, 2048))
    product = graph(
        {"a": square, "b": square}, [(op("matmul", "a b", "y", trans_a=False, trans_b=False, alpha=1.0), [square])]
    )
    fp32, tf32, bf16, fp16 = (int(op_costs(product, load_device(device), precision)[0]) for precision in PRECISIONS)
    assert (tf32 < fp32) == faster
    assert fp16 <= bf16 <= tf32


def test_convolutions_cost_their_fastest_engine() -> None:
    x, w, y = Spec(F, (64, 64, 56, 56)), Spec(F, (64, 64, 3, 3)), Spec(F, (64, 64, 56, 56))
    conv = op("conv", "x w", "y", strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], group=1)
    costs = op_costs(graph({"x": x, "w": w}, [(conv, [y])]), H200, "tf32")
    assert costs.tolist() == [min(engine.us for engine in engines(conv, (x, w), H200, "tf32"))]


def test_inputs_are_seen_through_views() -> None:
    flat, square, other = Spec(F, (512 * 512,)), Spec(F, (512, 512)), Spec(F, (512, 1024))
    attrs = {"trans_a": False, "trans_b": False, "alpha": 1.0}
    viewed = op("matmul", "x w", "y", **attrs, in_shapes=[[512, 512], None])
    plain = op("matmul", "x w", "y", **attrs)
    costs = [
        op_costs(graph({"x": x, "w": other}, [(found, [other])]), H200, "fp32").tolist()
        for x, found in ((flat, viewed), (square, plain))
    ]
    assert costs[0] == costs[1]


def test_two_views_of_one_tensor_are_told_apart() -> None:
    flat = Spec(F, (1 << 20,))
    attrs = {"trans_a": False, "trans_b": False, "alpha": 1.0}
    thin = op("matmul", "x w", "y", **attrs, in_shapes=[[1 << 19, 2], [2, 1 << 19]])
    fat = op("matmul", "x w", "z", **attrs, in_shapes=[[2, 1 << 19], [1 << 19, 2]])
    tall, small = Spec(F, (1 << 19, 1 << 19)), Spec(F, (2, 2))
    costs = op_costs(graph({"x": flat, "w": flat}, [(thin, [tall]), (fat, [small])]), H200, "fp32")
    assert costs[0] > 1000 * costs[1]


def test_costs_come_in_the_order_of_ops() -> None:
    small, large = Spec(F, (10,)), Spec(F, (10**8,))
    ops = [(op("relu", "s", "a"), [small]), (op("relu", "l", "b"), [large]), (op("tanh", "s", "c"), [small])]
    costs = op_costs(graph({"s": small, "l": large}, ops), H200, "fp32")
    assert costs.dtype == np.int64
    assert costs[0] == costs[2] < costs[1]


def test_no_ops() -> None:
    assert op_costs(graph({}, []), H200, "fp32").shape == (0,)


def test_a_profile_comes_first() -> None:
    spec, other = Spec(F, (1 << 26,)), Spec(F, (1 << 25,))
    measured = MeasuredOp(
        signature=signature("relu", [spec], {}, "fp32"), engines=[Engine(id=0, workspace_bytes=0, us=77)]
    )
    profile = Profile(format=FORMAT, device=H200.summary(), versions={}, ops=[measured])
    device = replace(H200, profile=profile)
    found = graph({"x": spec, "z": other}, [(op("relu", "x", "y"), [spec]), (op("relu", "z", "u"), [other])])
    assert op_costs(found, device, "fp32").tolist() == [77, op_costs(found, H200, "fp32")[1]]


@pytest.mark.parametrize("name", device_names())
def test_faster_memory_is_never_slower(name: str) -> None:
    device = load_device(name)
    spec = Spec(F, (1 << 20,))
    fast = replace(device, memory_bytes_per_s=2 * device.memory_bytes_per_s)
    add = op("add", "x x", "y")
    assert op_cost(add, [spec, spec], [spec], fast, "fp32") <= op_cost(add, [spec, spec], [spec], device, "fp32")


def test_more_elements_never_cost_less() -> None:
    costs = [cost_of("softmax", {"x": Spec(F, (n, 100))}, Spec(F, (n, 100)), axis=1) for n in range(1, 100_000, 9_999)]
    assert costs == sorted(costs)
