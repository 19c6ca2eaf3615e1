"""Allocators and planners: reuse of what is still needed, sizes that overflow, limits that do not hold."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from cuda_fake import FakeGpu, MixedOnDevice, NumpyOnDevice
from faults.support import made, replay, squeezed
from frontend_support import BOOL, INT64, info, model, node, ort_run, tensor
from onnx import ModelProto, helper
from property.plans import random_plan
from runtime_support import Draft
from tests_support import training_chain

from snplan.analysis.floor import floor
from snplan.cost.device import load_device
from snplan.errors import InfeasibleError, RunError, UsageError
from snplan.passes.realise import step_costs
from snplan.passes.search import Search, keep_all_candidate
from snplan.plan.file import decode_plan, encode_plan
from snplan.plan.model import Algorithm, Free, Run, StepPlan
from snplan.plan.stays import stays
from snplan.plan.verify import verify
from snplan.runtime.arena import Arena
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.cuda.memory import Memory
from snplan.runtime.session import TrainingSession

FLOATS = np.float32


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Seeded numbers of modest size."""
    return (np.random.default_rng(seed).standard_normal(shape) * 0.2).astype(FLOATS)


# -- reuse -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [True, False])
def test_in_place_over_what_another_stream_reads_needs_an_edge(ordered: bool) -> None:
    """h is copied out on one stream and overwritten by its reader on another: sound only where the reader waits."""
    d = Draft()
    x = d.source("x", 128, role="input")
    d.tensor("h", 128)
    d.tensor("y", 128)
    d.op("make", "neg", "x", "h")
    d.op("act", "relu", "h", "y")
    buffer, slot = d.buffer(), d.slot()
    d.alloc(buffer)
    first = d.run("make", {"x": x, "h": buffer})
    copy = d.offload("h", buffer, slot, first)
    d.run("act", {"h": buffer, "y": buffer}, *([copy] if ordered else []))
    d.outputs.append(msgspec.convert({"tensor": "y", "buffer": buffer}, type=type(d.resident[0])))
    findings = [str(finding) for finding in verify(d.plan())]
    assert bool(findings) != ordered
    assert all("d2h" in finding for finding in findings)


def viewed() -> ModelProto:
    """A result that is a view of an intermediate, and much work after it."""
    nodes = [
        node("MatMul", ["x", "w"], ["h"], "first"),
        node("Reshape", ["h", "shape"], ["view"], "reshape"),
        node("Tanh", ["h"], ["a"], "a"),
        node("MatMul", ["a", "w"], ["b"], "b"),
        node("Tanh", ["b"], ["c"], "c"),
        node("MatMul", ["c", "w"], ["z"], "last"),
    ]
    stored = [tensor("w", numbers(64, 64)), tensor("shape", [32, 128], np.int64)]
    return model(nodes, [info("x", [64, 64])], ["view", "z"], stored)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_result_that_is_a_view_is_whole_at_the_end_of_the_step(share: float, tmp_path: Path) -> None:
    found = squeezed(viewed(), tmp_path, share, mode="infer")
    outputs = replay(found, {"x": numbers(64, 64, seed=1)}, steps=2).outputs
    for name, wanted in ort_run(viewed(), {"x": numbers(64, 64, seed=1)}).items():
        np.testing.assert_allclose(outputs[name].reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-6)


TRIPS = 3


def looping() -> ModelProto:
    """Three trips; each reads the outer t, and makes scratch of eight times its size before that."""
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["go2"]),
            node("MatMul", ["a", "wide"], ["scratch"], "spread"),
            node("Tanh", ["scratch"], ["bent"], "bend"),
            node("MatMul", ["bent", "narrow"], ["back"], "gather"),
            node("Mul", ["back", "t"], ["a2"], "outer"),
        ],
        "body",
        [info("i", [], INT64), info("go", [], BOOL), info("a", [64, 32])],
        [info("go2", [], BOOL), info("a2", None)],
    )
    nodes = [
        node("Exp", ["x"], ["t"], "make_t"),
        node("Loop", ["m", "", "x"], ["end"], "loop", body=body),
        node("ReduceMean", ["end"], ["loss"], keepdims=0),
    ]
    stored = [
        tensor("m", TRIPS, np.int64),
        tensor("wide", numbers(32, 256, seed=2)),
        tensor("narrow", numbers(256, 32, seed=3)),
    ]
    return model(nodes, [info("x", [64, 32])], ["loss"], stored)


def outer_reads(plan: StepPlan) -> list[int]:
    """Actions that read t in the three trips' forward ops."""
    ops = {op.name for op in plan.ops if op.phase == "forward" and "t" in op.inputs}
    assert len(ops) == TRIPS
    return [i for i, a in enumerate(plan.actions) if isinstance(a, Run) and a.op in ops]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
def test_what_every_trip_of_a_loop_reads_outlives_scratch_inside_it(share: float, tmp_path: Path) -> None:
    """Through planner and replay: t has its value at all three reads, and no bit depends on the budget."""
    x = numbers(64, 32, seed=4)
    found = squeezed(looping(), tmp_path, share, optimizer="none")
    everything = made(looping(), tmp_path, optimizer="none")
    result = replay(found, {"x": x}, steps=2)
    assert result.bits() == replay(everything, {"x": x}, steps=2).bits()
    np.testing.assert_allclose(result.losses[0], ort_run(looping(), {"x": x})["loss"], rtol=1e-5)
    for read in outer_reads(found.plan):
        action = found.plan.actions[read]
        assert isinstance(action, Run)
        buffer = dict(action.reads)["t"]
        assert any(stay.buffer == buffer and stay.start <= read < stay.end for stay in stays(found.plan)["t"])


def test_the_lifetime_of_what_a_loop_reads_spans_all_trips(tmp_path: Path) -> None:
    """In the plan that keeps everything t stays in one place from its birth to the last trip."""
    plan = made(looping(), tmp_path, mode="infer").plan
    first, *_, last = outer_reads(plan)
    born = next(i for i, a in enumerate(plan.actions) if isinstance(a, Run) and any(n == "t" for n, _ in a.writes))
    (stay,) = stays(plan)["t"]
    assert stay.start <= born < first < last < stay.end
    held = dict(plan.actions[born].writes)["t"]  # type: ignore[union-attr]
    assert not [i for i, a in enumerate(plan.actions) if isinstance(a, Free) and a.buffer == held and i < last]


# -- limits ------------------------------------------------------------------------------------------------------------


def convolved() -> ModelProto:
    """Two 3x3 convolutions, for which fast engines want workspace."""
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["x", "w1"], ["h"], "conv1", **window),
        node("Relu", ["h"], ["a"], "act"),
        node("Conv", ["a", "w2"], ["y"], "conv2", **window),
        node("ReduceMean", ["y"], ["loss"], keepdims=0),
    ]
    stored = [tensor("w1", numbers(16, 8, 3, 3)), tensor("w2", numbers(16, 16, 3, 3))]
    return model(nodes, [info("x", [4, 8, 32, 32])], ["loss"], stored)


def workspaces(plan: StepPlan) -> list[int]:
    """Bytes of the workspaces in the order of their executions."""
    sizes = {row.id: row.bytes for row in plan.buffers}
    return [sizes[a.workspace] for a in plan.actions if isinstance(a, Algorithm) and a.workspace is not None]


def test_workspace_that_does_not_fit_gives_another_engine_or_no_plan(tmp_path: Path) -> None:
    """Tensors and workspaces together exceed the budget by one granule: nothing is left for run time to find out."""
    everything = made(convolved(), tmp_path)
    assert max(workspaces(everything.plan)) > 0
    tight = made(convolved(), tmp_path, everything.report["keep_all_bytes"] - 512)
    assert tight.plan.arena_bytes <= everything.report["keep_all_bytes"] - 512
    assert verify(tight.plan) == []
    lowest = everything.report["floor_bytes"]
    least = made(convolved(), tmp_path, lowest)
    assert least.plan.arena_bytes == lowest
    assert sum(workspaces(least.plan)) < sum(workspaces(everything.plan))
    with pytest.raises(InfeasibleError):
        made(convolved(), tmp_path, lowest - 512)


@pytest.mark.parametrize("room", range(4))
def test_the_choice_of_what_to_keep_respects_its_capacity(room: int) -> None:
    """Three equal tensors to save, room for none, one, two or three: never more are held than fit."""
    step, device = training_chain(), load_device("h200")
    costs, lowest = step_costs(step, device), floor(step)
    everything = keep_all_candidate(step, costs)
    budget = lowest.bytes + room * 512
    chosen = Search(step=step, costs=costs, budget=budget, floor=lowest).run(everything)
    assert chosen is not None
    assert chosen.body.peak_live_bytes <= chosen.body.arena_bytes <= budget
    assert chosen.step_us >= everything.step_us


def test_the_verifier_refuses_a_plan_that_holds_too_much(tmp_path: Path) -> None:
    """It counts for itself: a plan of two units is refused where one fits, whatever its totals say."""
    plan = made(convolved(), tmp_path).plan
    assert verify(plan) == []
    less = plan.arena_bytes - 512
    lying = msgspec.structs.replace(plan, arena_bytes=less, peak_live_bytes=less, budget_bytes=less)
    rules = {finding.rule for finding in verify(lying)}
    assert "A" in rules
    assert {finding.rule for finding in verify(plan, budget=less)} == {"A"}


def one_layer(rows: int = 4) -> ModelProto:
    """A single product of 1,000 parameters."""
    return model([node("MatMul", ["x", "w"], ["y"])], [info("x", [rows, 50])], ["y"], [tensor("w", numbers(50, 20))])


def test_one_layer_is_planned_and_unknown_optimizers_are_not(tmp_path: Path) -> None:
    """Adam keeps 8,000 bytes for 1,000 parameters; a name that is not known raises no budget, but an error."""
    found = made(one_layer(), tmp_path, loss="sum", optimizer="adam")
    assert sum(t.bytes for t in found.plan.tensors if t.role == "optimizer" and ":next" not in t.name) == 8000
    result = replay(found, {"x": numbers(4, 50)})
    assert np.isfinite(result.losses[0])
    with pytest.raises(UsageError, match="lion"):
        made(one_layer(), tmp_path, loss="sum", optimizer="lion")


def test_an_infeasible_budget_names_what_binds(tmp_path: Path) -> None:
    everything = made(one_layer(4096), tmp_path, loss="sum")
    with pytest.raises(InfeasibleError) as caught:
        made(one_layer(4096), tmp_path, everything.report["floor_bytes"] - 512, loss="sum")
    assert caught.value.details["binding"] in {op.name for op in everything.plan.ops}
    assert caught.value.details["live_at_binding"][0]["bytes"] > 0


# -- sizes and addresses -----------------------------------------------------------------------------------------------


def small_ones() -> ModelProto:
    """Results of 1, 3, 5 and 257 bytes, live together at the end."""
    sizes = (1, 3, 5, 257)
    nodes = [node("Not", [f"x{size}"], [f"y{size}"]) for size in sizes]
    return model(
        nodes, [info(f"x{size}", [size], BOOL) for size in sizes], [info(f"y{size}", [size], BOOL) for size in sizes]
    )


def test_every_buffer_is_aligned(tmp_path: Path) -> None:
    """1, 3, 5 and 257 bytes are 512 each: 2,048 together, at multiples of 512."""
    found = made(small_ones(), tmp_path, mode="infer")
    buffers = {row.id: row for row in found.plan.buffers}
    held = [buffers[place.buffer] for place in found.plan.outputs if place.buffer is not None]
    assert sorted(t.bytes for t in found.plan.tensors if t.name.startswith("y")) == [1, 3, 5, 257]
    assert sum(row.bytes for row in held) == 2048
    assert all(row.offset % 512 == 0 for row in buffers.values())
    feeds = {f"x{size}": np.zeros(size, np.bool_) for size in (1, 3, 5, 257)}
    assert all(value.all() for value in replay(found, feeds).outputs.values())


@pytest.mark.parametrize("size", [512, 1024, 5120])
def test_the_arena_itself_is_aligned(size: int) -> None:
    for _ in range(8):
        assert Arena(size, "arena").memory.ctypes.data % 512 == 0


def test_a_driver_that_gives_an_unaligned_block_is_found_out() -> None:
    """The base is asserted, for the arena and for every workspace in it alike."""
    gpu = FakeGpu()
    allocate = gpu.allocate
    given: list[int] = []

    def crooked(size: int) -> int:
        given.append(allocate(size))
        return given[-1] + 256

    gpu.allocate = crooked  # type: ignore[method-assign]
    gpu.release = lambda address: gpu.blocks.pop(address - 256)  # type: ignore[method-assign, assignment]
    memory = Memory(gpu)
    with gpu.current(), pytest.raises(RunError, match="not a multiple of 512") as caught:
        memory.device(1024, "the arena")
    assert caught.value.code == "SNP-R052"
    assert not gpu.blocks


ROWS, COLUMNS = 262_144, 8_960  # 2,348,810,240 elements


def test_more_than_2_to_the_31_elements_are_exact_in_plan_and_file(tmp_path: Path) -> None:
    """9,395,240,960 bytes each; offsets above 2^32 survive the round trip."""
    nodes = [node("Exp", ["x"], ["a"]), node("Neg", ["x"], ["b"]), node("Sub", ["a", "b"], ["y"])]
    proto = model(nodes, [info("x", [ROWS, COLUMNS])], ["a", "b", "y"])
    plan = made(proto, tmp_path, mode="infer", device="h200").plan
    assert {t.bytes for t in plan.tensors} == {9_395_240_960}
    assert max(row.offset for row in plan.buffers) > 1 << 32
    assert all(row.offset % 512 == 0 for row in plan.buffers)
    again = decode_plan(encode_plan(plan))
    assert again == plan
    assert sum(t.bytes for t in again.tensors) == 9_395_240_960 * len(plan.tensors)
    assert verify(again) == []


@pytest.mark.parametrize(("batch", "refused"), [(31, False), (32, True)])
def test_a_convolution_beyond_the_librarys_index_is_refused_when_planned(
    batch: int, refused: bool, tmp_path: Path
) -> None:
    """[32, 256, 512, 512] has 2^31 elements, one more than cuDNN addresses; 31 images are planned."""
    nodes = [node("Conv", ["x", "w"], ["y"], "conv", kernel_shape=[1, 1])]
    proto = model(nodes, [info("x", [batch, 256, 512, 512])], ["y"], [tensor("w", numbers(1, 256, 1, 1))])
    if not refused:
        assert made(proto, tmp_path, loss="sum").plan.actions
        return
    with pytest.raises(InfeasibleError) as caught:
        made(proto, tmp_path, loss="sum")
    assert caught.value.code == "SNP-P020"
    for part in ("conv", "2,147,483,648", "2,147,483,647", "batch"):
        assert part in caught.value.message


def joined() -> ModelProto:
    """tanh of two parts, one of them without rows, behind one another; both are parameters."""
    nodes = [
        node("Concat", ["a", "b"], ["c"], axis=0),
        node("Mul", ["c", "x"], ["d"]),
        node("Tanh", ["d"], ["e"]),
        node("ReduceSum", ["e"], ["loss"], keepdims=0),
    ]
    stored = [tensor("a", np.zeros((0, 4))), tensor("b", numbers(3, 4))]
    return model(nodes, [info("x", [3, 4])], ["loss"], stored)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_nothing_of_zero_bytes_is_taken_copied_or_launched(share: float, tmp_path: Path) -> None:
    """The gradient of the empty part has its shape; the fake driver refuses any call with zero bytes."""
    found = squeezed(joined(), tmp_path, share, optimizer="none")
    assert all(row.bytes > 0 for row in (*found.plan.buffers, *found.plan.slots))
    x = numbers(3, 4, seed=1)
    result = replay(found, {"x": x}, steps=2)
    assert result.gradients["a"].shape == (0, 4)
    np.testing.assert_allclose(
        result.gradients["b"], x * (1 - np.tanh(found.weights["b"] * x) ** 2), rtol=1e-5, atol=1e-6
    )
    backend = CudaBackend(gpu=FakeGpu(), kernels=NumpyOnDevice)
    with TrainingSession(found.plan, found.weights, backend=backend) as session:
        for _ in range(3):
            session.step({"x": x})
        np.testing.assert_array_equal(session.gradients()["b"], result.gradients["b"])


# -- time and other programs -------------------------------------------------------------------------------------------


def chain(length: int) -> ModelProto:
    """Products with one weight and tanh, one after another."""
    nodes, last = [], "x"
    for i in range(length // 2):
        nodes += [node("MatMul", [last, "w"], [f"z{i}"], f"m{i}"), node("Tanh", [f"z{i}"], [f"a{i}"], f"t{i}")]
        last = f"a{i}"
    nodes.append(node("ReduceMean", [last], ["loss"], keepdims=0))
    return model(nodes, [info("x", [256, 64])], ["loss"], [tensor("w", numbers(64, 64))])


def test_500_nodes_are_planned_with_the_time_of_each_phase(tmp_path: Path) -> None:
    """Not by search over budget steps or subsets: sketches are bounded, and the report says where time went."""
    everything = made(chain(500), tmp_path)
    budget = everything.report["keep_all_bytes"] // 4
    found = made(chain(500), tmp_path, budget)
    assert found.plan.arena_bytes <= budget
    assert verify(found.plan) == []
    assert {"import", "differentiate", "cost", "plan", "verify", "total"} <= {*found.report["seconds"]}


@pytest.mark.parametrize("length", [12, 400])
def test_a_solver_that_runs_out_of_time_leaves_a_sound_plan_that_is_no_slower(length: int, tmp_path: Path) -> None:
    """At half a second: a plan that passes the verifier, within the budget, and no claim beyond it."""
    budget = made(chain(length), tmp_path).report["keep_all_bytes"] // 3
    quick = made(chain(length), tmp_path, budget)
    found = made(chain(length), tmp_path, budget, solver="cp-sat", time_limit_s=0.5)
    assert verify(found.plan) == []
    assert found.report["status"] == "feasible"
    assert found.plan.arena_bytes <= budget
    assert found.plan.lower_bound_us <= found.plan.step_time_us <= quick.plan.step_time_us
    x = {"x": numbers(256, 64, seed=5)}
    if length == 12:
        assert replay(found, x).bits() == replay(quick, x).bits()


def test_free_memory_that_moves_during_a_run_stops_nothing() -> None:
    """A desktop takes and gives back half a GiB between any two calls: the arena is counted, not the device."""
    import random

    plan = random_plan(random.Random(3))
    gpu = FakeGpu(total=4 << 30)
    memory, wave = gpu.memory, threading.local()

    def moving() -> tuple[int, int]:
        wave.up = not getattr(wave, "up", False)
        free, total = memory()
        return free - (500 << 20 if wave.up else 0), total

    gpu.memory = moving  # type: ignore[method-assign]
    stored = {p.tensor for p in plan.resident}
    values = {t.name: numbers(*t.shape, seed=i) for i, t in enumerate(plan.tensors) if t.name in stored}
    inputs = {t.name: values.pop(t.name) for t in plan.tensors if t.name in stored and t.role == "input"}
    with TrainingSession(plan, values, backend=CudaBackend(gpu=gpu, kernels=MixedOnDevice)) as session:
        for _ in range(6):
            session.step(inputs)
            assert session.measured is not None
            assert session.measured.peak_bytes == plan.arena_bytes
            assert session.measured.allocations == 0
