"""Convolutions and matrix products on a real device, against NumPy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_ops import run_op
from runtime_support import normal

from snplan.codegen.operand import operand
from snplan.ir import DType, Spec
from snplan.plan.pieces import in_pieces
from snplan.runtime.cuda.convolution import convolution
from snplan.runtime.cuda.cudnn import Cudnn, Mode
from snplan.runtime.cuda.driver import DriverGpu
from snplan.runtime.numpy import KERNELS, Array, Context

pytestmark = pytest.mark.cuda

CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "3x3": {"x": (2, 16, 12, 10), "w": (8, 16, 3, 3), "pads": [1, 1, 1, 1]},
    "1x1": {"x": (2, 32, 9, 9), "w": (64, 32, 1, 1), "pads": [0] * 4},
    "odd_channels": {"x": (3, 3, 17, 19), "w": (7, 3, 5, 3), "pads": [2, 1, 2, 1], "strides": [2, 1]},
    "groups": {"x": (2, 12, 8, 8), "w": (18, 4, 3, 3), "pads": [1] * 4, "group": 3},
    "depthwise": {"x": (2, 24, 9, 9), "w": (24, 1, 3, 3), "pads": [1] * 4, "group": 24},
    "dilated": {"x": (2, 8, 15, 15), "w": (16, 8, 3, 3), "pads": [2] * 4, "dilations": [2, 2]},
    "asymmetric": {"x": (2, 8, 9, 9), "w": (16, 8, 3, 3), "pads": [0, 0, 1, 1], "strides": [2, 2]},
    "one_axis": {"x": (4, 8, 30), "w": (16, 8, 5), "pads": [2, 2]},
    "three_axes": {"x": (2, 4, 6, 7, 8), "w": (8, 4, 3, 3, 3), "pads": [1] * 6},
    "first_layer": {"x": (4, 3, 32, 32), "w": (16, 3, 7, 7), "pads": [3] * 4, "strides": [2, 2]},
}


def window(case: dict[str, Any]) -> dict[str, Any]:
    """Attributes of a case."""
    axes = len(case["x"]) - 2
    ones = [1] * axes
    return {
        "strides": case.get("strides", ones),
        "pads": case["pads"],
        "dilations": case.get("dilations", ones),
        "group": case.get("group", 1),
    }


def expected(kind: str, inputs: list[Array], attrs: dict[str, Any]) -> Array:
    """In double precision."""
    return KERNELS[kind]([x.astype(np.float64) for x in inputs], attrs, Context())[0]


def distance(a: Array, b: Array) -> float:
    """Relative L2."""
    return float(np.linalg.norm(a.astype(np.float64) - b)) / max(float(np.linalg.norm(b)), 1e-300)


def directions(case: dict[str, Any]) -> list[tuple[str, list[Array], dict[str, Any]]]:
    """Kind, inputs and attributes of a convolution forward, with a bias, and of its two gradients."""
    attrs = window(case)
    x, w = normal(*case["x"]), normal(*case["w"], seed=1)
    y = expected("conv", [x, w], attrs)
    dy, bias = normal(*y.shape, seed=2), normal(y.shape[1], seed=3)
    return [
        ("conv", [x, w], attrs),
        ("conv", [x, w, bias], attrs),
        ("conv_transpose", [dy, w], {**attrs, "shape": list(x.shape)}),
        ("conv_filter", [x, dy], {**attrs, "shape": list(w.shape)}),
    ]


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("workspace", [None, 32 << 20], ids=["none", "32M"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str, workspace: int | None, precision: str) -> None:
    """All three directions, and a bias, with and without a workspace."""
    calls = directions(CONVOLUTIONS[name])
    bound = 2e-3 if precision == "tf32" else 2e-6
    for kind, inputs, given in calls:
        (found,) = run_op(kind, inputs, given, workspace=workspace, precision=precision)
        assert distance(found, expected(kind, inputs, given)) <= bound, (kind, len(inputs))


PIECES: list[tuple[str, int]] = [("3x3", 2), ("3x3", 4), ("3x3", 8), ("5x5", 4), ("1x1", 4), ("strided", 2)]
CUT: dict[str, dict[str, Any]] = {
    "3x3": {"x": (16, 32, 28, 28), "w": (64, 32, 3, 3), "pads": [1] * 4},
    "5x5": {"x": (16, 16, 27, 28), "w": (32, 16, 5, 5), "pads": [2] * 4},
    "1x1": {"x": (11, 64, 14, 14), "w": (32, 64, 1, 1), "pads": [0] * 4},
    "strided": {"x": (7, 16, 32, 32), "w": (32, 16, 3, 3), "pads": [1] * 4, "strides": [2, 2]},
}


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize(("name", "pieces"), PIECES)
def test_pieces_of_the_batch(name: str, pieces: int, precision: str) -> None:
    """In pieces as whole, and as in double precision: all three directions, a bias, batches that do not divide."""
    calls = directions(CUT[name])
    bound = 2e-3 if precision == "tf32" else 2e-6
    for kind, inputs, given in calls:
        (whole,) = run_op(kind, inputs, given, workspace=32 << 20, precision=precision)
        engine = in_pieces(0, pieces)
        runs = [
            run_op(kind, inputs, given, workspace=32 << 20, engine=engine, precision=precision, deterministic=True)[0]
            for _ in range(2)
        ]
        assert runs[0].tobytes() == runs[1].tobytes(), kind
        assert distance(runs[0], expected(kind, inputs, given)) <= bound, kind
        assert distance(runs[0], whole.astype(np.float64)) <= 2 * bound, kind


def test_every_engine_in_pieces() -> None:
    """Engines by name, each with the workspace that a piece of it needs and a partial filter."""
    attrs: dict[str, Any] = {"strides": [1, 1], "pads": [1] * 4, "dilations": [1, 1], "group": 1}
    x, w, dy = normal(8, 32, 28, 28), normal(64, 32, 3, 3, seed=1), normal(8, 64, 28, 28, seed=2)
    for kind, inputs, given in plain_directions(x, w, dy, attrs):
        right = expected(kind, inputs, given)
        parts = [inputs[0][:2], inputs[1][:2] if kind == "conv_filter" else inputs[1]]
        piece = {**given, "shape": [2, *given["shape"][1:]]} if kind == "conv_transpose" else given
        offered = engines_of(kind, parts, expected(kind, parts, piece), piece)
        assert offered
        for number, name, workspace in offered:
            (found,) = run_op(
                kind,
                inputs,
                given,
                workspace=w.nbytes + max(workspace, 1),
                engine=in_pieces(number, 4),
                precision="fp32",
            )
            assert distance(found, right) <= 1e-5, (kind, name)


def plain_directions(
    x: Array, w: Array, dy: Array, attrs: dict[str, Any]
) -> list[tuple[str, list[Array], dict[str, Any]]]:
    """Kind, inputs and attributes of a convolution and of its two gradients."""
    return [
        ("conv", [x, w], attrs),
        ("conv_transpose", [dy, w], {**attrs, "shape": list(x.shape)}),
        ("conv_filter", [x, dy], {**attrs, "shape": list(w.shape)}),
    ]


def engines_of(kind: str, inputs: list[Array], result: Array, attrs: dict[str, Any]) -> list[tuple[int, str, int]]:
    """Id, name and workspace of each engine that can be built in fp32."""
    gpu = DriverGpu()
    with gpu.current():
        library = Cudnn(gpu.stream(), Mode(tf32=False, deterministic=False))
        operands = [operand(Spec(DType.FLOAT32, x.shape), "channels_last") for x in (*inputs, result)]
        problem = convolution(kind, operands[:-1], operands[-1:], attrs)
        found = [(engine.id, engine.name, engine.build()) for engine in library.engines(problem)]
        library.close()
    return [(number, name, size) for number, name, size in found if size is not None]


@pytest.mark.parametrize("size", [3, 5])
def test_every_engine_of_fp32_is_exact(size: int) -> None:
    """None rounds operands or loses digits in a transform, also where results are small sums of large terms."""
    pads = [size // 2] * 4
    attrs: dict[str, Any] = {"strides": [1, 1], "pads": pads, "dilations": [1, 1], "group": 1}
    x, w = normal(4, 32, 27, 27), normal(64, 32, size, size, seed=1)
    dy = normal(4, 64, 27, 27, seed=2) * (np.random.default_rng(3).random((4, 64, 27, 27)) < 0.05).astype(np.float32)
    for kind, inputs, given in plain_directions(x, w, dy, attrs):
        right = expected(kind, inputs, given)
        offered = engines_of(kind, inputs, right, given)
        assert offered
        for number, name, workspace in offered:
            (found,) = run_op(kind, inputs, given, workspace=max(workspace, 1), engine=number, precision="fp32")
            assert distance(found, right) <= 1e-5, (kind, name)


PRODUCTS: dict[str, dict[str, Any]] = {
    "plain": {"a": (33, 65), "b": (65, 17)},
    "trans_a": {"a": (65, 33), "b": (65, 17), "trans_a": True},
    "trans_b": {"a": (33, 65), "b": (17, 65), "trans_b": True, "alpha": 0.5},
    "both": {"a": (65, 33), "b": (17, 65), "trans_a": True, "trans_b": True},
    "bias_columns": {"a": (32, 64), "b": (64, 16), "bias": (16,)},
    "bias_rows": {"a": (32, 64), "b": (64, 16), "bias": (32, 1)},
    "bias_whole": {"a": (3, 32, 64), "b": (64, 16), "bias": (3, 32, 16)},
    "batch": {"a": (3, 4, 8, 16), "b": (3, 4, 16, 8)},
    "batch_right": {"a": (8, 16), "b": (5, 16, 8)},
    "batch_left": {"a": (5, 7, 8, 16), "b": (16, 8)},
    "batch_mixed": {"a": (3, 1, 8, 16), "b": (1, 4, 16, 8)},
    "batch_transposed": {"a": (6, 16, 9), "b": (6, 16, 8), "trans_a": True},
    "one_row": {"a": (1, 100), "b": (100, 7)},
    "one_column": {"a": (10, 100), "b": (100, 1)},
    "inner_one": {"a": (10, 1), "b": (1, 12)},
    "inner_none": {"a": (10, 0), "b": (0, 12), "bias": (12,)},
    "empty": {"a": (0, 8), "b": (8, 12)},
    "double": {"a": (20, 30), "b": (30, 10), "dtype": np.float64, "bias": (10,)},
    "long": {"a": (64, 4096), "b": (4096, 64)},
}


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name: str, precision: str) -> None:
    """Shapes, transposes, broadcast batches, biases of all kinds; fp32 is not TF32 in secret."""
    case = PRODUCTS[name]
    attrs = {"trans_a": case.get("trans_a", False), "trans_b": case.get("trans_b", False)}
    attrs["alpha"] = case.get("alpha", 1.0)
    dtype = case.get("dtype", np.float32)
    inputs = [normal(*case[key], seed=seed, dtype=dtype) for seed, key in enumerate(("a", "b", "bias")) if key in case]
    (found,) = run_op("matmul", inputs, attrs, precision=precision)
    right = expected("matmul", inputs, attrs)
    assert found.shape == right.shape
    bound = 1e-14 if dtype is np.float64 else 2e-3 if precision == "tf32" else 2e-6
    assert distance(found, right) <= bound


def test_tf32_is_used() -> None:
    """The modes differ: TF32 rounds operands to 11 bits."""
    inputs = [normal(256, 512), normal(512, 256, seed=1)]
    attrs = {"trans_a": False, "trans_b": False, "alpha": 1.0}
    right = expected("matmul", inputs, attrs)
    assert distance(run_op("matmul", inputs, attrs, precision="fp32")[0], right) < 1e-6
    assert distance(run_op("matmul", inputs, attrs, precision="tf32")[0], right) > 1e-5
