"""Scripts that `snplan codegen` writes: Python that compiles, and whose calls are those of the backend."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest
from cuda_fake import FakeGpu, FakeOperationGraph
from cuda_zoo import planned

from snplan.codegen.script import replay_script
from snplan.ops.check import op_findings
from snplan.plan.index import index_plan
from snplan.plan.model import Algorithm, Offload, Prefetch, Recompute, Run, StepPlan
from snplan.plan.pieces import in_pieces, pieces_of
from snplan.runtime.cuda import kernels as kernels_module
from snplan.runtime.cuda.calls import device_calls
from snplan.runtime.cuda.convolution import Convolution, engine_id
from snplan.runtime.cuda.cudnn import EngineRef, Mode
from snplan.runtime.cuda.kernels import DeviceKernels
from snplan.runtime.cuda.order import plan_edges
from snplan.runtime.layout import assign_orders

ARENA, SCRATCH, CONTROL = 1 << 30, 1 << 31, 1 << 32
# A launch as the device gets it: function, grid, block, arguments, shared memory.
Launched = tuple[str, tuple[int, ...], tuple[int, ...], tuple[Any, ...], int]


@dataclass
class Recorder:
    """Stands in for the script's `Replay`, and notes the calls."""

    arena: int = ARENA
    scratch: int = SCRATCH
    control: int = CONTROL
    bias_apart: bool = False
    launches: list[Launched] = field(default_factory=list)
    convolutions: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    products: list[tuple[Any, ...]] = field(default_factory=list)
    copies: list[tuple[str, int, int, int]] = field(default_factory=list)
    events: list[tuple[str, str, Any]] = field(default_factory=list)

    def begin(self) -> None:
        """A step starts."""

    def end(self) -> None:
        """A step ends."""

    def record(self, stream: str, key: int) -> None:
        """An event."""
        self.events.append(("record", stream, key))

    def wait(self, stream: str, key: int) -> None:
        """A wait; what is waited for must have been recorded."""
        assert any(kind == "record" and other == key for kind, _, other in self.events)
        self.events.append(("wait", stream, key))

    def launch(self, name: str, grid: Any, block: Any, arguments: Sequence[Any], shared: int = 0) -> None:
        """A kernel."""
        self.launches.append((name, grid, block, tuple(arguments), shared))

    def convolve(self, number: int, **addresses: int) -> None:
        """A convolution."""
        self.convolutions.append((number, addresses))

    def adds_bias_apart(self, number: int) -> bool:
        """As the test wants it."""
        return self.bias_apart

    def multiply(self, dtype: str, b: int, a: int, y: int, *rest: Any, **more: Any) -> None:
        """A product."""
        self.products.append((dtype, b, a, y, rest, more))

    def offload(self, address: int, host: int, size: int) -> None:
        """A copy out."""
        self.copies.append(("offload", address, host, size))

    def prefetch(self, address: int, host: int, size: int) -> None:
        """A copy in."""
        self.copies.append(("prefetch", address, host, size))


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that the script imports, empty."""
    for name in ("pycuda", "pycuda.driver", "cuda", "cuda.core", "cudnn", "nvmath", "nvmath.bindings"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for module, name in (("cuda.core", "Program"), ("cuda.core", "ProgramOptions"), ("nvmath.bindings", "cublasLt")):
        setattr(sys.modules[module], name, None)


def loaded(plan: StepPlan) -> dict[str, Any]:
    """The names of the script of a plan."""
    names: dict[str, Any] = {"__name__": "replay"}
    exec(compile(replay_script(plan), "replay.py", "exec"), names)
    return names


def backend_launches(plan: StepPlan, monkeypatch: pytest.MonkeyPatch) -> list[Launched]:
    """Launches of the cuda backend's kernels, in order, where cuDNN adds every bias itself."""
    gpu = FakeGpu()
    stream = gpu.stream()
    graph: Any = FakeOperationGraph(gpu, stream, False, (0,))

    class Library:
        version = "9"

        def engines(self, problem: Convolution, *, steady: bool = False) -> tuple[EngineRef, ...]:
            return (EngineRef(engine_id("e"), graph, 0, "e"),)

        def close(self) -> None:
            """Nothing."""

    class Multiplier:
        def issue(self, *given: Any, **rest: Any) -> Any:
            return lambda: None

        def close(self) -> None:
            """Nothing."""

    monkeypatch.setattr(kernels_module, "load_kernels", lambda gpu, sources: object())
    monkeypatch.setattr(kernels_module, "CublasLt", lambda stream, **settings: Multiplier())
    monkeypatch.setattr(kernels_module, "Cudnn", lambda stream, mode: Library())
    index = index_plan(plan)
    orders = assign_orders(index)
    kernels = DeviceKernels(gpu, stream, Mode(tf32=False, deterministic=True))
    with gpu.current():
        kernels.prepare(index, orders)
        calls = device_calls(index, orders, ARENA)
        kernels.load(calls, scratch=SCRATCH, control=CONTROL, engines={})
        gpu.launchers.clear()
        for number in calls:
            kernels.issues(number)
    return [(x.function, x.grid, x.block, values, x.shared) for x, values in gpu.launchers]


NETS: Mapping[str, Mapping[str, Any]] = {
    "resnet": {"share": 0.0, "optimizer": "momentum"},
    "alexnet": {"share": 0.3, "optimizer": "adam"},
    "gpt2": {"share": 0.0, "optimizer": "adam"},
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.usefixtures("packages")
def test_calls_are_those_of_the_backend(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same launches with the same arguments, in the plan's order; every op of a library, every copy and event."""
    plan, _ = planned(name, tmp_path, deterministic=True, **NETS[name])
    index = index_plan(plan)
    g = Recorder()
    script = loaded(plan)
    script["step"](g)
    assert g.launches == backend_launches(plan, monkeypatch)
    runs = [index.ops[action.op].kind for action in plan.actions if isinstance(action, (Run, Recompute))]
    assert len(g.convolutions) == sum(kind.startswith("conv") for kind in runs)
    assert len(g.products) >= sum(kind == "matmul" for kind in runs)
    copies = [action for action in plan.actions if isinstance(action, (Offload, Prefetch))]
    assert g.copies == [
        (
            type(action).__name__.lower(),
            ARENA + index.buffers[action.buffer].offset,
            index.slots[action.slot].offset,
            index.tensors[action.tensor].bytes,
        )
        for action in copies
    ]
    edges = plan_edges(plan.actions)
    waits = [(number, other) for number, others in edges.waits.items() for other in others]
    assert [key for kind, _, key in g.events if kind == "wait"] == [other for _, other in waits]
    assert {key for kind, _, key in g.events if kind == "record"} == edges.records


def in_two(plan: StepPlan) -> StepPlan:
    """The plan with every convolution in two pieces that can be cut so and has the workspace."""
    cut = [msgspec.structs.replace(a, engine=in_pieces(a.engine, 2)) for a in plan.actions if isinstance(a, Algorithm)]
    by_op = {action.op: action for action in cut}
    for finding in op_findings(msgspec.structs.replace(plan, actions=cut)):
        del by_op[finding.message.split(": ")[0]]
    rows = [by_op.get(a.op, a) if isinstance(a, Algorithm) else a for a in plan.actions]
    return msgspec.structs.replace(plan, actions=rows)


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("batch", [4, 3])
def test_pieces_are_those_of_the_backend(batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of partial filters with the same addresses; a smaller last piece takes the engine of the others."""
    plan = in_two(planned("vgg16", tmp_path, given={"batch": batch}, deterministic=True, device="p100")[0])
    cut = [a for a in plan.actions if isinstance(a, Algorithm) and pieces_of(a.engine)[1] > 1]
    kinds = {index_plan(plan).ops[action.op].kind for action in cut}
    assert kinds >= {"conv", "conv_filter"}
    script = loaded(plan)
    g = Recorder()
    script["step"](g)
    assert g.launches == backend_launches(plan, monkeypatch)
    runs = [index_plan(plan).ops[a.op].kind for a in plan.actions if isinstance(a, (Run, Recompute))]
    assert len(g.convolutions) == sum(kind.startswith("conv") for kind in runs) + len(cut)
    rows = script["CONVOLUTIONS"]
    assert any("like" in row for row in rows) == (batch == 3)
    for row in rows:
        if "like" in row:
            assert row["engine"] is None
            assert row["image"][0][0] == 1
            assert rows[row["like"]]["image"][0][0] == 2
            assert rows[row["like"]]["workspace"] == row["workspace"]
    for number, addresses in g.convolutions:
        assert "workspace" not in addresses or addresses["workspace"] < ARENA + plan.arena_bytes
        assert rows[number]["workspace"] >= 0
    assert "in 2 pieces of the batch" in replay_script(plan)


@pytest.mark.usefixtures("packages")
def test_convolutions_that_are_alike_share_a_row(tmp_path: Path) -> None:
    """Problems are listed once; addresses lie inside the arena and the workspace is the plan's."""
    plan, _ = planned("resnet", tmp_path, deterministic=True, optimizer="momentum", share=0.0)
    script = loaded(plan)
    g = Recorder()
    script["step"](g)
    assert {number for number, _ in g.convolutions} == set(range(len(script["CONVOLUTIONS"])))
    assert len(script["CONVOLUTIONS"]) < len(g.convolutions)
    for number, addresses in g.convolutions:
        size = script["CONVOLUTIONS"][number]["workspace"]
        assert ("workspace" in addresses) == (size > 0)
        assert all(ARENA <= address < ARENA + plan.arena_bytes for address in addresses.values())


@pytest.mark.usefixtures("packages")
def test_bias_of_an_engine_without_one(tmp_path: Path) -> None:
    """Where the engine leaves the bias out a kernel adds it, in place, after each such convolution."""
    plan, _ = planned("alexnet", tmp_path, deterministic=True, optimizer="adam", share=0.3)
    script = loaded(plan)
    fused, apart = Recorder(), Recorder(bias_apart=True)
    script["step"](fused)
    script["step"](apart)
    with_bias = sum("bias" in addresses for _, addresses in apart.convolutions)
    assert with_bias >= 5
    assert len(apart.launches) == len(fused.launches) + with_bias


@pytest.mark.usefixtures("packages")
def test_tables(tmp_path: Path) -> None:
    """Residents with their places, results, bounds of labels; every constant of the plan."""
    plan, weights = planned("resnet", tmp_path, deterministic=True, optimizer="momentum", share=0.0)
    script = loaded(plan)
    assert script["ARENA_BYTES"] == plan.arena_bytes
    assert script["HOST_BYTES"] == plan.host_arena_bytes
    assert set(weights) <= set(script["RESIDENT"])
    assert list(script["RESULTS"]) == [place.tensor for place in plan.outputs]
    assert script["BOUNDS"] == {"target": 7}
    assert script["TF32"] is False


@pytest.mark.usefixtures("packages")
def test_orders_of_arrays(tmp_path: Path) -> None:
    """`stored` and `seen` undo each other; channels-last puts axis 1 innermost."""
    script = loaded(planned("resnet", tmp_path, deterministic=True, optimizer="momentum", share=0.0)[0])
    x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    held = np.ascontiguousarray(script["stored"](x, "channels_last"))
    assert held.shape == (2, 4, 5, 3)
    np.testing.assert_array_equal(
        script["seen"](held.view(np.uint8).reshape(-1), "float32", x.shape, "channels_last"), x
    )
    np.testing.assert_array_equal(script["stored"](x, "plain"), x)


def test_no_more_than_it_needs(tmp_path: Path) -> None:
    """A net without convolutions asks for no cuDNN, and nothing ever for snplan; the text is the same every time."""
    plan, _ = planned("gpt2", tmp_path, deterministic=True, **NETS["gpt2"])
    text = replay_script(plan)
    assert text == replay_script(plan)
    found = {
        name.name.split(".")[0] for node in ast.parse(text).body if isinstance(node, ast.Import) for name in node.names
    }
    assert found == {"argparse", "numpy", "pycuda"}
    assert "cudnn" not in text
