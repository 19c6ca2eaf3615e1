"""Convolution engines: workspaces that take everything, listed engines that do not run, math modes in secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from cuda_fake import FakeGpu, NumpyOnDevice
from faults.support import made, saved
from frontend_support import info, model, node, run, tensor
from onnx import ModelProto, TensorProto

from snplan.cli import main
from snplan.compiler import CompileOptions, compile_model
from snplan.cost.device import load_device
from snplan.cost.profile import FORMAT, Engine, MeasuredOp, Profile, save_profile, signature
from snplan.frontend import import_model, load_model
from snplan.ir import Spec
from snplan.ops import input_specs
from snplan.plan.file import decode_plan, encode_plan
from snplan.plan.model import Algorithm, Run, StepPlan
from snplan.plan.verify import verify
from snplan.report.compiled import compile_tables
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.cuda.calls import DeviceCall
from snplan.runtime.cuda.profile import Profiled
from snplan.runtime.session import TrainingSession

GIB = 1 << 30
FAST, STEADY, PLAIN = 100, 101, 102


def weight(name: str, *shape: int) -> TensorProto:
    """A weight without values: planning needs none."""
    return TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)


def large_pair() -> ModelProto:
    """Two convolutions over images of 1024 x 1024: 12 MiB go in, 3 GiB lie between, 3 GiB come out."""
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["x", "w1"], ["h"], "first", **window),
        node("Conv", ["h", "w2"], ["y"], "second", **window),
    ]
    stored = [weight("w1", 256, 1, 3, 3), weight("w2", 256, 256, 3, 3)]
    return model(nodes, [info("x", [3, 1, 1024, 1024])], ["y"], stored)


def profile(proto: ModelProto, path: Path, engines: list[Engine]) -> Path:
    """A profile in which every convolution of the model's forward pass has these engines."""
    graph = import_model(load_model(proto.SerializeToString()), mode="infer").graph
    ops = {}
    for op in graph.ops:
        if op.kind == "conv":
            specs: list[Spec] = list(input_specs(op, graph.tensors))
            key = signature(op.kind, specs, op.attrs, "fp32")
            ops[key] = MeasuredOp(signature=key, engines=engines)
    device = load_device("h200").summary()
    save_profile(Profile(format=FORMAT, device=device, versions={}, ops=list(ops.values())), path)
    return path


def made_without_values(proto: ModelProto, folder: Path, budget: int, **options: Any) -> StepPlan:
    """The plan for inference of a model whose weights have no values."""
    chosen = CompileOptions(budget_bytes=budget, reserve_bytes=0, mode="infer", **options)
    return compile_model(saved(proto, folder), chosen).plan


def test_a_huge_workspace_is_taken_where_it_fits_and_not_where_it_does_not(tmp_path: Path) -> None:
    """36 GiB for the fast engine, 40 GiB in all: 3 GiB are live beside it at the first layer, 6 GiB at the second."""
    engines = [Engine(id=FAST, workspace_bytes=36 * GIB, us=10), Engine(id=PLAIN, workspace_bytes=0, us=10_000)]
    table = profile(large_pair(), tmp_path / "p.json", engines)
    plan_of = made_without_values(large_pair(), tmp_path, 40 * GIB, device=str(table))
    chosen = {a.op: a for a in plan_of.actions if isinstance(a, Algorithm)}
    assert {op: a.engine for op, a in chosen.items()} == {"first": FAST, "second": PLAIN}
    workspace = next(row for row in plan_of.buffers if row.id == chosen["first"].workspace)
    assert workspace.bytes == 36 * GIB > 1 << 32
    assert plan_of.peak_live_bytes >= 39 * GIB
    assert plan_of.arena_bytes <= 40 * GIB
    assert verify(plan_of) == []
    assert decode_plan(encode_plan(plan_of)) == plan_of


@pytest.mark.parametrize(("deterministic", "engine"), [(False, FAST), (True, STEADY)])
def test_a_deterministic_plan_names_no_engine_whose_bits_vary(deterministic: bool, engine: int, tmp_path: Path) -> None:
    """However much faster such an engine is."""
    engines = [
        Engine(id=FAST, workspace_bytes=0, us=10, deterministic=False),
        Engine(id=STEADY, workspace_bytes=0, us=1_000),
    ]
    table = profile(large_pair(), tmp_path / "p.json", engines)
    plan = made_without_values(large_pair(), tmp_path, 40 * GIB, device=str(table), deterministic=deterministic)
    assert {a.engine for a in plan.actions if isinstance(a, Algorithm)} == {engine}


def small_pair() -> ModelProto:
    """Two small convolutions, trained."""
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    dice = np.random.default_rng(0)
    nodes = [
        node("Conv", ["x", "w1"], ["h"], "first", **window),
        node("Tanh", ["h"], ["a"]),
        node("Conv", ["a", "w2"], ["y"], "second", **window),
        node("ReduceMean", ["y"], ["loss"], keepdims=0),
    ]
    stored = [tensor(f"w{i}", dice.standard_normal((8, c, 3, 3)) * 0.1) for i, c in ((1, 4), (2, 8))]
    return model(nodes, [info("x", [2, 4, 16, 16])], ["loss"], stored)


class Recording(NumpyOnDevice):
    """Keeps what it was asked to load."""

    seen: Mapping[int, DeviceCall]

    def load(self, calls: Mapping[int, DeviceCall], *, scratch: int, control: int, engines: Mapping[str, int]) -> None:
        """As before."""
        super().load(calls, scratch=scratch, control=control, engines=engines)
        type(self).seen = calls


def test_workspaces_lie_in_the_arena_and_every_call_has_the_planned_engine(tmp_path: Path) -> None:
    """Nothing is left that could fail, or be chosen otherwise, while a step runs."""
    found = made(small_pair(), tmp_path, optimizer="momentum")
    backend = CudaBackend(gpu=FakeGpu(), kernels=Recording)
    x = np.random.default_rng(1).standard_normal((2, 4, 16, 16)).astype(np.float32)
    with TrainingSession(found.plan, found.weights, backend=backend) as session:
        session.step({"x": x})
        arena = backend._bound.arena
    sizes = {row.id: row for row in found.plan.buffers}
    planned: Algorithm | None = None
    count = 0
    for number, action in enumerate(found.plan.actions):
        if isinstance(action, Algorithm):
            planned = action
        if isinstance(action, Run) and planned is not None and planned.op == action.op:
            call = Recording.seen[number]
            assert call.engine == planned.engine
            if planned.workspace is not None:
                row = sizes[planned.workspace]
                assert (call.workspace, call.workspace_bytes) == (arena + row.offset, row.bytes)
                assert row.offset + row.bytes <= found.plan.arena_bytes
                count += 1
    assert count


def test_engines_that_fail_are_one_line_of_the_profiles_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried and failed are counted; no alarm for each candidate that the library lists and cannot run."""
    device = load_device("h200").summary()
    done = Profiled(profile=Profile(format=FORMAT, device=device, versions={}, ops=[]), tried=57, failed=12)
    monkeypatch.setattr("snplan.runtime.cuda.profile.profile_plan", lambda plan, **options: done)
    path = saved(small_pair(), tmp_path)
    assert main(["profile", str(path), "-o", str(tmp_path / "p.json")]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("\n") == 1
    assert "57 engines tried, 12 of them cannot run here" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("kind", ["product", "convolution"])
def test_float32_is_not_rounded_to_tensorfloat_in_secret(kind: str) -> None:
    """Sums over 4,096 products agree with float64 to 1e-5; TensorFloat would be 1e-3 off."""
    dice = np.random.default_rng(2)
    if kind == "product":
        a, b = dice.standard_normal((16, 4096)), dice.standard_normal((4096, 16))
        proto = model([node("MatMul", ["x", "w"], ["y"])], [info("x", [16, 4096])], ["y"], [tensor("w", b)])
        found = run(proto, {"x": a.astype(np.float32)})["y"]
        exact = a.astype(np.float32).astype(np.float64) @ b.astype(np.float32).astype(np.float64)
    else:
        a, b = dice.standard_normal((1, 455, 5, 5)), dice.standard_normal((4, 455, 3, 3))
        proto = model(
            [node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3])], [info("x", list(a.shape))], ["y"], [tensor("w", b)]
        )
        found = run(proto, {"x": a.astype(np.float32)})["y"]
        wide, filters = (z.astype(np.float32).astype(np.float64) for z in (a, b))
        windows = np.lib.stride_tricks.sliding_window_view(wide[0], (3, 3), axis=(1, 2))
        exact = np.einsum("chwij,ocij->ohw", windows, filters)[None]
    assert np.linalg.norm(found - exact) <= 1e-5 * np.linalg.norm(exact)


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_the_report_names_the_math_mode(precision: str, tmp_path: Path) -> None:
    found = made(small_pair(), tmp_path, precision=precision)
    table = compile_tables(found.plan, {**found.report, "plan": "p"})[0]
    names, values = ([str(cell) for cell in column.cells] for column in table.columns)
    assert dict(zip(names, values, strict=True))["math mode"] == precision
    assert json.loads(encode_plan(found.plan))["options"]["precision"] == precision
    assert msgspec.structs.asdict(found.plan)["options"]["precision"] == precision
