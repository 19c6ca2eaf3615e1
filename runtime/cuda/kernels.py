"""Every op of a plan as calls that put its work on the compute stream: generated kernels, cuDNN, cuBLASLt."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from snplan.codegen.kernels import LIBRARY, kernel_for
from snplan.codegen.launch import Addresses, Launch, values
from snplan.codegen.operand import Operand, Order
from snplan.ir import Role, Spec
from snplan.plan.index import PlanIndex
from snplan.plan.model import PlanOp
from snplan.plan.pieces import in_pieces, pieces_of
from snplan.runtime.cuda.calls import DeviceCall, planned_workspaces, role_addresses
from snplan.runtime.cuda.convolution import Convolution, convolution
from snplan.runtime.cuda.cublaslt import BIAS_TYPES, CublasLt
from snplan.runtime.cuda.cudnn import Cudnn, EngineRef, Mode
from snplan.runtime.cuda.engines import choose_engine, engine_like
from snplan.runtime.cuda.gpu import Gpu, Issue, Stream
from snplan.runtime.cuda.modules import load_kernels
from snplan.runtime.cuda.multiply import is_empty_sum, multiplications
from snplan.runtime.cuda.pieces import piece_calls, summed_ops
from snplan.runtime.cuda.timing import time_us
from snplan.runtime.layout import CONVOLUTIONS, Orders, op_operands, spec_of

# Scratch that matrix products may use beside the arena; part of the reserve, as the handles of the libraries are.
PRODUCT_SCRATCH = 32 << 20
# The engine of each piece of a convolution, in order; one where the batch is not cut.
Engines: TypeAlias = tuple[EngineRef, ...]


class Kernels(Protocol):
    """What executes ops. `prepare` and then `load` are called once, `issues` for each action afterwards."""

    def prepare(self, index: PlanIndex, orders: Orders) -> int:
        """Bytes of scratch, beside the arena, that one op at a time may need."""

    def load(self, calls: Mapping[int, DeviceCall], *, scratch: int, control: int, engines: Mapping[str, int]) -> None:
        """Make every op ready; `engines` are ids by op that replace those of the plan."""

    def issues(self, action: int) -> Sequence[Issue]:
        """The calls that execute an action, in order."""

    def reorder(self, name: str, source: int, target: int) -> Sequence[Issue]:
        """The calls that copy an input which is in the other physical order into its own."""

    @property
    def engines(self) -> Mapping[str, int]:
        """Ids of the engines that run, by op."""

    @property
    def unsteady(self) -> Sequence[str]:
        """Ops whose engines may give other bits in another run."""

    def close(self) -> None:
        """Give everything back."""


class DeviceKernels:
    """Ops on a real device, all on one stream.

    Convolutions have an engine for each piece of the batch that they run in. With `cut` every filter gradient may run
    in pieces, else those that the plan runs so.
    """

    def __init__(self, gpu: Gpu, stream: Stream, mode: Mode, *, cut: bool = False) -> None:
        self._gpu, self._stream, self._mode, self._cut = gpu, stream, mode, cut
        self._launches: dict[str, tuple[Launch, ...]] = {}
        self._reorders: dict[str, tuple[Launch, ...]] = {}
        self._calls: Mapping[int, DeviceCall] = {}
        self._module: Any = None
        self._cudnn: Cudnn | None = None
        self._cublaslt: CublasLt | None = None
        self._chosen: dict[str, Engines] = {}
        self._settled: dict[tuple[Convolution, int | None, int], Engines] = {}
        self._scratch = self._control = 0

    @property
    def engines(self) -> Mapping[str, int]:
        """Ids of the engines that run, by op."""
        return {name: in_pieces(engines[0].id, len(engines)) for name, engines in self._chosen.items()}

    @property
    def unsteady(self) -> Sequence[str]:
        """Ops whose engines may give other bits in another run."""
        return [name for name, engines in self._chosen.items() if not all(each.deterministic for each in engines)]

    def prepare(self, index: PlanIndex, orders: Orders) -> int:
        """Launches of all generated kernels, also those that help library ops; the scratch that any op needs."""
        summed = frozenset(index.ops) if self._cut else summed_ops(index)
        self._launches = {op.name: op_launches(op, index, orders, summed) for op in index.ops.values()}
        self._reorders = dict(_reorders(index, orders))
        partial = max((launch.workspace for found in self._launches.values() for launch in found), default=0)
        return max(partial, PRODUCT_SCRATCH if any(op.kind == "matmul" for op in index.ops.values()) else 0)

    def load(self, calls: Mapping[int, DeviceCall], *, scratch: int, control: int, engines: Mapping[str, int]) -> None:
        """Compile and load all kernels, and choose engines."""
        self._calls = calls
        self.compile(scratch=scratch, control=control)
        limits = planned_workspaces(calls)
        for call in _first_calls(calls).values():
            if call.op.kind in CONVOLUTIONS and call.outputs[0].elements:
                planned = engines.get(call.op.name, call.engine)
                self._chosen[call.op.name] = self._choose(call, planned, limits[call.op.name])

    def compile(self, *, scratch: int, control: int) -> None:
        """Compile and load the prepared kernels, which use scratch and control words at these addresses."""
        self._scratch, self._control = scratch, control
        rows = (*self._launches.values(), *self._reorders.values())
        sources = [launch.source for launches in rows for launch in launches]
        self._module = load_kernels(self._gpu, sources) if sources else None

    def issues(self, action: int) -> list[Issue]:
        """The calls of an action."""
        call = self._calls[action]
        if call.op.kind not in CONVOLUTIONS:
            return self.issues_of(call)
        return self.convolution(call, self._chosen[call.op.name]) if call.op.name in self._chosen else []

    def reorder(self, name: str, source: int, target: int) -> list[Issue]:
        """The calls that copy an input which is in the other physical order into its own."""
        at = Addresses(inputs=(source,), outputs=(target,))
        return [
            self._gpu.launcher(self._module, launch, values(launch, at), self._stream)
            for launch in self._reorders[name]
        ]

    def issues_of(self, call: DeviceCall) -> list[Issue]:
        """The calls of an op that has no choice of engines."""
        if call.op.kind == "matmul":
            return self._product(call)
        return self._generated(call, call.at_inputs, call.at_outputs)

    def convolution(self, call: DeviceCall, engines: Engines) -> list[Issue]:
        """The calls of a convolution in as many pieces as there are engines, which are built."""
        issues: list[Issue] = []
        for part, engine in zip(piece_calls(call, len(engines)), engines, strict=True):
            issues.append(engine.graph.issue(engine.place, role_addresses(part), part.workspace))
            if call.op.kind == "conv_filter" and len(issues) > 1:
                issues += self._generated(call, (call.at_outputs[0], part.at_outputs[0]), call.at_outputs)
        if engines[0].separate_bias:
            issues += self._generated(call, (call.at_outputs[0], call.at_inputs[2]), call.at_outputs)
        return issues

    def library(self) -> Cudnn:
        """cuDNN, on this stream."""
        if self._cudnn is None:
            self._cudnn = Cudnn(self._stream, self._mode)
        return self._cudnn

    def close(self) -> None:
        """Give handles and descriptors back, and forget all engines: the library counts what outlives it."""
        self._chosen, self._settled, self._calls = {}, {}, {}
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

    def _choose(self, call: DeviceCall, planned: int | None, limit: int) -> Engines:
        """One choice for all ops that are alike: repeated blocks compute alike, and are timed once."""
        key = problem_of(call), planned, limit
        if key not in self._settled:
            named, pieces = (None, 1) if planned is None else pieces_of(planned)
            calls = piece_calls(replace(call, workspace_bytes=limit), pieces)
            first = self._choose_for(calls[0], named)
            self._settled[key] = self.engines_like(first, calls)
        return self._settled[key]

    def _choose_for(self, call: DeviceCall, planned: int | None) -> EngineRef:
        def timer(candidate: EngineRef) -> float:
            issues = self.convolution(call, (candidate,))
            return time_us(self._gpu, self._stream, lambda: _all(issues), repeats=1)

        chosen_by = None if self._mode.deterministic else timer
        return choose_engine(self.library(), problem_of(call), planned, call.workspace_bytes, chosen_by)

    def engines_like(self, first: EngineRef, calls: Sequence[DeviceCall]) -> Engines:
        """The engine of each piece, `first` being the first's: the same for all, or one like it for a smaller last one.

        Raises RunError (SNP-R055) where the last piece has none.
        """
        if calls[-1].inputs == calls[0].inputs:
            return (first,) * len(calls)
        last = engine_like(self.library(), problem_of(calls[-1]), first, calls[-1].workspace_bytes)
        return (*(first,) * (len(calls) - 1), last)

    def _product(self, call: DeviceCall) -> list[Issue]:
        """The bias first where the library cannot add it, then the products."""
        y, at_y = call.outputs[0], call.at_outputs[0]
        if not y.elements:
            return []
        before = self._generated(call, call.at_inputs[2:], call.at_outputs)
        if is_empty_sum(call):
            size = y.elements * y.dtype.bits // 8
            return before or [lambda: self._gpu.fill(at_y, size, 0, self._stream)]
        multiply = self._multiplier()
        return before + [
            multiply.issue(
                each.product,
                each.dtype,
                each.addresses,
                alpha=each.alpha,
                accumulate=each.accumulate,
                bias=each.bias,
            )
            for each in multiplications(call, bias_first=bool(before))
        ]

    def _multiplier(self) -> CublasLt:
        if self._cublaslt is None:
            self._cublaslt = CublasLt(
                self._stream, tf32=self._mode.tf32, workspace=self._scratch, workspace_bytes=PRODUCT_SCRATCH
            )
        return self._cublaslt


def problem_of(call: DeviceCall) -> Convolution:
    """What a call of a convolution computes."""
    return convolution(call.op.kind, call.inputs, call.outputs, call.op.attrs)


def _all(issues: Sequence[Issue]) -> None:
    for issue in issues:
        issue()


def op_launches(op: PlanOp, index: PlanIndex, orders: Orders, summed: Collection[str]) -> tuple[Launch, ...]:
    """The launches of an op; of a library op those that help it. `summed` are filter gradients that run in pieces.

    Raises RunError (SNP-R040) where no kernel does it.
    """
    names = [*op.inputs, *op.outputs]
    if op.kind in LIBRARY:
        inputs, outputs = op_operands(op, index, orders)
        if op.kind == "conv_filter" and op.name in summed:
            return _sum_launches(op, outputs[0])
        if len(inputs) < 3:
            return ()
        return _bias_launches(op, outputs[0]) if op.kind == "conv" else _bias_first(op, inputs, outputs[0])
    specs = [spec_of(index, name) for name in names]
    return kernel_for(op, specs[: len(op.inputs)], specs[len(op.inputs) :], [orders[name] for name in names])


def _reorders(index: PlanIndex, orders: Orders) -> Iterator[tuple[str, tuple[Launch, ...]]]:
    """For each input whose orders differ, launches that bring it from the other order into its own."""
    for name, row in index.tensors.items():
        if row.role != Role.INPUT or len(row.shape) < 3 or not row.bytes:
            continue
        own = orders[name]
        other: Order = "plain" if own == "channels_last" else "channels_last"
        op = PlanOp(name=name, kind="copy", phase="forward", inputs=["x"], outputs=["y"], attrs={}, nodes=[], rng=None)
        spec = spec_of(index, name)
        yield name, kernel_for(op, [spec], [spec], [other, own])


def _bias_launches(op: PlanOp, y: Operand) -> tuple[Launch, ...]:
    """Launches that add a convolution's bias to its result in place: inputs are the result and the bias."""
    channels = y.shape[1]
    views = [None, [1, channels, *(1,) * (y.rank - 2)]]
    order: Order = "channels_last" if y.channels_last else "plain"
    whole = Spec(y.dtype, y.shape)
    helper = _helper("add", op, ["y", "bias"], {"in_shapes": views})
    return kernel_for(helper, [whole, Spec(y.dtype, (channels,))], [whole], [order, "plain", order])


def _sum_launches(op: PlanOp, w: Operand) -> tuple[Launch, ...]:
    """Launches that add a partial filter to the result in place: inputs are the result and the partial filter."""
    order: Order = "channels_last" if w.channels_last else "plain"
    whole = Spec(w.dtype, w.shape)
    return kernel_for(_helper("add", op, ["w", "partial"], {}), [whole, whole], [whole], [order] * 3)


def _bias_first(op: PlanOp, inputs: Sequence[Operand], y: Operand) -> tuple[Launch, ...]:
    """Launches that write a product's bias over its result, where the library does not add such a bias itself."""
    a, _, bias = inputs
    if a.elements and _is_column_vector(bias, y):
        return ()
    helper = _helper("expand", op, ["bias"], {"shape": list(y.shape)})
    return kernel_for(helper, [Spec(bias.dtype, bias.shape)], [Spec(y.dtype, y.shape)])


def _is_column_vector(bias: Operand, y: Operand) -> bool:
    """Whether `bias` is one number for each column of y, of a type that the library adds."""
    return bias.rank > 0 and bias.dtype in BIAS_TYPES and bias.elements == bias.shape[-1] == y.shape[-1]


def _helper(kind: str, op: PlanOp, inputs: list[str], attrs: dict[str, Any]) -> PlanOp:
    """An op that the plan does not have, under the name of the op that it helps."""
    return PlanOp(
        name=op.name, kind=kind, phase=op.phase, inputs=inputs, outputs=["y"], attrs=attrs, nodes=op.nodes, rng=None
    )


def _first_calls(calls: Mapping[int, DeviceCall]) -> dict[str, DeviceCall]:
    """The first execution of each op."""
    first: dict[str, DeviceCall] = {}
    for call in calls.values():
        first.setdefault(call.op.name, call)
    return first
