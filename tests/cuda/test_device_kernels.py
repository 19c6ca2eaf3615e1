"""Ops as calls of kernels and libraries: the libraries are stand-ins, launches are only looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from cuda_fake import FakeGpu, FakeOperationGraph
from cuda_ops import op_plan
from runtime_support import normal

import snplan.runtime.cuda.kernels as module
from snplan.plan.index import index_plan
from snplan.plan.model import StepPlan
from snplan.runtime.cuda.calls import device_calls
from snplan.runtime.cuda.convolution import Convolution, engine_id
from snplan.runtime.cuda.cudnn import EngineRef, Mode
from snplan.runtime.cuda.kernels import PRODUCT_SCRATCH, DeviceKernels
from snplan.runtime.layout import assign_orders

ARENA = 1 << 40
SCRATCH, CONTROL = 1 << 50, 1 << 51


@dataclass
class FakeMultiplier:
    """Takes note of products."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    closed: bool = False

    def issue(self, product: Any, dtype: Any, addresses: tuple[int, int, int], **rest: Any) -> Any:
        """Nothing runs."""
        self.calls.append({"product": product, "addresses": addresses, **rest})
        return lambda: None

    def close(self) -> None:
        """Noted."""
        self.closed = True


@dataclass
class FakeCudnn:
    """Two engines fused with the bias, two without."""

    gpu: FakeGpu
    stream: Any
    version: str = "9"
    problems: list[Convolution] = field(default_factory=list)
    workspaces: tuple[int | None, ...] = (1 << 20, 0, None)
    fails: frozenset[int] = frozenset()
    closed: bool = False
    graphs: list[FakeOperationGraph] = field(default_factory=list)

    def engines(self, problem: Convolution, *, steady: bool = False) -> tuple[EngineRef, ...]:
        """By the problem."""
        self.problems.append(problem)
        found: list[EngineRef] = []
        for separate in (False, True) if problem.bias else (False,):
            graph: Any = FakeOperationGraph(self.gpu, self.stream, separate, self.workspaces, fails=self.fails)
            self.graphs.append(graph)
            found += [
                EngineRef(engine_id(f"e{place}", separate_bias=separate), graph, place, f"e{place}")
                for place in range(len(self.workspaces))
            ]
        return tuple(found)

    def close(self) -> None:
        """Noted."""
        self.closed = True


@dataclass
class Loaded:
    """Kernels of a plan, and the stand-ins that they talk to."""

    kernels: DeviceKernels
    gpu: FakeGpu
    multiplier: FakeMultiplier
    cudnn: FakeCudnn
    scratch: int


def load(
    monkeypatch: pytest.MonkeyPatch, plan: StepPlan, engines: Mapping[str, int] | None = None, **cudnn: Any
) -> Loaded:
    """The kernels of a plan."""
    gpu = FakeGpu()
    stream = gpu.stream()
    multiplier, library = FakeMultiplier(), FakeCudnn(gpu, stream, **cudnn)
    monkeypatch.setattr(module, "load_kernels", lambda gpu, sources: object())
    monkeypatch.setattr(module, "CublasLt", lambda stream, **settings: multiplier)
    monkeypatch.setattr(module, "Cudnn", lambda stream, mode: library)
    deterministic = bool(plan.options.get("deterministic", False))
    kernels = DeviceKernels(gpu, stream, Mode(tf32=False, deterministic=deterministic))
    index = index_plan(plan)
    orders = assign_orders(index)
    with gpu.current():
        scratch = kernels.prepare(index, orders)
        calls = device_calls(index, orders, ARENA)
        kernels.load(calls, scratch=SCRATCH, control=CONTROL, engines=engines or {})
    return Loaded(kernels, gpu, multiplier, library, scratch)


def only_action(plan: StepPlan) -> int:
    """The action that runs the op."""
    return next(number for number, action in enumerate(plan.actions) if type(action).__name__ == "Run")


PRODUCT = {"trans_a": False, "trans_b": False, "alpha": 2.0}
CONV = {"strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "group": 1}


def test_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product is one call with addresses of b, a and y; it may use the scratch."""
    plan = op_plan("matmul", [normal(3, 4), normal(4, 5)], PRODUCT)
    loaded = load(monkeypatch, plan)
    assert loaded.scratch == PRODUCT_SCRATCH
    assert len(loaded.kernels.issues(only_action(plan))) == 1
    (call,) = loaded.multiplier.calls
    assert call["addresses"] == (ARENA + 512, ARENA, ARENA + 1024)
    assert (call["alpha"], call["accumulate"], call["bias"]) == (2.0, False, 0)
    loaded.kernels.close()
    assert loaded.multiplier.closed


def test_bias_of_columns_goes_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """One number a column is the library's epilogue."""
    plan = op_plan("matmul", [normal(3, 4), normal(4, 5), normal(5)], PRODUCT)
    loaded = load(monkeypatch, plan)
    assert len(loaded.kernels.issues(only_action(plan))) == 1
    assert loaded.multiplier.calls[0]["bias"] == ARENA + 1024
    assert not loaded.multiplier.calls[0]["accumulate"]


@pytest.mark.parametrize("shape", [(3, 1), (3, 5), (1,), (1, 1)])
def test_other_biases_are_written_first(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    """The result starts as the bias, repeated by a kernel, and the product is added."""
    plan = op_plan("matmul", [normal(3, 4), normal(4, 5), normal(*shape)], PRODUCT)
    loaded = load(monkeypatch, plan)
    assert len(loaded.kernels.issues(only_action(plan))) == 2
    assert loaded.multiplier.calls[0]["accumulate"]
    assert loaded.multiplier.calls[0]["bias"] == 0
    assert len(loaded.gpu.launchers) == 1


def test_product_over_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros, or the bias; no library call with an inner size of 0."""
    for bias, launches in (([], 0), ([normal(5)], 1)):
        plan = op_plan("matmul", [normal(3, 0), normal(0, 5), *bias], PRODUCT)
        loaded = load(monkeypatch, plan)
        assert len(loaded.kernels.issues(only_action(plan))) == 1
        assert loaded.multiplier.calls == []
        assert len(loaded.gpu.launchers) == launches


def test_empty_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is launched for a result without elements."""
    plan = op_plan("matmul", [normal(0, 4), normal(4, 5)], PRODUCT)
    assert load(monkeypatch, plan).kernels.issues(only_action(plan)) == []
    plan = op_plan("conv", [normal(0, 3, 8, 8), normal(4, 3, 3, 3)], CONV)
    assert load(monkeypatch, plan).kernels.issues(only_action(plan)) == []


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "roles"),
    [
        ("conv", [(2, 3, 8, 8), (4, 3, 3, 3)], {}, ("image", "filter", "result")),
        ("conv_transpose", [(2, 4, 8, 8), (4, 3, 3, 3)], {"shape": [2, 3, 8, 8]}, ("result", "filter", "image")),
        ("conv_filter", [(2, 3, 8, 8), (2, 4, 8, 8)], {"shape": [4, 3, 3, 3]}, ("image", "result", "filter")),
    ],
)
def test_convolution_addresses(
    monkeypatch: pytest.MonkeyPatch, kind: str, inputs: list[Any], attrs: dict[str, Any], roles: tuple[str, ...]
) -> None:
    """Each operand's address goes by what it is to the forward convolution; the workspace is the plan's."""
    plan = op_plan(kind, [normal(*shape) for shape in inputs], {**CONV, **attrs}, workspace=1 << 20, deterministic=True)
    loaded = load(monkeypatch, plan)
    with loaded.gpu.current():
        for issue in loaded.kernels.issues(only_action(plan)):
            issue()
    (issued,) = [call for graph in loaded.cudnn.graphs for call in graph.issued]
    offsets = [plan.buffers[i].offset for i in range(3)]
    assert issued == (0, dict(zip(roles, (ARENA + x for x in offsets), strict=True)), ARENA + plan.buffers[3].offset)
    assert loaded.kernels.engines == {"op": engine_id("e0")}


def test_workspace_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a workspace the engine that needs none runs."""
    plan = op_plan("conv", [normal(2, 3, 8, 8), normal(4, 3, 3, 3)], CONV, deterministic=True)
    assert load(monkeypatch, plan).kernels.engines == {"op": engine_id("e1")}


def test_engines_of_another_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that are given replace the plan's."""
    plan = op_plan("conv", [normal(2, 3, 8, 8), normal(4, 3, 3, 3)], CONV, workspace=1 << 20, deterministic=True)
    loaded = load(monkeypatch, plan, engines={"op": engine_id("e1")})
    assert loaded.kernels.engines == {"op": engine_id("e1")}


def test_bias_after_an_engine_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no fused engine can be had, the bias is added in place by a kernel: result and bias in, result out."""
    plan = op_plan(
        "conv", [normal(2, 3, 8, 8), normal(4, 3, 3, 3), normal(4)], CONV, workspace=1 << 20, deterministic=True
    )
    wanted = engine_id("e0", separate_bias=True)
    loaded = load(monkeypatch, plan, engines={"op": wanted})
    assert loaded.kernels.engines == {"op": wanted}
    assert len(loaded.kernels.issues(only_action(plan))) == 2
    launch, values = loaded.gpu.launchers[-1]
    result, bias = (ARENA + plan.buffers[i].offset for i in (3, 2))
    assert [int(value) for value in values[:3]] == [result, result, bias]
    assert launch.function.startswith("add")


def test_timed_choice_skips_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is listed, built, and then refuses to run is not chosen."""
    plan = op_plan("conv", [normal(2, 3, 8, 8), normal(4, 3, 3, 3)], CONV, workspace=1 << 20)
    loaded = load(monkeypatch, plan, workspaces=(0, 0, 512, 0), fails=frozenset({0}))
    assert loaded.kernels.engines == {"op": engine_id("e1")}


def test_generated_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control words and the scratch are told to kernels."""
    plan = op_plan("dropout", [normal(1000)], {"ratio": 0.5})
    loaded = load(monkeypatch, plan)
    loaded.kernels.issues(only_action(plan))
    values = [int(value) for value in loaded.gpu.launchers[-1][1] if value.dtype.kind == "u"]
    assert CONTROL in values
    assert not loaded.multiplier.calls
    assert not loaded.cudnn.problems
