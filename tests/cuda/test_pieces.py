"""Convolutions in pieces of the batch: where pieces are, which engines run them, and their results.

The library is a stand-in that computes with NumPy on the addresses that it is given and scribbles over the workspace
that it asked for; the device is the one that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from cuda_fake import FakeGpu, _array
from cuda_ops import op_plan
from runtime_support import normal

import snplan.runtime.cuda.kernels as kernels_module
from snplan.codegen.launch import Input, Output
from snplan.codegen.operand import operand
from snplan.errors import RunError
from snplan.ir import DType, Spec
from snplan.plan.index import index_plan
from snplan.plan.model import PlanOp, StepPlan
from snplan.plan.pieces import in_pieces
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.cuda.calls import DeviceCall
from snplan.runtime.cuda.convolution import Convolution, engine_id
from snplan.runtime.cuda.cudnn import EngineRef
from snplan.runtime.cuda.kernels import DeviceKernels
from snplan.runtime.cuda.pieces import piece_calls, summed_ops
from snplan.runtime.numpy import KERNELS, Array, Context
from snplan.runtime.session import TrainingSession

WINDOW: dict[str, Any] = {"strides": [1, 1], "pads": [1] * 4, "dilations": [1, 1], "group": 1}
X, Y, W = (8, 4, 6, 6), (8, 8, 6, 6), (8, 4, 3, 3)
KINDS = ("conv", "conv_transpose", "conv_filter")
FILTER = 8 * 4 * 3 * 3 * 4  # 1152 bytes, 1536 in granules


class AddingGpu(FakeGpu):
    """Runs launches of two inputs and one output of float32 as sums, over `elements`."""

    elements = 0

    def launcher(self, module: Any, launch: Any, values: Sequence[Any], stream: Any) -> Any:
        """Other launches only count."""
        self.launchers.append((launch, tuple(values)))
        at = {argument: int(value) for argument, value in zip(launch.arguments, values, strict=True)}
        inputs = [at[key] for key in at if isinstance(key, Input)]
        outputs = [at[key] for key in at if isinstance(key, Output)]

        def add() -> None:
            if len(outputs) == 1 and self.elements:
                a, b, y = (self.bytes_at(address, 4 * self.elements) for address in (*(inputs * 2)[:2], *outputs))
                y.view(np.float32)[:] = a.view(np.float32) + b.view(np.float32)

        return lambda: self.call(stream, add)


@dataclass(eq=False)
class ComputingGraph:
    """One problem; engine i needs `sizes(problem)[i]` bytes."""

    gpu: FakeGpu
    stream: Any
    problem: Convolution
    sizes: Sequence[int | None]
    separate_bias: bool
    issued: list[tuple[int, int, Mapping[str, int], int]]

    def build(self, place: int) -> int | None:
        return self.sizes[place]

    def is_deterministic(self, place: int) -> bool:
        return True

    def issue(self, place: int, addresses: Mapping[str, int], workspace: int) -> Callable[[], None]:
        def compute() -> None:
            problem, size = self.problem, self.sizes[place] or 0
            if size:
                self.gpu.bytes_at(workspace, size).fill(0xFF)
            known = {role: getattr(problem, role) for role in ("image", "filter", "result")}
            arrays = {role: _array(self.gpu, x, addresses[role]) for role, x in known.items()}
            order = {"conv": "image filter", "conv_transpose": "result filter", "conv_filter": "image result"}
            unknown = next(role for role in known if role not in order[problem.kind].split())
            attrs = {**WINDOW, "shape": list(known[unknown].shape)}
            inputs = [np.ascontiguousarray(arrays[role]) for role in order[problem.kind].split()]
            arrays[unknown][...] = KERNELS[problem.kind](inputs, attrs, Context())[0]

        def run() -> None:
            self.issued.append((place, self.problem.image.shape[0], dict(addresses), workspace))
            self.gpu.call(self.stream, compute)

        return run


@dataclass(eq=False)
class ComputingCudnn:
    """Engines `e0` and `e1`, which need `per_image` bytes an image and none; `absent` by (images, place)."""

    gpu: FakeGpu
    stream: Any = None
    per_image: int = 1024
    separate_bias: bool = False
    absent: frozenset[tuple[int, int]] = frozenset()
    version: str = "9.19.0"
    issued: list[tuple[int, int, Mapping[str, int], int]] = field(default_factory=list)

    def engines(self, problem: Convolution, *, steady: bool = False) -> tuple[EngineRef, ...]:
        images = problem.image.shape[0]
        sizes = [None if (images, place) in self.absent else size for place, size in enumerate((self.size(images), 0))]
        graph: Any = ComputingGraph(self.gpu, self.stream, problem, sizes, self.separate_bias, self.issued)
        return tuple(EngineRef(engine_id(f"e{place}"), graph, place, f"e{place}") for place in range(2))

    def size(self, images: int) -> int:
        return self.per_image * images

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ComputingCudnn:
    """What `DeviceKernels` finds as cuDNN, on a device of its own."""
    found = ComputingCudnn(AddingGpu(total=1 << 24))

    def made(stream: Any, mode: Any) -> ComputingCudnn:
        found.stream = stream
        return found

    monkeypatch.setattr(kernels_module, "load_kernels", lambda gpu, sources: object())
    monkeypatch.setattr(kernels_module, "Cudnn", made)
    return found


def case(kind: str, batch: int = 8) -> tuple[list[Array], dict[str, Any]]:
    """Inputs and attributes."""
    x, y, w = (normal(*shape, seed=number) for number, shape in enumerate(((batch, *X[1:]), (batch, *Y[1:]), W)))
    return {
        "conv": ([x, w], WINDOW),
        "conv_transpose": ([y, w], {**WINDOW, "shape": list(x.shape)}),
        "conv_filter": ([x, y], {**WINDOW, "shape": list(w.shape)}),
    }[kind]


def run(plan: StepPlan, inputs: Sequence[Array], library: ComputingCudnn) -> Array:
    """The op's output; what was issued before the step is forgotten."""
    assert isinstance(library.gpu, AddingGpu)
    library.gpu.elements = int(np.prod(W)) if plan.ops[0].kind == "conv_filter" else 0
    backend = CudaBackend(gpu=library.gpu, kernels=DeviceKernels, replay="eager")
    with TrainingSession(plan, {f"x{i}": x for i, x in enumerate(inputs)}, backend=backend) as session:
        library.issued.clear()
        session.step({})
        (result,) = session.outputs().values()
        return result


@pytest.mark.parametrize("engine", [engine_id("e0"), 3], ids=["named", "left to the backend"])
@pytest.mark.parametrize(("batch", "pieces"), [(8, 2), (8, 4), (8, 8), (7, 2), (11, 4)])
@pytest.mark.parametrize("kind", KINDS)
def test_results(kind: str, batch: int, pieces: int, engine: int, library: ComputingCudnn) -> None:
    """Images come out as from the whole, bit for bit; filters as sums of the pieces' filters."""
    inputs, attrs = case(kind, batch)
    plan = op_plan(kind, inputs, attrs, workspace=16 << 10, engine=in_pieces(engine, pieces), deterministic=True)
    found = run(plan, inputs, library)
    whole = KERNELS[kind](inputs, attrs, Context())[0]
    if kind == "conv_filter":
        np.testing.assert_allclose(found, whole, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(found, whole)
    size = -(-batch // pieces)
    assert [images for _, images, _, _ in library.issued] == [size] * (pieces - 1) + [batch - size * (pieces - 1)]
    assert {place for place, *_ in library.issued} == {0}


def call_of(kind: str, batch: int) -> DeviceCall:
    """A call at round addresses, channels-last, with a workspace of 4096 bytes at 90000."""
    inputs, attrs = case(kind, batch)
    shapes = {"conv": (batch, *Y[1:]), "conv_transpose": (batch, *X[1:]), "conv_filter": W}
    op = PlanOp(name="op", kind=kind, phase="forward", inputs=[], outputs=[], attrs=attrs, nodes=[], rng=None)
    return DeviceCall(
        op=op,
        number=0,
        inputs=tuple(operand(Spec(DType.FLOAT32, x.shape), "channels_last") for x in inputs),
        outputs=(operand(Spec(DType.FLOAT32, shapes[kind]), "channels_last"),),
        at_inputs=(10000, 20000),
        at_outputs=(30000,),
        workspace=90000,
        workspace_bytes=4096,
    )


# An image of x is 4 x 6 x 6 floats, 576 bytes; one of y 8 x 6 x 6, 1152.
@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "workspaces"),
    [
        ("conv", [(10000, 20000), (11728, 20000), (13456, 20000)], [30000, 33456, 36912], [(90000, 4096)] * 3),
        (
            "conv_transpose",
            [(10000, 20000), (13456, 20000), (16912, 20000)],
            [30000, 31728, 33456],
            [(90000, 4096)] * 3,
        ),
        ("conv_filter", [(10000, 20000), (11728, 23456), (13456, 26912)], [30000, 90000, 90000], [(91536, 2560)] * 3),
    ],
)
def test_addresses_by_hand(kind: str, inputs: Any, outputs: Any, workspaces: Any) -> None:
    """Eight images in pieces of 3, 3 and 2; the partial filter takes 1536 bytes at the start of the workspace."""
    calls = piece_calls(call_of(kind, 8), 3)
    assert [call.at_inputs for call in calls] == inputs
    assert [call.at_outputs for call in calls] == [(address,) for address in outputs]
    assert [(call.workspace, call.workspace_bytes) for call in calls] == workspaces
    assert [call.inputs[0].shape[0] for call in calls] == [3, 3, 2]
    assert [call.outputs[0].shape[0] for call in calls] == ([8] * 3 if kind == "conv_filter" else [3, 3, 2])
    assert [call.inputs[1].shape[0] for call in calls] == ([3, 3, 2] if kind == "conv_filter" else [8] * 3)


def test_one_piece_is_the_call() -> None:
    call = call_of("conv", 8)
    assert piece_calls(call, 1) == (call,)


@pytest.mark.parametrize(("kind", "own"), [("conv", 0), ("conv_filter", 1536)])
def test_workspace_is_asked_for_again(kind: str, own: int, library: ComputingCudnn) -> None:
    """What four images of eight need now must fit what the plan gives, less the partial filter; both are told."""
    inputs, attrs = case(kind)
    engine = in_pieces(engine_id("e0"), 2)
    run(op_plan(kind, inputs, attrs, workspace=own + 4096, engine=engine), inputs, library)
    library.per_image = 1152
    with pytest.raises(RunError, match=r"4\.50 KiB.*4\.00 KiB") as caught:
        run(op_plan(kind, inputs, attrs, workspace=own + 4096, engine=engine), inputs, library)
    assert caught.value.code == "SNP-R054"
    assert caught.value.details == {"engine": engine_id("e0"), "bytes": 4608, "planned_bytes": 4096}


def test_a_last_piece_without_the_engine(library: ComputingCudnn) -> None:
    """Three images may have no engine that four have: they get one that fits, and without one the plan is refused."""
    inputs, attrs = case("conv", 7)
    plan = op_plan("conv", inputs, attrs, workspace=4096, engine=in_pieces(engine_id("e0"), 2))
    library.absent = frozenset({(3, 0)})
    np.testing.assert_array_equal(run(plan, inputs, library), KERNELS["conv"](inputs, attrs, Context())[0])
    assert [(place, images) for place, images, *_ in library.issued] == [(0, 4), (1, 3)]
    library.absent = frozenset({(3, 0), (3, 1)})
    with pytest.raises(RunError) as caught:
        run(plan, inputs, library)
    assert caught.value.code == "SNP-R055"


def test_bias_apart_is_added_once(library: ComputingCudnn) -> None:
    """Over the whole result, behind all pieces."""
    inputs, attrs = case("conv")
    library.separate_bias = True
    inputs = [*inputs, normal(8, seed=9)]
    before = len(library.gpu.launchers)
    run(op_plan("conv", inputs, attrs, workspace=4096, engine=in_pieces(engine_id("e0"), 4)), inputs, library)
    (launched,) = library.gpu.launchers[before:]
    first = library.issued[0][2]["result"]
    at = dict(zip(launched[0].arguments, launched[1], strict=True))
    assert {int(value) for key, value in at.items() if isinstance(key, Output)} == {first}


@pytest.mark.parametrize("kind", KINDS)
def test_engines_by_op_name_the_pieces(kind: str, library: ComputingCudnn) -> None:
    """So that the unplanned twin runs the same pieces, and equal bits prove something."""
    inputs, attrs = case(kind)
    plan = op_plan(kind, inputs, attrs, workspace=8192, engine=in_pieces(3, 4), deterministic=True)
    assert summed_ops(index_plan(plan)) == ({"op"} if kind == "conv_filter" else frozenset())
    backend = CudaBackend(gpu=library.gpu, kernels=DeviceKernels)
    library.gpu.elements = 0  # type: ignore[attr-defined]
    with TrainingSession(plan, {f"x{i}": x for i, x in enumerate(inputs)}, backend=backend):
        assert backend.engines == {"op": in_pieces(engine_id("e0"), 4)}


def test_an_order_that_is_plain(library: ComputingCudnn) -> None:
    """The batch is outermost there, too: the second of four pieces begins two images, 1152 bytes, behind the first."""
    call = call_of("conv", 8)
    plain = replace(
        call,
        inputs=tuple(operand(Spec(DType.FLOAT32, x.shape), "plain") for x in call.inputs),
        outputs=tuple(operand(Spec(DType.FLOAT32, y.shape), "plain") for y in call.outputs),
    )
    assert [piece.at_inputs for piece in piece_calls(plain, 4)] == [(10000 + 1152 * i, 20000) for i in range(4)]
    assert all(piece.inputs[0].plain and piece.outputs[0].plain for piece in piece_calls(plain, 4))
