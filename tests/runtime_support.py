"""What the runtime's tests share: kernels called under a watch, ONNX operators as oracles, small plans by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnxruntime

from snplan.ir import DType, Spec
from snplan.ops.table import infer
from snplan.plan.model import (
    Alloc,
    Extent,
    Free,
    ModelRef,
    Offload,
    Persistent,
    Place,
    PlanOp,
    PlanTensor,
    Prefetch,
    Recompute,
    Run,
    StepPlan,
)
from snplan.runtime.numpy import KERNELS, Array, Context
from snplan.units import round_up

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def spec_of(x: Array) -> Spec:
    """The spec of an array."""
    return Spec(DType(x.dtype.name), x.shape)


def run_kernel(
    kind: str, inputs: Sequence[Any], attrs: Mapping[str, Any] | None = None, context: Context | None = None
) -> tuple[Array, ...]:
    """A kernel's outputs, with everything checked that holds for all kernels.

    Inputs stay as they were, outputs share no memory with them, outputs are what the op table says, and the same
    values at other addresses give the same bits.
    """
    arrays = [np.ascontiguousarray(x).reshape(np.shape(x)) for x in inputs]
    before = [x.copy() for x in arrays]
    context = context or Context()
    outputs = KERNELS[kind](arrays, attrs or {}, context)
    for x, old in zip(arrays, before, strict=True):
        assert x.tobytes() == old.tobytes(), f"{kind} changed an input"
    for y in outputs:
        assert isinstance(y, np.ndarray)
        assert y.flags.c_contiguous
        assert not any(np.shares_memory(x, y) for x in arrays), f"{kind} gave out an input's memory"
    assert [spec_of(y) for y in outputs] == list(infer(kind, [spec_of(x) for x in arrays], dict(attrs or {})))
    again = KERNELS[kind]([elsewhere(x) for x in arrays], attrs or {}, context)
    assert [y.tobytes() for y in outputs] == [y.tobytes() for y in again], f"{kind}: bits depend on addresses"
    return outputs


def elsewhere(x: Array) -> Array:
    """The same values at an address that is aligned to the element only."""
    block = np.empty(x.nbytes + 64 + x.itemsize, np.uint8)
    start = -block.ctypes.data % 64 + x.itemsize
    copy = block[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def one(
    kind: str, inputs: Sequence[Any], attrs: Mapping[str, Any] | None = None, context: Context | None = None
) -> Array:
    """The only output of a kernel."""
    (y,) = run_kernel(kind, inputs, attrs, context)
    return y


def onnx_run(
    op: str, inputs: Sequence[Array | None], *, opset: int = 18, outputs: int = 1, **attributes: Any
) -> list[Array]:
    """What onnxruntime computes for one node; an input None is left out."""
    given = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = onnx.helper.make_node(op, names, results, **attributes)
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in given.items()
    ]
    graph = onnx.helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name=name) for name in results])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, given)
    return found


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Seeded normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(a: Array, b: Array, tolerance: float = 1e-5) -> None:
    """Assert equal shapes and a small relative L2 distance."""
    assert a.shape == b.shape
    x, y = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
    distance = np.linalg.norm(np.nan_to_num(x - y).reshape(-1))
    assert distance <= tolerance * max(float(np.linalg.norm(np.nan_to_num(y).reshape(-1))), 1e-30), distance


def inner(a: Array, b: Array | float) -> float:
    """The sum of all products, in float64."""
    return float(np.sum(a.astype(np.float64) * np.asarray(b, np.float64)))


class Draft:
    """A step plan written by hand: tensors, ops and buffers first, then actions in order.

    `run`, `offload` and the like return the action's id, to be named in `after`.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, PlanTensor] = {}
        self.ops: dict[str, PlanOp] = {}
        self.buffers: list[Extent] = []
        self.slots: list[Extent] = []
        self.resident: list[Place] = []
        self.persistent: list[Persistent] = []
        self.outputs: list[Place] = []
        self.actions: list[Any] = []

    def tensor(self, name: str, *shape: int, role: str = "activation", dtype: str = "float32") -> None:
        """Declare a tensor."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        self.tensors[name] = PlanTensor(name=name, dtype=dtype, shape=list(shape), bytes=size, role=role)

    def op(
        self,
        name: str,
        kind: str,
        inputs: str,
        outputs: str,
        *,
        phase: str = "forward",
        rng: int | None = None,
        **attrs: Any,
    ) -> None:
        """Declare an op; inputs and outputs are names with spaces between."""
        self.ops[name] = PlanOp(
            name=name,
            kind=kind,
            phase=phase,
            inputs=inputs.split(),
            outputs=outputs.split(),
            attrs=attrs,
            nodes=[],
            rng=rng,
        )

    def buffer(self, size: int = 512, offset: int | None = None) -> int:
        """A new buffer after all others, or at an offset."""
        end = max((b.offset + b.bytes for b in self.buffers), default=0)
        self.buffers.append(Extent(id=len(self.buffers), offset=end if offset is None else offset, bytes=size))
        return len(self.buffers) - 1

    def slot(self, size: int = 512) -> int:
        """A new host slot."""
        self.slots.append(Extent(id=len(self.slots), offset=sum(s.bytes for s in self.slots), bytes=size))
        return len(self.slots) - 1

    def source(self, name: str, *shape: int, role: str, becomes: str | None = None, dtype: str = "float32") -> int:
        """A tensor resident in a buffer of its own, which persists (as `becomes`) unless it is an input."""
        self.tensor(name, *shape, role=role, dtype=dtype)
        buffer = self.buffer(round_up(max(self.tensors[name].bytes, 1)))
        self.resident.append(Place(tensor=name, buffer=buffer))
        if role != "input":
            self.persistent.append(Persistent(tensor=name, becomes=becomes or name, buffer=buffer))
        return buffer

    def alloc(self, *buffers: int) -> None:
        """Begin live intervals."""
        self.actions += [Alloc(buffer=b) for b in buffers]

    def free(self, *buffers: int) -> None:
        """End live intervals."""
        self.actions += [Free(buffer=b) for b in buffers]

    def run(self, op: str, where: Mapping[str, int], *after: int, again: bool = False) -> int:
        """Run (or recompute) an op whose tensors are in the buffers of `where`."""
        row = self.ops[op]
        fields: dict[str, Any] = {
            "op": op,
            "reads": [(name, where[name]) for name in dict.fromkeys(row.inputs)],
            "writes": [(name, where[name]) for name in row.outputs],
            "after": list(after),
        }
        return self._add(Recompute(**fields) if again else Run(**fields))

    def offload(self, tensor: str, buffer: int, slot: int, *after: int) -> int:
        """Copy out."""
        return self._add(Offload(tensor=tensor, buffer=buffer, slot=slot, after=list(after)))

    def prefetch(self, tensor: str, slot: int, buffer: int, *after: int) -> int:
        """Copy in."""
        return self._add(Prefetch(tensor=tensor, slot=slot, buffer=buffer, after=list(after)))

    def _add(self, action: Any) -> int:
        self.actions.append(action)
        return len(self.actions) - 1

    def plan(self) -> StepPlan:
        """The plan, with totals worked out from its actions."""
        resident = [self.buffers[p.buffer].bytes for p in self.resident if p.buffer is not None]
        live = peak = sum(resident)
        for action in self.actions:
            if isinstance(action, (Alloc, Free)):
                live += self.buffers[action.buffer].bytes * (1 if isinstance(action, Alloc) else -1)
                peak = max(peak, live)
        arena = max((b.offset + b.bytes for b in self.buffers), default=0)
        return StepPlan(
            format=1,
            snplan_version="0",
            model=ModelRef(sha256="0" * 64, name="by-hand.onnx"),
            options={},
            device={"name": "test", "capacity_bytes": 1 << 30},
            budget_bytes=1 << 30,
            reserve_bytes=0,
            arena_bytes=arena,
            peak_live_bytes=peak,
            host_arena_bytes=sum(s.bytes for s in self.slots),
            step_time_us=1,
            lower_bound_us=1,
            floor_bytes=512,
            tensors=list(self.tensors.values()),
            ops=list(self.ops.values()),
            buffers=self.buffers,
            slots=self.slots,
            resident=self.resident,
            persistent=self.persistent,
            outputs=self.outputs,
            actions=self.actions,
        )
