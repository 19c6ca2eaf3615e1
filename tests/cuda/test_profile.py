"""Profiles on a stand-in for the device: every signature once, every engine, a budget that holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from cuda_fake import FakeGpu, FakeOperationGraph
from cuda_zoo import TINY, planned

import snplan.runtime.cuda.kernels as kernels_module
import snplan.runtime.cuda.links as links_module
from snplan import models
from snplan.compiler import CompileOptions, compile_model
from snplan.cost.device import load_device
from snplan.cost.profile import load_profile, save_profile
from snplan.errors import RunError
from snplan.plan.index import index_plan
from snplan.plan.model import Algorithm, StepPlan
from snplan.plan.pieces import in_pieces
from snplan.runtime.cuda.convolution import Convolution, engine_id
from snplan.runtime.cuda.cudnn import EngineRef
from snplan.runtime.cuda.issue import make_streams
from snplan.runtime.cuda.links import measure_links
from snplan.runtime.cuda.memory import Memory
from snplan.runtime.cuda.profile import Profiled, distinct_ops, profile_plan
from snplan.runtime.layout import assign_orders


class FakeCudnn:
    """Three engines for every problem; the second cannot be built, and the third is not deterministic."""

    def __init__(self, gpu: FakeGpu, stream: Any) -> None:
        self._gpu, self._stream = gpu, stream

    def engines(self, problem: Convolution, *, steady: bool = False) -> tuple[EngineRef, ...]:
        """By problem."""
        graph: Any = FakeOperationGraph(self._gpu, self._stream, False, (1 << 16, None, 0))
        return tuple(EngineRef(engine_id(f"e{place}"), graph, place, f"e{place}") for place in range(3))

    def close(self) -> None:
        """Nothing."""


class FakeMultiplier:
    """Products that do nothing."""

    def issue(self, *given: Any, **rest: Any) -> Any:
        """Nothing runs."""
        return lambda: None

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """A device of 8 GiB whose libraries are stand-ins."""
    device = FakeGpu(total=1 << 31)
    monkeypatch.setattr(kernels_module, "load_kernels", lambda gpu, sources: object())
    monkeypatch.setattr(links_module, "load_kernels", lambda gpu, sources: object())
    monkeypatch.setattr(links_module, "_LARGE", 1 << 20)
    monkeypatch.setattr(kernels_module, "CublasLt", lambda stream, **settings: FakeMultiplier())
    monkeypatch.setattr(kernels_module, "Cudnn", lambda stream, mode: FakeCudnn(device, stream))
    return device


@pytest.fixture
def plan(tmp_path: Path) -> StepPlan:
    """A small network's plan."""
    return planned("resnet", tmp_path, optimizer="momentum")[0]


def measured(plan: StepPlan, gpu: FakeGpu, **options: Any) -> Profiled:
    """A profile, and what was told meanwhile."""
    told: list[float] = []
    done = profile_plan(plan, gpu=gpu, progress=lambda what, share: told.append(share), **options)
    assert told == sorted(told)
    assert not gpu.blocks
    assert not gpu.pinned
    assert gpu.depth == 0
    return done


def test_every_signature_once(plan: StepPlan, gpu: FakeGpu) -> None:
    """Repeated blocks are measured once; engines keep workspace, id and determinism; failures are counted."""
    done = measured(plan, gpu)
    index = index_plan(plan)
    wanted = [row.signature for row in distinct_ops(index, assign_orders(index))]
    assert sorted(op.signature for op in done.profile.ops) == sorted(wanted)
    assert len(wanted) < len(plan.ops)
    convolutions = [op for op in done.profile.ops if op.signature.startswith("conv")]
    for op in convolutions:
        found = {engine.id: engine for engine in op.engines}
        assert set(found) == {engine_id("e0"), engine_id("e2")}
        assert found[engine_id("e0")].workspace_bytes == 1 << 16
        assert found[engine_id("e0")].deterministic
        assert not found[engine_id("e2")].deterministic
    assert (done.tried, done.failed) == (3 * len(convolutions), len(convolutions))
    assert all(engine.us >= 1 for op in done.profile.ops for engine in op.engines)


def test_device_fields_are_measured(plan: StepPlan, gpu: FakeGpu) -> None:
    """Capacity, reserve, copies and launches are those seen; versions say what they hold for."""
    done = measured(plan, gpu)
    device = done.profile.device
    assert device["capacity_bytes"] == gpu.total
    assert device["h2d_bytes_per_s"] == (1 << 20) * 1e6 / 10
    assert int(device["reserve_bytes"]) > 96 << 20
    assert done.profile.versions["driver"] == "1"
    assert device["fp32_flops"] == plan.device["fp32_flops"]


def test_profile_is_used_by_compile(plan: StepPlan, gpu: FakeGpu, tmp_path: Path) -> None:
    """Plans made with the profile name its engines; deterministic ones only where that is asked for."""
    target = tmp_path / "p.json"
    save_profile(measured(plan, gpu).profile, target)
    assert load_profile(target).format == 1
    assert load_device(str(target)).profile is not None
    model = tmp_path / "m.onnx"
    models.save(models.build("resnet", **TINY["resnet"], batch=2), model)
    options: dict[str, Any] = {"budget_bytes": 1 << 31, "device": str(target), "optimizer": "momentum"}
    for deterministic, engine in ((False, "e2"), (True, "e0")):
        made = compile_model(model, CompileOptions(deterministic=deterministic, **options)).plan
        used = {action.engine for action in made.actions if isinstance(action, Algorithm)}
        assert used == {engine_id(engine)}


def test_bound_on_engines(plan: StepPlan, gpu: FakeGpu) -> None:
    """The library's favourites only."""
    done = measured(plan, gpu, engines=1)
    found = {len(op.engines) for op in done.profile.ops if op.signature.startswith("conv")}
    assert found == {1}
    assert done.failed == 0


def test_pieces(plan: StepPlan, gpu: FakeGpu) -> None:
    """Where asked for, the engines of pieces that need a workspace; two images can be cut into two pieces at most."""
    whole, cut = measured(plan, gpu), measured(plan, gpu, pieces=8)
    assert [op.signature for op in cut.profile.ops] == [op.signature for op in whole.profile.ops]
    in_two = in_pieces(engine_id("e0"), 2)
    added = 0
    for before, after in zip(whole.profile.ops, cut.profile.ops, strict=True):
        more = {engine.id: engine for engine in after.engines if engine not in before.engines}
        if not before.signature.startswith("conv"):
            assert not more
        elif more:
            assert set(more) == {in_two}
            assert more[in_two].deterministic
            partial = more[in_two].workspace_bytes - (1 << 16)
            assert (partial > 0) == before.signature.startswith("conv_filter")
            assert partial % 512 == 0
            added += 1
    assert added > 0
    assert cut.tried == whole.tried + added
    assert cut.failed == whole.failed


def test_budget_holds(plan: StepPlan, gpu: FakeGpu) -> None:
    """All that is taken stays under the budget; too little for the largest op is refused with both numbers."""
    held: list[int] = []
    allocate = gpu.allocate

    def watched(size: int) -> int:
        address = allocate(size)
        held.append(sum(block.nbytes for block in gpu.blocks.values()))
        return address

    gpu.allocate = watched  # type: ignore[method-assign]
    measured(plan, gpu, budget_bytes=256 << 20)
    assert max(held) <= 256 << 20
    with pytest.raises(RunError, match="the largest op needs") as caught:
        profile_plan(plan, gpu=gpu, budget_bytes=97 << 20, progress=lambda what, share: None)
    assert caught.value.code == "SNP-R052"
    assert not gpu.blocks


def test_unknown_ops_are_refused(plan: StepPlan, gpu: FakeGpu) -> None:
    """A type that no kernel has is an error at once, not a hole in the profile."""
    broken = msgspec.structs.replace(
        plan, ops=[msgspec.structs.replace(plan.ops[0], kind="no_such_kind"), *plan.ops[1:]]
    )
    with pytest.raises(RunError) as caught:
        profile_plan(broken, gpu=gpu, progress=lambda what, share: None)
    assert caught.value.code == "SNP-R040"


def test_links(gpu: FakeGpu) -> None:
    """Both directions alone and together, launches on the host and in a graph."""
    memory = Memory(gpu)
    with gpu.current():
        found = measure_links(gpu, make_streams(gpu), memory, 1 << 16)
        assert set(found) >= {"h2d_both_bytes_per_s", "d2h_both_bytes_per_s", "copy_latency_us", "graph_launch_us"}
        assert all(value >= 1 for value in found.values())
        assert found["h2d_both_bytes_per_s"] <= found["h2d_bytes_per_s"]
        memory.release()
