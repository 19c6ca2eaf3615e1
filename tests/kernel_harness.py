"""Runs generated kernels on a machine (a GPU, or its emulation) and compares them with the NumPy kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from runtime_support import spec_of

from snplan.codegen.compile import compile_module
from snplan.codegen.kernels import kernel_for, workspace_bytes
from snplan.codegen.launch import CONTROL, Addresses, Launch, Source, values
from snplan.codegen.operand import Order
from snplan.codegen.render import render
from snplan.ir import Op, Spec
from snplan.ops.base import KINDS
from snplan.ops.table import infer
from snplan.plan.model import PlanOp
from snplan.runtime.dtypes import numpy_dtype
from snplan.runtime.numpy import KERNELS, Array, Context

SEED, STEP, STREAM = 0x1234_5678_9ABC_DEF0, 7, 5
ORDERS = ("plain", "channels_last", "mixed", "mixed_other")


class Machine(Protocol):
    """Where kernels run."""

    name: str

    def upload(self, data: bytes) -> int:
        """Address of a copy of `data`, with guard bytes around it."""

    def download(self, address: int, size: int) -> bytes:
        """The bytes at `address`; raises where a guard was hurt."""

    def launch(
        self, function: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any], shared: int
    ) -> None:
        """Run one launch."""

    def release(self) -> None:
        """Forget all memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One op on given inputs. `tolerance` is relative (float32; others follow from it), 0 for equal bits."""

    kind: str
    inputs: tuple[Array, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    tolerance: float = 1e-5
    orders: tuple[str, ...] = ("plain",)

    @property
    def name(self) -> str:
        """Name for test ids."""
        shapes = "_".join("x".join(map(str, x.shape)) or "scalar" for x in self.inputs)
        kinds = "_".join(dict.fromkeys(x.dtype.name for x in self.inputs))
        return "-".join(part for part in (self.kind, self.label, kinds, shapes) if part)

    @property
    def specs(self) -> list[Spec]:
        """Specs of the inputs."""
        return [spec_of(x) for x in self.inputs]

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """Specs of the outputs."""
        return infer(self.kind, self.specs, dict(self.attrs))

    @property
    def op(self) -> PlanOp:
        """The op as a plan has it."""
        names = [f"x{i}" for i in range(len(self.inputs))], [f"y{i}" for i in range(len(self.outputs))]
        return PlanOp(
            name="op",
            kind=self.kind,
            phase="forward",
            inputs=names[0],
            outputs=names[1],
            attrs=dict(self.attrs),
            nodes=[],
            rng=STREAM if KINDS[self.kind].random or self.kind == "fused" else None,
        )

    @property
    def ir_op(self) -> Op:
        """The op as the op table sees it."""
        op = self.op
        return Op(name=op.name, kind=op.kind, inputs=tuple(op.inputs), outputs=tuple(op.outputs), attrs=op.attrs)

    def layouts(self, order: str) -> list[Order]:
        """Physical orders of inputs and outputs under one of `orders`."""
        count = len(self.inputs) + len(self.outputs)
        if order in ("plain", "channels_last"):
            return [order] * count  # type: ignore[list-item]
        pair: list[Order] = ["plain", "channels_last"] if order == "mixed" else ["channels_last", "plain"]
        return [pair[i % 2] for i in range(count)]

    def launches(self, order: str) -> tuple[Launch, ...]:
        """The op's launches."""
        return kernel_for(self.op, self.specs, self.outputs, self.layouts(order))


def sources_of(cases: Iterable[Case]) -> list[Source]:
    """All kernels that the cases need."""
    return [launch.source for case in cases for order in case.orders for launch in case.launches(order)]


# Kernels to a translation unit: small enough to compile while one waits, and to find an error in.
_UNIT = 400


def compile_cases(cases: Iterable[Case], arch: str) -> list[tuple[bytes, list[str]]]:
    """Cubins with all kernels that the cases need, and the names of the functions in each."""
    distinct = {source.name: source for source in sources_of(cases)}
    names = sorted(distinct)
    groups = [names[k : k + _UNIT] for k in range(0, len(names), _UNIT)]
    return [(compile_module(render(distinct[name] for name in group), arch), group) for group in groups]


def physical(x: Array, order: Order) -> Array:
    """The elements in the order in which they lie in memory."""
    if order == "plain" or x.ndim < 3:
        return np.ascontiguousarray(x)
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def logical(data: bytes, spec: Spec, order: Order) -> Array:
    """The tensor in logical order, from its bytes."""
    flat = np.frombuffer(data, numpy_dtype(spec.dtype))
    if order == "plain" or spec.rank < 3:
        return flat.reshape(spec.shape)
    shape = spec.shape
    return np.moveaxis(flat.reshape(shape[0], *shape[2:], shape[1]), -1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run of a case left: outputs in logical order, and the op number of an index fault (0: none)."""

    outputs: tuple[Array, ...]
    fault: int


def run_case(machine: Machine, case: Case, order: str, shared: Mapping[int, int] | None = None) -> Result:
    """Run a case; `shared` maps outputs to the inputs whose buffers they overwrite."""
    shared = shared or {}
    layouts = case.layouts(order)
    images = [physical(x, o).tobytes() for x, o in zip(case.inputs, layouts, strict=False)]
    inputs = [machine.upload(image) for image in images]
    sizes = [spec.bytes for spec in case.outputs]
    outputs = [inputs[shared[j]] if j in shared else machine.upload(b"\xa5" * n) for j, n in enumerate(sizes)]
    control = np.zeros((), CONTROL)
    control["seed"], control["step"] = SEED, STEP
    size = workspace_bytes(case.op, case.specs, case.outputs, layouts)
    workspace, at_control = machine.upload(b"\xff" * size), machine.upload(control.tobytes())
    at = Addresses(inputs=inputs, outputs=outputs, workspace=workspace, control=at_control, op_number=3)
    for launch in case.launches(order):
        machine.launch(launch.function, launch.grid, launch.block, values(launch, at), launch.shared)
    written = [machine.download(address, n) for address, n in zip(outputs, sizes, strict=True)]
    _check_rest(machine, case, inputs, images, shared)
    machine.download(workspace, size)
    after = np.frombuffer(machine.download(at_control, CONTROL.itemsize), CONTROL)[0]
    assert not after["tickets"].any(), "a kernel left a ticket"
    machine.release()
    orders = layouts[len(inputs) :]
    return Result(
        outputs=tuple(logical(data, spec, o) for data, spec, o in zip(written, case.outputs, orders, strict=True)),
        fault=int(after["fault"]),
    )


def _check_rest(
    machine: Machine, case: Case, addresses: Sequence[int], images: Sequence[bytes], shared: Mapping[int, int]
) -> None:
    for k, (address, image) in enumerate(zip(addresses, images, strict=True)):
        data = machine.download(address, len(image))
        assert k in shared.values() or data == image, f"{case.name} changed input {k}"


def expected(case: Case) -> tuple[Array, ...]:
    """What the NumPy kernel gives."""
    return KERNELS[case.kind](list(case.inputs), dict(case.attrs), Context(seed=SEED, step=STEP, stream=STREAM))


def sharing(case: Case) -> list[dict[int, int]]:
    """Ways in which outputs may overwrite inputs: each declared pair alone, and all that agree together."""
    pairs = KINDS[case.kind].pairs
    fits = [
        (j, k)
        for j, k in (KINDS[case.kind].inplace if pairs is None else pairs(case.ir_op))
        if j < len(case.outputs) and k < len(case.inputs) and case.outputs[j] == case.specs[k]
    ]
    together: dict[int, int] = {}
    for j, k in fits:
        if j not in together and k not in together.values():
            together[j] = k
    ways = [{j: k} for j, k in fits]
    return ways if together in ways or not together else [*ways, together]


def compare(case: Case, results: Sequence[Array], wanted: Sequence[Array]) -> None:
    """Assert that results are the NumPy kernel's within the case's tolerance."""
    for number, (a, b) in enumerate(zip(results, wanted, strict=True)):
        what = f"{case.name}, output {number}"
        assert (a.dtype, a.shape) == (b.dtype, b.shape), what
        if case.tolerance == 0 or a.dtype.kind in "iub":
            np.testing.assert_array_equal(_comparable(a), _comparable(b), err_msg=what)
            continue
        tolerance = case.tolerance * _COARSER.get(a.dtype.name, 1.0)
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(y)
        np.testing.assert_array_equal(x[~finite], y[~finite], err_msg=what)
        scale = np.sqrt(np.mean(np.square(y[finite]))) if finite.any() else 0.0
        np.testing.assert_allclose(x[finite], y[finite], rtol=tolerance, atol=tolerance * scale, err_msg=what)


# Half an ulp of the 16-bit types beside that of float32: they may round to the other neighbour.
_COARSER = {"float16": 120.0, "bfloat16": 1000.0}


def _comparable(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype.name == "bfloat16" else x


def check_case(machine: Machine, case: Case, order: str) -> None:
    """Everything that holds for one case in one physical order: values, faults, sharing, and the same bits again."""
    wanted = expected(case)
    result = run_case(machine, case, order)
    assert result.fault == 0
    compare(case, result.outputs, wanted)
    again = run_case(machine, case, order)
    assert [x.tobytes() for x in again.outputs] == [x.tobytes() for x in result.outputs], "bits differ run to run"
    if order.startswith("mixed"):
        return
    for shared in sharing(case):
        overwritten = run_case(machine, case, order, shared)
        same = [a.tobytes() == b.tobytes() for a, b in zip(overwritten.outputs, result.outputs, strict=True)]
        assert all(same), f"{case.name}: in place ({shared}) gives other bits"
