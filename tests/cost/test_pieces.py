"""Engines in pieces of the batch: workspace and time by hand, limits, profiles, and plans made with them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from cost.test_engines import conv, convolutions
from hypothesis import given, settings
from hypothesis import strategies as st

from snplan import models
from snplan.compiler import CompileOptions, compile_model
from snplan.cost.device import Device, device_names, load_device
from snplan.cost.engines import Engine, engines
from snplan.cost.profile import FORMAT, MeasuredOp, Profile, merged, signature
from snplan.cost.roofline import op_cost
from snplan.cost.timed import op_times, plan_timeline
from snplan.ir import DType, Op, Spec
from snplan.ops import KINDS
from snplan.plan.model import Algorithm
from snplan.plan.pieces import in_pieces, pieces_of

P100 = load_device("p100")
LAUNCH = 3
# 16 images of 64 x 56 x 56 floats, twice, and 64 filters of 64 x 3 x 3.
IMAGES, FILTER = 2 * 16 * 64 * 56 * 56 * 4, 64 * 64 * 9 * 4


def by_id(kind: str, n: int, pieces: int = 1, device: Device = P100) -> dict[int, Engine]:
    op, specs = conv(kind, n, 64, 56, 64, 3, 1)
    return {engine.id: engine for engine in engines(op, specs, device, "fp32", pieces=pieces)}


def moved_us(size: int) -> float:
    return size / (P100.memory_bytes_per_s * P100.memory_percent / 100) * 1e6


@pytest.mark.parametrize("kind", ["conv", "conv_transpose"])
def test_forward_by_hand(kind: str) -> None:
    """Winograd's workspace is 36/16 of the piece's images and 36/9 of the filter, whose transform is made again."""
    assert P100.graph_launch_us == LAUNCH
    whole, part, cut = by_id(kind, 16)[3], by_id(kind, 4)[3], by_id(kind, 16, pieces=4)
    engine = cut[in_pieces(3, 4)]
    assert engine.workspace_bytes == IMAGES // 4 * 9 // 4 + 4 * FILTER == 15_040_512
    assert whole.workspace_bytes == 58_392_576
    assert 4 * part.us >= whole.us
    again = 3 * 4 * FILTER  # transforms of the filter for three more pieces: written and read
    assert engine.us == 4 * part.us + ceil(moved_us(2 * again)) + 3 * 3 * LAUNCH
    assert engine.us > whole.us


def test_filter_gradient_by_hand() -> None:
    """A partial filter beside the workspace, and three sums that read two filters and write one."""
    part, cut = by_id("conv_filter", 4)[3], by_id("conv_filter", 16, pieces=4)
    engine = cut[in_pieces(3, 4)]
    assert engine.workspace_bytes == FILTER + part.workspace_bytes == 147_456 + 15_040_512
    sums = 3 * (ceil(moved_us(3 * FILTER)) + LAUNCH)
    assert engine.us == 4 * part.us + ceil(moved_us(2 * 3 * 4 * FILTER)) + 3 * 3 * LAUNCH + sums


def test_a_smaller_last_piece() -> None:
    """11 images are 6 and 5: the workspace is that of 6."""
    cut = by_id("conv", 11, pieces=2)[in_pieces(3, 2)]
    six, five = by_id("conv", 6)[3], by_id("conv", 5)[3]
    assert cut.workspace_bytes == six.workspace_bytes
    assert cut.us == six.us + five.us + ceil(moved_us(2 * 4 * FILTER)) + 3 * LAUNCH


def test_limits() -> None:
    """At most as many pieces as allowed; by default none; an engine without workspace is never cut."""
    assert {pieces_of(engine)[1] for engine in by_id("conv", 16)} == {1}
    assert {pieces_of(engine)[1] for engine in by_id("conv", 16, pieces=3)} == {1, 2}
    assert {pieces_of(engine) for engine in by_id("conv", 16, pieces=8)} <= {
        *((each, 1) for each in (0, 1, 3)),
        *((3, pieces) for pieces in (2, 4, 8)),
    }


def test_half_precision_filter_gradients_are_whole() -> None:
    op, specs = conv("conv_filter", 16, 64, 56, 64, 3, 1, dtype=DType.BFLOAT16)
    assert engines(op, specs, load_device("h200"), "bf16", pieces=8) == engines(op, specs, load_device("h200"), "bf16")


@given(
    convolutions(), st.sampled_from([load_device(name) for name in device_names()]), st.sampled_from(("fp32", "tf32"))
)
@settings(max_examples=100, deadline=None)
def test_whole_engines_stay_and_few_are_added(
    case: tuple[Op, tuple[Spec, ...]], device: Device, precision: Any
) -> None:
    """The fastest is whole, each whole engine is there or beaten, and the list stays a Pareto front of a dozen."""
    whole, found = engines(*case, device, precision), engines(*case, device, precision, pieces=8)
    assert found[-1] == whole[-1]
    assert found[0].workspace_bytes == 0
    assert len(found) <= 12
    for engine in whole:
        assert any(e.workspace_bytes <= engine.workspace_bytes and e.us <= engine.us for e in found)
    for smaller, larger in pairwise(found):
        assert smaller.workspace_bytes < larger.workspace_bytes
        assert smaller.us > larger.us


def profiled() -> tuple[Op, tuple[Spec, ...], Device]:
    """A device that measured a convolution whole, and in 2 and 4 pieces, of which 4 came out the fastest."""
    op, specs = conv("conv", 8, 4, 8, 4, 3, 1)
    measured = [
        Engine(id=17, workspace_bytes=8192, us=30),
        Engine(id=18, workspace_bytes=0, us=90),
        Engine(id=in_pieces(17, 2), workspace_bytes=4096, us=33),
        Engine(id=in_pieces(17, 4), workspace_bytes=2048, us=29, deterministic=False),
    ]
    ops = [MeasuredOp(signature=signature("conv", specs, op.attrs, "fp32"), engines=measured)]
    profile = Profile(format=FORMAT, device=P100.summary(), versions={}, ops=ops)
    return op, specs, replace(P100, profile=profile)


def test_profiles() -> None:
    """Measured pieces are taken where they are allowed, and by the rules of all others."""
    op, specs, device = profiled()

    def ids(**options: Any) -> list[int]:
        return [engine.id for engine in engines(op, specs, device, "fp32", **options)]

    assert ids() == [18, 17]
    assert ids(pieces=2) == [18, in_pieces(17, 2), 17]
    assert ids(pieces=8) == [18, in_pieces(17, 4)]
    assert ids(pieces=8, deterministic=True) == [18, in_pieces(17, 2), 17]
    outputs = KINDS["conv"].infer(specs, op.attrs)
    assert op_cost(op, specs, outputs, device, "fp32") == 30
    assert op_cost(op, specs, outputs, device, "fp32", pieces=8) == 29


def test_merged_profiles_keep_what_some_plan_takes() -> None:
    _, _, device = profiled()
    assert device.profile is not None
    (row,) = merged([device.profile]).ops
    assert {engine.id for engine in row.engines} == {17, 18, in_pieces(17, 2), in_pieces(17, 4)}


def test_a_plan_with_pieces(tmp_path: Path) -> None:
    """The option is in the plan, which is sound and as fast as the simulator says; by default nothing changes."""
    path = tmp_path / "m.onnx"
    models.save(models.build("vgg16", batch=8, image=64, width=0.25, classes=10), path)
    options: dict[str, Any] = {"reserve_bytes": 0, "device": "p100"}
    keep_all = compile_model(path, CompileOptions(budget_bytes=1 << 40, **options)).report
    budget = keep_all["floor_bytes"] + (keep_all["keep_all_bytes"] - keep_all["floor_bytes"]) // 8
    plain = compile_model(path, CompileOptions(budget_bytes=budget, **options)).plan
    cut = compile_model(path, CompileOptions(budget_bytes=budget, conv_pieces=8, **options)).plan
    assert "conv_pieces" not in plain.options
    assert cut.options["conv_pieces"] == 8
    assert cut.floor_bytes == plain.floor_bytes
    used = {action.op: action.engine for action in cut.actions if isinstance(action, Algorithm)}
    assert any(pieces_of(engine)[1] > 1 for engine in used.values())
    assert cut.step_time_us < plain.step_time_us
    assert plan_timeline(cut).step_time_us == cut.step_time_us
    times = op_times(cut, P100)
    assert all(times(op, engine) >= times(op, None) for op, engine in used.items())
