"""Every op of a plan as calls that put its work on the compute stream: generated kernels, cuDNN, cuBLASLt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from snplan.codegen.kernels import LIBRARY, kernel_for
from snplan.codegen.launch import Addresses, Launch, values
from snplan.codegen.operand import Operand, Order
from snplan.ir import Spec
from snplan.plan.index import PlanIndex
from snplan.plan.model import PlanOp
from snplan.runtime.cuda.calls import DeviceCall, planned_workspaces
from snplan.runtime.cuda.convolution import convolution
from snplan.runtime.cuda.cublaslt import BIAS_TYPES, CublasLt
from snplan.runtime.cuda.cudnn import Cudnn, EngineRef, Mode
from snplan.runtime.cuda.engines import Chosen, choose_engine
from snplan.runtime.cuda.gpu import Gpu, Issue, Stream
from snplan.runtime.cuda.modules import load_kernels
from snplan.runtime.cuda.products import products
from snplan.runtime.cuda.timing import time_us
from snplan.runtime.layout import CONVOLUTIONS, Orders, spec_of

# Scratch that matrix products may use beside the arena; part of the reserve, as the handles of the libraries are.
PRODUCT_SCRATCH = 32 << 20


class Kernels(Protocol):
    """What executes ops. `prepare` and then `load` are called once, `issues` for each action afterwards."""

    def prepare(self, index: PlanIndex, orders: Orders) -> int:
        """Bytes of scratch, beside the arena, that one op at a time may need."""

    def load(self, calls: Mapping[int, DeviceCall], *, scratch: int, control: int, engines: Mapping[str, int]) -> None:
        """Make every op ready; `engines` are ids by op that replace those of the plan."""

    def issues(self, action: int) -> Sequence[Issue]:
        """The calls that execute an action, in order."""

    @property
    def engines(self) -> Mapping[str, int]:
        """Ids of the engines that run, by op."""

    def close(self) -> None:
        """Give everything back."""


class DeviceKernels:
    """Ops on a real device, all on one stream."""

    def __init__(self, gpu: Gpu, stream: Stream, mode: Mode) -> None:
        self._gpu, self._stream, self._mode = gpu, stream, mode
        self._launches: dict[str, tuple[Launch, ...]] = {}
        self._calls: Mapping[int, DeviceCall] = {}
        self._module: Any = None
        self._cudnn: Cudnn | None = None
        self._cublaslt: CublasLt | None = None
        self._chosen: dict[str, Chosen] = {}
        self._scratch = self._control = 0

    @property
    def engines(self) -> Mapping[str, int]:
        """Ids of the engines that run, by op."""
        return {name: chosen.engine.id for name, chosen in self._chosen.items()}

    def prepare(self, index: PlanIndex, orders: Orders) -> int:
        """Launches of all generated kernels, and the scratch that they and matrix products need."""
        kinds = {op.kind for op in index.ops.values()}
        self._launches = {
            op.name: op_launches(op, index, orders) for op in index.ops.values() if op.kind not in LIBRARY
        }
        partial = max((launch.workspace for found in self._launches.values() for launch in found), default=0)
        return max(partial, PRODUCT_SCRATCH if "matmul" in kinds else 0)

    def load(self, calls: Mapping[int, DeviceCall], *, scratch: int, control: int, engines: Mapping[str, int]) -> None:
        """Choose engines, add the launches that library ops need besides, compile and load all kernels."""
        self._calls, self._scratch, self._control = calls, scratch, control
        limits = planned_workspaces(calls)
        for call in _first_calls(calls).values():
            if call.op.kind in CONVOLUTIONS:
                self._choose(call, engines.get(call.op.name, call.engine), limits[call.op.name])
            elif call.op.kind == "matmul":
                self._launches[call.op.name] = _bias_first(call)
        sources = [launch.source for launches in self._launches.values() for launch in launches]
        self._module = load_kernels(self._gpu, sources) if sources else None

    def issues(self, action: int) -> list[Issue]:
        """The calls of an action."""
        call = self._calls[action]
        if call.op.kind == "matmul":
            return self._product(call)
        if call.op.kind in CONVOLUTIONS:
            return self._convolution(call)
        return self._generated(call, call.at_inputs, call.at_outputs)

    def close(self) -> None:
        """Give handles and descriptors back."""
        for library in (self._cudnn, self._cublaslt):
            if library is not None:
                library.close()
        self._cudnn = self._cublaslt = self._module = None

    def _generated(self, call: DeviceCall, inputs: Sequence[int], outputs: Sequence[int]) -> list[Issue]:
        at = Addresses(
            inputs=inputs, outputs=outputs, workspace=self._scratch, control=self._control, op_number=call.number
        )
        return [
            self._gpu.launcher(self._module, launch, values(launch, at), self._stream)
            for launch in self._launches[call.op.name]
        ]

    def _choose(self, call: DeviceCall, engine: int | None, limit: int) -> None:
        if not call.outputs[0].elements:
            self._launches[call.op.name] = ()
            return
        library = self._library()
        problem = convolution(call.op.kind, call.inputs, call.outputs, call.op.attrs)

        def timer(candidate: EngineRef) -> float:
            return time_us(self._gpu, self._stream, self._engine_issue(candidate, call))

        chosen = choose_engine(library, problem, engine, limit, None if self._mode.deterministic else timer)
        self._chosen[call.op.name] = chosen
        self._launches[call.op.name] = bias_launches(call) if chosen.engine.separate_bias else ()

    def _library(self) -> Cudnn:
        if self._cudnn is None:
            self._cudnn = Cudnn(self._stream, self._mode)
        return self._cudnn

    def _engine_issue(self, engine: EngineRef, call: DeviceCall) -> Issue:
        roles = {
            "conv": ("image", "filter", "bias", "result"),
            "conv_transpose": ("result", "filter", "image"),
            "conv_filter": ("image", "result", "filter"),
        }[call.op.kind]
        present = roles if len(call.at_inputs) == len(roles) - 1 else [role for role in roles if role != "bias"]
        addresses = dict(zip(present, (*call.at_inputs, *call.at_outputs), strict=True))
        return engine.graph.issue(engine.place, addresses, call.workspace)

    def _convolution(self, call: DeviceCall) -> list[Issue]:
        if call.op.name not in self._chosen:
            return []
        chosen = self._chosen[call.op.name]
        issues = [self._engine_issue(chosen.engine, call)]
        if chosen.engine.separate_bias:
            issues += self._generated(call, (call.at_outputs[0], call.at_inputs[2]), call.at_outputs)
        return issues

    def _product(self, call: DeviceCall) -> list[Issue]:
        """The bias first where the library cannot add it, then the products."""
        a, b = call.inputs[:2]
        y = call.outputs[0]
        at_y = call.at_outputs[0]
        size = y.elements * y.dtype.bits // 8
        if not size:
            return []
        before = self._generated(call, call.at_inputs[2:], call.at_outputs) if self._launches[call.op.name] else []
        if 0 in a.shape:
            return before or [lambda: self._gpu.fill(at_y, size, 0, self._stream)]
        if self._cublaslt is None:
            self._cublaslt = CublasLt(
                self._stream, tf32=self._mode.tf32, workspace=self._scratch, workspace_bytes=PRODUCT_SCRATCH
            )
        attrs = call.op.attrs
        calls = products(a, b, y, trans_a=attrs["trans_a"], trans_b=attrs["trans_b"])
        bias = call.at_inputs[2] if len(call.inputs) == 3 and not before else 0
        return before + [
            self._cublaslt.issue(
                product,
                y.dtype,
                (call.at_inputs[1], call.at_inputs[0], at_y),
                alpha=attrs["alpha"],
                accumulate=bool(before),
                bias=bias,
            )
            for product in calls
        ]


def op_launches(op: PlanOp, index: PlanIndex, orders: Orders) -> tuple[Launch, ...]:
    """The launches of a generated op. Raises RunError (SNP-R040) where no kernel does it."""
    names = [*op.inputs, *op.outputs]
    specs = [spec_of(index, name) for name in names]
    return kernel_for(op, specs[: len(op.inputs)], specs[len(op.inputs) :], [orders[name] for name in names])


def bias_launches(call: DeviceCall) -> tuple[Launch, ...]:
    """Launches that add a convolution's bias to its result in place: inputs are the result and the bias."""
    y = call.outputs[0]
    channels = y.shape[1]
    views = [None, [1, channels, *(1,) * (y.rank - 2)]]
    order: Order = "channels_last" if y.channels_last else "plain"
    bias = Spec(y.dtype, (channels,))
    return kernel_for(
        _helper("add", call, ["y", "bias"], {"in_shapes": views}),
        [Spec(y.dtype, y.shape), bias],
        [Spec(y.dtype, y.shape)],
        [order, "plain", order],
    )


def _bias_first(call: DeviceCall) -> tuple[Launch, ...]:
    """Launches that write a product's bias over its result, where the library does not add such a bias itself."""
    if len(call.inputs) < 3 or _is_column_vector(call.inputs[2], call.outputs[0]):
        return ()
    bias, y = call.inputs[2], call.outputs[0]
    op = _helper("expand", call, ["bias"], {"shape": list(y.shape)})
    return kernel_for(op, [Spec(bias.dtype, bias.shape)], [Spec(y.dtype, y.shape)])


def _is_column_vector(bias: Operand, y: Operand) -> bool:
    """Whether `bias` is one number for each column of y, of a type that the library adds."""
    return bias.dtype in BIAS_TYPES and bias.elements == bias.shape[-1] == y.shape[-1] if bias.rank else False


def _helper(kind: str, call: DeviceCall, inputs: list[str], attrs: dict[str, Any]) -> PlanOp:
    """An op that the plan does not have, under the name of the op that it helps."""
    op = call.op
    return PlanOp(
        name=op.name, kind=kind, phase=op.phase, inputs=inputs, outputs=["y"], attrs=attrs, nodes=op.nodes, rng=None
    )


def _first_calls(calls: Mapping[int, DeviceCall]) -> dict[str, DeviceCall]:
    """The first execution of each op."""
    first: dict[str, DeviceCall] = {}
    for call in calls.values():
        first.setdefault(call.op.name, call)
    return first
