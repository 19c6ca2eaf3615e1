"""Offload: copies that outlive their bytes, host memory that is not there, transfers that do not pay."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from cuda_fake import FakeGpu, MixedOnDevice
from faults.support import Made, device_file, made, replay, squeezed
from frontend_support import info, model, node, tensor
from onnx import ModelProto
from property.plans import random_plan
from tests_support import Line, indexed_of

import snplan.runtime.cuda.memory as memory_module
from snplan.analysis.floor import floor
from snplan.analysis.index import IndexedStep
from snplan.cost.device import Device, load_device
from snplan.errors import RunError
from snplan.ir import Phase, Role
from snplan.passes.realise import Candidate, step_costs
from snplan.passes.search import Search, keep_all_candidate
from snplan.plan.model import Extent, Offload, Prefetch, Recompute, StepPlan
from snplan.plan.verify import verify
from snplan.report.fates import fates
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.cuda.memory import Memory, take_host_arena
from snplan.runtime.numpy.streams import Delays
from snplan.runtime.session import TrainingSession

MIB, GIB = 1 << 20, 1 << 30


def network(layers: int = 4, width: int = 64, rows: int = 128) -> ModelProto:
    """Products and tanh."""
    nodes, last = [], "x"
    for i in range(layers):
        nodes += [node("MatMul", [last, f"w{i}"], [f"z{i}"]), node("Tanh", [f"z{i}"], [f"a{i}"])]
        last = f"a{i}"
    nodes.append(node("ReduceMean", [last], ["loss"], keepdims=0))
    dice = np.random.default_rng(0)
    stored = [tensor(f"w{i}", dice.standard_normal((width, width)) * 0.2) for i in range(layers)]
    return model(nodes, [info("x", [rows, width])], ["loss"], stored)


X = np.random.default_rng(1).standard_normal((128, 64)).astype(np.float32)


def moving(plan: StepPlan) -> bool:
    """Whether tensors go out and come back."""
    kinds = {type(action) for action in plan.actions}
    return {Offload, Prefetch} <= kinds


# -- bytes in flight ---------------------------------------------------------------------------------------------------


def test_50_steps_of_late_copies_over_poisoned_bytes_change_no_bit(tmp_path: Path) -> None:
    """Every copy may be late by a random time, and freed bytes are NaN: gradients stay those of the keep-all plan."""
    found = squeezed(network(), tmp_path, 0.1, optimizer="none")
    assert moving(found.plan)
    everything = made(network(), tmp_path, optimizer="none")
    feeds = [{"x": X * np.float32(1 + i / 50)} for i in range(50)]
    late = replay(found, feeds, delays=Delays(seed=3, seconds=0.0002))
    assert late.bits() == replay(everything, feeds).bits()


@pytest.mark.parametrize("kind", [Offload, Prefetch])
def test_no_copy_may_lose_what_it_waits_for(kind: type[Offload | Prefetch], tmp_path: Path) -> None:
    """An offload waits for its producer, a prefetch for the bytes' last use: without its edges the verifier objects."""
    plan = squeezed(network(), tmp_path, 0.1, optimizer="none").plan
    assert verify(plan) == []
    waiting = [(i, action) for i, action in enumerate(plan.actions) if isinstance(action, kind) and action.after]
    assert waiting
    for place, action in waiting:
        actions = list(plan.actions)
        actions[place] = msgspec.structs.replace(action, after=[])
        findings = verify(msgspec.structs.replace(plan, actions=actions))
        assert findings, f"action {place} needs none of {action.after}"


# -- what moves --------------------------------------------------------------------------------------------------------


def test_a_weight_in_host_memory_is_there_for_both_uses_and_updated(tmp_path: Path) -> None:
    """W is read forward and for dX: it comes twice, its update lands in the host's copy, the next step starts there."""
    proto = network(layers=3, width=128, rows=16)
    x = np.random.default_rng(2).standard_normal((16, 128)).astype(np.float32)
    found = squeezed(proto, tmp_path, 0.0, optimizer="momentum")
    hosted = {entry.tensor for entry in found.plan.persistent if entry.slot is not None and entry.tensor == "w1"}
    assert hosted == {"w1"}
    readers = [op.name for op in found.plan.ops if "w1" in op.inputs]
    fetched = [a for a in found.plan.actions if isinstance(a, Prefetch) and a.tensor == "w1"]
    assert len(readers) == 3
    assert len(fetched) >= 2
    assert any(isinstance(a, Offload) and a.tensor == "w1:next" for a in found.plan.actions)
    everything = made(proto, tmp_path, optimizer="momentum")
    seen = [replay(found, {"x": x}, steps=steps) for steps in (1, 2, 3)]
    assert len({result.state["w1"].tobytes() for result in seen}) == 3
    assert [result.bits() for result in seen] == [replay(everything, {"x": x}, steps=s).bits() for s in (1, 2, 3)]


def moved_roles(found: Made) -> set[str]:
    """Roles of what goes to the host."""
    roles = {t.name: t.role for t in found.plan.tensors}
    return {roles[action.tensor] for action in found.plan.actions if isinstance(action, Offload)}


def test_activations_move_before_parameters_and_the_report_tells_them_apart(tmp_path: Path) -> None:
    """Activations and inputs go first; weights and their state only where that is not enough."""
    fast = str(device_file(tmp_path, copies=10**12, copy_latency_us=0))
    wide = network(layers=6, width=128, rows=512)
    found = squeezed(wide, tmp_path, 0.5, device=fast, optimizer="momentum")
    assert "activation" in moved_roles(found) <= {"activation", "input"}
    told = fates(found.plan)
    activations = {a.tensor for a in found.plan.actions if isinstance(a, Offload)} - {"x"}
    assert told["moved"].tensors == len(activations)
    assert told["moved"].bytes == len(activations) * 512 * 128 * 4
    least = squeezed(wide, tmp_path, 0.0, device=fast, optimizer="momentum")
    assert {"activation", "parameter", "optimizer"} <= moved_roles(least)
    assert fates(least.plan)["moved_other"].bytes > told["moved_other"].bytes


# -- host memory -------------------------------------------------------------------------------------------------------


class Pinning(FakeGpu):
    """A driver that remembers what was pinned, and gives it without touching it."""

    def pin(self, size: int) -> np.ndarray[Any, Any]:
        """A block that takes no memory until it is written."""
        self.pinned.append(np.empty(size, np.uint8))
        return self.pinned[-1]


def test_pinned_memory_is_not_rounded_to_powers_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot of 2.25 GiB pins 2.25 GiB, not 4: what is pinned is what the plan says, to the byte."""
    size = 9 * GIB // 4
    monkeypatch.setattr(memory_module, "available_bytes", lambda: 3 * GIB)
    gpu = Pinning()
    before = resident_bytes()
    with gpu.current():
        host = take_host_arena(Memory(gpu), size, [Extent(id=0, offset=0, bytes=size)])
    assert [block.nbytes for block in gpu.pinned] == [size]
    assert host.bytes_of(0, size).nbytes == size
    assert resident_bytes() - before <= size + 10 * MIB


def test_the_plans_host_bytes_are_what_its_slots_need(tmp_path: Path) -> None:
    """The report's host figure is the extent of the slots, each no larger than its tensors rounded to 512 bytes."""
    found = squeezed(network(), tmp_path, 0.0, optimizer="adam")
    plan = found.plan
    assert found.report["host_bytes"] == plan.host_arena_bytes == max(s.offset + s.bytes for s in plan.slots)
    sizes = {t.name: t.bytes for t in plan.tensors}
    for slot in plan.slots:
        held = [a.tensor for a in plan.actions if isinstance(a, Offload | Prefetch) and a.slot == slot.id]
        assert slot.bytes <= max(sizes[name] for name in held) + 511


def test_a_limit_on_host_memory_holds_or_is_named(tmp_path: Path) -> None:
    """`--host-mem` bounds the pinned arena: a plan within it, or a refusal that names both numbers."""
    from snplan.errors import InfeasibleError, NoPlanError

    free = squeezed(network(), tmp_path, 0.0)
    budget, needed = free.report["floor_bytes"], free.report["host_bytes"]
    assert made(network(), tmp_path, budget, host_bytes=needed).report["host_bytes"] <= needed
    with pytest.raises((NoPlanError, InfeasibleError), match="host"):
        made(network(), tmp_path, budget, host_bytes=512)


def resident_bytes() -> int:
    """Bytes of this process in memory; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def test_200_steps_take_no_more_memory_than_a_few(tmp_path: Path) -> None:
    """Offloading adds nothing from step to step: the process stays within 1 %."""
    found = squeezed(network(), tmp_path, 0.1)
    assert moving(found.plan)
    with TrainingSession(found.plan, found.weights) as session:
        for _ in range(20):
            session.step({"x": X})
        before = resident_bytes()
        for _ in range(180):
            session.step({"x": X})
            assert session.measured is not None
            assert session.measured.allocations == 0
        assert resident_bytes() <= before * 1.01


def test_an_arena_that_the_driver_put_elsewhere_is_told() -> None:
    """Some drivers spill to host memory instead of refusing: the device's free memory gives them away."""
    import random

    plan = msgspec.structs.replace(random_plan(random.Random(3)), arena_bytes=300 * MIB)
    gpu = FakeGpu(total=4 * GIB)
    gpu.memory = lambda: (4 * GIB, 4 * GIB)  # type: ignore[method-assign]
    stored = {place.tensor for place in plan.resident}
    values = {t.name: np.zeros(t.shape, np.float32) for t in plan.tensors if t.name in stored and t.role != "input"}
    backend = CudaBackend(gpu=gpu, kernels=MixedOnDevice)
    with pytest.warns(RuntimeWarning, match="not resident"):
        session = TrainingSession(plan, values, backend=backend)
    session.close()


def test_memory_that_the_host_does_not_have_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first step, and before anything is pinned; the GPU is not blamed."""
    monkeypatch.setattr(memory_module, "available_bytes", lambda: GIB)
    gpu = Pinning()
    with gpu.current(), pytest.raises(RunError) as caught:
        take_host_arena(Memory(gpu), 2 * GIB, [Extent(id=0, offset=0, bytes=2 * GIB)])
    assert caught.value.code == "SNP-R053"
    for part in ("2.00 GiB", "1.00 GiB", "HOST"):
        assert part in caught.value.message
    assert "CUDA out of memory" not in caught.value.message
    assert gpu.pinned == []


# -- what pays ---------------------------------------------------------------------------------------------------------


def twelve_gigabytes() -> Device:
    """A device that copies 12 GB a second each way at once, and issues copies at no cost."""
    rates: Any = {f"{way}{both}_bytes_per_s": 12 * 10**9 for way in ("h2d", "d2h") for both in ("", "_both")}
    return replace(load_device("titan-xp"), copy_latency_us=10, **rates)


def planned(step: IndexedStep, budget: int, device: Device) -> Candidate:
    """The fastest plan of a hand-made step."""
    costs, lowest = step_costs(step, device), floor(step)
    chosen = Search(step=step, costs=costs, budget=budget, floor=lowest).run(keep_all_candidate(step, costs))
    assert chosen is not None
    assert chosen.body.arena_bytes <= budget
    return chosen


def counts(found: Candidate) -> tuple[int, int]:
    """Offloads and recomputes."""
    actions = found.body.actions
    return sum(isinstance(a, Offload) for a in actions), sum(isinstance(a, Recompute) for a in actions)


def saved_across(gap_us: int, recompute_us: int, granules: int) -> IndexedStep:
    """A tensor made in `recompute_us` and needed again `gap_us` later; meanwhile four times its size is needed once."""
    sizes = {"x": 1, "a": granules, "b0": 2 * granules, "b1": 2 * granules, "b2": 1, "b3": 1, "g": 1, "end": 1}
    lines = [Line(name="make", reads=("x",), writes=("a",), us=recompute_us)]
    last, backward = "x", Phase.BACKWARD
    for i in range(4):
        lines.append(Line(name=f"m{i}", reads=(last,), writes=(f"b{i}",), us=gap_us // 4))
        last = f"b{i}"
    lines.append(Line(name="top", reads=(last,), writes=("g",), phase=backward, us=1))
    lines.append(Line(name="use", reads=("g", "a"), writes=("end",), phase=backward, us=1))
    return indexed_of(lines, granules=sizes, sources={"x": Role.INPUT}, outputs=("end",))


@pytest.mark.parametrize(("gap_us", "recompute_us", "expected"), [(100_000, 30_000, (1, 0)), (10_000, 5_000, (0, 1))])
def test_a_copy_that_hides_beats_recompute_and_one_that_does_not_loses(
    gap_us: int, recompute_us: int, expected: tuple[int, int]
) -> None:
    """256 MiB at 12 GB/s take 22.4 ms each way: hidden in 100 ms they are free, in 10 ms they cost more than 5 ms."""
    granules = 256 * MIB // 512
    step = saved_across(gap_us, recompute_us, granules)
    found = planned(step, (4 * granules + 8) * 512, twelve_gigabytes())
    assert counts(found) == expected
    compute = recompute_us + gap_us + 2
    assert found.step_us <= compute + (recompute_us if expected[1] else 500)


def small_pieces(count: int) -> IndexedStep:
    """A chain of tensors of 4 KiB, all needed again backwards; each op takes 2 us."""
    lines, last = [], "x"
    for i in range(count):
        lines.append(Line(name=f"f{i}", reads=(last,), writes=(f"a{i}",), us=2))
        last = f"a{i}"
    grad = last
    for i in reversed(range(count)):
        reads: Sequence[str] = dict.fromkeys((grad, f"a{i}")).keys()  # type: ignore[assignment]
        lines.append(Line(name=f"b{i}", reads=tuple(reads), writes=(f"g{i}",), phase=Phase.BACKWARD, us=2))
        grad = f"g{i}"
    names = [name for line in lines for name in line.writes]
    return indexed_of(lines, granules=dict.fromkeys(["x", *names], 8), sources={"x": Role.INPUT}, outputs=(grad,))


def test_small_tensors_are_computed_again_rather_than_copied_one_by_one() -> None:
    """A copy's latency is five times what it takes to compute 4 KiB again: no plan is slower for having a link."""
    count = 200
    budget = count * 3 // 10 * 4096
    rates: Any = {f"{way}{both}_bytes_per_s": 1000 for way in ("h2d", "d2h") for both in ("", "_both")}
    alone = planned(small_pieces(count), budget, replace(twelve_gigabytes(), **rates))
    assert counts(alone)[0] == 0
    linked = planned(small_pieces(count), budget, twelve_gigabytes())
    assert linked.step_us <= alone.step_us
    assert counts(linked)[1] > 0
