"""`snplan codegen`: a plan as a Python script that replays it, to be read, changed and run without snplan.

Everything that binding a plan works out is written down: addresses as offsets into the arena, launches with their grids
and arguments, events between the streams, problems for cuDNN and cuBLASLt. Only the choice of an engine that the plan
does not name is left to the script. No GPU is needed to write it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from snplan.codegen.kernels import LIBRARY
from snplan.codegen.launch import CONTROL, Addresses, Launch, values
from snplan.codegen.render import environment, render
from snplan.ir import DType, Role
from snplan.plan.index import PlanIndex, index_plan
from snplan.plan.model import (
    Action,
    Algorithm,
    Alloc,
    Free,
    Offload,
    Place,
    PlanTensor,
    Prefetch,
    Recompute,
    Run,
    StepPlan,
)
from snplan.plan.pieces import pieces_of
from snplan.runtime.cuda.calls import DeviceCall, device_calls, planned_workspaces, role_addresses
from snplan.runtime.cuda.convolution import FIRST_ENGINE_ID, convolution
from snplan.runtime.cuda.cudnn import INEXACT_ENGINES, INEXACT_NOTES
from snplan.runtime.cuda.kernels import PRODUCT_SCRATCH, op_launches
from snplan.runtime.cuda.multiply import is_empty_sum, multiplications
from snplan.runtime.cuda.order import plan_edges
from snplan.runtime.cuda.pieces import piece_calls, summed_ops
from snplan.runtime.cuda.products import Matrix
from snplan.runtime.data import integer_bound
from snplan.runtime.layout import CONVOLUTIONS, Orders, assign_orders
from snplan.units import round_up

# Where the three blocks of device memory are while the script is written; in the script they have names.
_BASES = {"A": 1 << 44, "S": 1 << 45, "C": 1 << 46}
_TYPES = {DType.FLOAT64: "DOUBLE", DType.FLOAT32: "FLOAT", DType.FLOAT16: "HALF", DType.BFLOAT16: "BFLOAT16"}


def replay_script(plan: StepPlan) -> str:
    """The text of a Python script that runs training steps by `plan`; plans that are equal give equal texts.

    Raises RunError (SNP-R040) for an op that no kernel of the cuda backend does.
    """
    index = index_plan(plan)
    orders = assign_orders(index)
    writer = _Writer(index, orders)
    body = list(writer.lines())
    scratch = max((launch.workspace for each in writer.launches.values() for launch in each), default=0)
    used = {"cudnn": bool(writer.convolutions), "cublaslt": any(op.kind == "matmul" for op in plan.ops)}
    return (
        environment()
        .get_template("replay.py.j2")
        .render(
            plan=plan,
            told=_told,
            body=body,
            kernels=render(launch.source for each in writer.launches.values() for launch in each),
            convolutions=writer.convolutions,
            resident=[_row(index, orders, place) for place in plan.resident],
            results=[_row(index, orders, place) for place in plan.outputs],
            carried=list(_carried(index)),
            bounds={row.name: integer_bound(index, row.name) for row in plan.tensors if _is_counted(row)},
            tf32=plan.options.get("precision") == "tf32",
            scratch_bytes=round_up(max(scratch, PRODUCT_SCRATCH if used["cublaslt"] else 0)),
            product_scratch=PRODUCT_SCRATCH,
            first_engine=FIRST_ENGINE_ID,
            inexact_notes=INEXACT_NOTES,
            inexact_engines=INEXACT_ENGINES,
            control={name: int(offset) for name, (_, offset, *_) in (CONTROL.fields or {}).items()},
            control_bytes=round_up(CONTROL.itemsize),
            **used,
        )
    )


def _told(text: object) -> str:
    """Text of a plan file for the script's docstring: printable, and unable to end it."""
    return repr(str(text))[1:-1].replace('"', "'")


def _is_counted(tensor: PlanTensor) -> bool:
    return tensor.role == Role.INPUT and not DType(tensor.dtype).is_float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A tensor of the script's tables: `at` is an offset into the arena, or into the host arena where `on_host`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    order: str
    role: str
    on_host: bool
    at: int


def _row(index: PlanIndex, orders: Orders, place: Place) -> _Row:
    tensor = index.tensors[place.tensor]
    return _Row(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=tuple(tensor.shape),
        bytes=tensor.bytes,
        order=orders[tensor.name],
        role=str(tensor.role),
        on_host=place.slot is not None,
        at=_offset(index, place.buffer, place.slot),
    )


def _offset(index: PlanIndex, buffer: int | None, slot: int | None) -> int:
    if slot is not None:
        return index.slots[slot].offset
    assert buffer is not None
    return index.buffers[buffer].offset


def _carried(index: PlanIndex) -> Iterator[tuple[tuple[bool, int], tuple[bool, int], int]]:
    """(on host, offset) of what ended elsewhere than the next step looks for it, of where it belongs, and its bytes."""
    places = index.plan.resident
    start = {place.tensor: (place.slot is not None, _offset(index, place.buffer, place.slot)) for place in places}
    for entry in index.plan.persistent:
        end = entry.slot is not None, _offset(index, entry.buffer, entry.slot)
        if end != start[entry.tensor]:
            yield end, start[entry.tensor], index.tensors[entry.tensor].bytes


class _Writer:
    """Lines of the step, action by action, and the tables that they refer to."""

    def __init__(self, index: PlanIndex, orders: Orders) -> None:
        self._index = index
        summed = summed_ops(index)
        self.launches = {op.name: op_launches(op, index, orders, summed) for op in index.ops.values()}
        self.convolutions: list[str] = []
        self._calls = device_calls(index, orders, _BASES["A"])
        self._limits = planned_workspaces(self._calls)
        self._edges = plan_edges(index.plan.actions)
        self._write: Mapping[type[Action], Callable[[int, Any], list[str]]] = {
            Run: self._run,
            Recompute: self._run,
            Offload: self._copy,
            Prefetch: self._copy,
        }

    def lines(self) -> Iterator[str]:
        """The body of the script's `step`."""
        for number, action in enumerate(self._index.plan.actions):
            yield f"# {number}: {self._describe(action)}"
            write = self._write.get(type(action))
            if write is None:
                continue
            stream = action.stream.upper()  # type: ignore[union-attr]
            for other in self._edges.waits.get(number, ()):
                yield f"g.wait({stream}, {other})"
            yield from write(number, action)
            if number in self._edges.records:
                yield f"g.record({stream}, {number})"

    def _describe(self, action: Action) -> str:
        match action:
            case Alloc(buffer=buffer) | Free(buffer=buffer):
                extent = self._index.buffers[buffer]
                word = "alloc" if isinstance(action, Alloc) else "free"
                return f"{word} buffer {buffer}: {extent.bytes:,} B at {extent.offset:,}"
            case Algorithm(op=name, engine=engine, workspace=workspace):
                where = "no workspace" if workspace is None else f"workspace in buffer {workspace}"
                each, pieces = pieces_of(engine)
                cut = f" in {pieces} pieces of the batch" if pieces > 1 else ""
                return f"algorithm of {name!r}: engine {each}{cut}, {where}"
            case Offload(tensor=tensor) | Prefetch(tensor=tensor):
                return f"{'offload' if isinstance(action, Offload) else 'prefetch'} {tensor!r}"
            case Run(op=name) | Recompute(op=name):
                op = self._index.ops[name]
                word = "run" if isinstance(action, Run) else "recompute"
                return f"{word} {name!r} ({op.kind}): {', '.join(map(repr, op.outputs))} from {_listed(op.inputs)}"

    def _copy(self, number: int, action: Offload | Prefetch) -> list[str]:
        size = self._index.tensors[action.tensor].bytes
        at, slot = self._index.buffers[action.buffer].offset, self._index.slots[action.slot].offset
        word = "offload" if isinstance(action, Offload) else "prefetch"
        return [f"g.{word}(A + {at}, host={slot}, size={size})"] if size else []

    def _run(self, number: int, action: Run | Recompute) -> list[str]:
        call = self._calls[number]
        if call.op.kind not in LIBRARY:
            return self._generated(call, call.at_inputs, call.at_outputs)
        if not call.outputs[0].elements:
            return []
        return self._convolution(call) if call.op.kind in CONVOLUTIONS else self._product(call)

    def _generated(self, call: DeviceCall, inputs: Sequence[int], outputs: Sequence[int]) -> list[str]:
        at = Addresses(
            inputs=inputs,
            outputs=outputs,
            workspace=_BASES["S"],
            control=_BASES["C"],
            op_number=call.number,
        )
        return [_launch_line(launch, at) for launch in self.launches[call.op.name]]

    def _convolution(self, call: DeviceCall) -> list[str]:
        engine, pieces = (None, 1) if call.engine is None else pieces_of(call.engine)
        parts = piece_calls(replace(call, engine=engine), pieces)
        limit = self._limits[call.op.name] - call.workspace_bytes + parts[0].workspace_bytes
        first = self._convolution_number(parts[0], limit)
        lines = []
        for place, part in enumerate(parts):
            same = part.inputs == parts[0].inputs
            number = first if same else self._convolution_number(part, limit, like=first)
            addresses = {**role_addresses(part), **({"workspace": part.workspace} if part.workspace else {})}
            given = ", ".join(f"{role}={_named(address)}" for role, address in addresses.items())
            lines.append(f"g.convolve({number}, {given})")
            if place and call.op.kind == "conv_filter":
                lines += self._generated(call, (call.at_outputs[0], part.at_outputs[0]), call.at_outputs)
        if len(call.at_inputs) == 3:
            bias = self._generated(call, (call.at_outputs[0], call.at_inputs[2]), call.at_outputs)
            lines += [f"if g.adds_bias_apart({first}):", *(f"    {line}" for line in bias)]
        return lines

    def _convolution_number(self, call: DeviceCall, workspace: int, like: int | None = None) -> int:
        """The place of the problem among all distinct ones; `like` is that of the problem whose engine it takes."""
        problem = convolution(call.op.kind, call.inputs, call.outputs, call.op.attrs)
        operands = {
            role: (list(x.shape), list(x.strides))
            for role, x in (("image", problem.image), ("filter", problem.filter), ("result", problem.result))
        }
        named = call.engine if call.engine is not None and call.engine >= FIRST_ENGINE_ID else None
        fields: dict[str, Any] = {
            "kind": problem.kind,
            "dtype": _TYPES.get(problem.dtype, str(problem.dtype)),
            **operands,
            "before": list(problem.before),
            "after": list(problem.after),
            "strides": list(problem.strides),
            "dilations": list(problem.dilations),
            "bias": problem.bias,
            "engine": named if like is None else None,
            "workspace": workspace,
            **({} if like is None else {"like": like}),
        }
        text = ", ".join(f"{key}={value!r}" for key, value in fields.items())
        if text not in self.convolutions:
            self.convolutions.append(text)
        return self.convolutions.index(text)

    def _product(self, call: DeviceCall) -> list[str]:
        before = self._generated(call, call.at_inputs[2:], call.at_outputs)
        if is_empty_sum(call):
            y = call.outputs[0]
            return before or [f"g.zero({_named(call.at_outputs[0])}, {y.elements * y.dtype.bits // 8})"]
        lines = list(before)
        for each in multiplications(call, bias_first=bool(before)):
            b, a, y_at = map(_named, each.addresses)
            product = each.product
            shapes = ", ".join(map(_matrix_text, (product.first, product.second, product.result)))
            rest = f"count={product.count}, offsets={product.offsets}, alpha={each.alpha!r}"
            rest += f", accumulate={each.accumulate}" + (f", bias={_named(each.bias)}" if each.bias else "")
            lines.append(f"g.multiply({each.dtype.value!r}, {b}, {a}, {y_at}, {shapes}, {rest})")
        return lines


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _matrix_text(matrix: Matrix) -> str:
    return f"({matrix.rows}, {matrix.columns}, {matrix.ld}, {matrix.transposed}, {matrix.batch})"


def _launch_line(launch: Launch, at: Addresses) -> str:
    arguments = ", ".join(_argument(value) for value in values(launch, at))
    shared = f", shared={launch.shared}" if launch.shared else ""
    return f"g.launch({launch.function!r}, {launch.grid}, {launch.block}, [{arguments}]{shared})"


def _argument(value: Any) -> str:
    """A kernel's argument: addresses by the name of their block, other numbers with their type."""
    if value.dtype.name == "uint64":
        return _named(int(value))
    text = repr(value.item())
    return f"np.{value.dtype.name}({text if isfinite(value) else repr(text)})"


def _named(address: int) -> str:
    """An address as a sum that the script can add up; 0 stays 0, for tensors without bytes."""
    for name, base in reversed(_BASES.items()):
        if address >= base:
            return f"{name} + {address - base}"
    return str(address)
