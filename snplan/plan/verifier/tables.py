"""The plan's tables by name and id, and the rules that hold for them alone: F (fields), S (sizes)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from snplan.ir import DType, Phase, Role, elements, nbytes
from snplan.plan.model import FORMAT, Extent, Persistent, Place, PlanOp, PlanTensor, StepPlan
from snplan.plan.verifier.findings import Findings

Row = TypeVar("Row")
Key = TypeVar("Key", str, int)

_NAMED = {dtype.value: dtype for dtype in DType}
_PHASES = frozenset(Phase)
_ROLES = frozenset(Role)
_MAX_RANK = 64
_SHA256 = re.compile(r"[0-9a-f]{64}")
_QUANTITY = re.compile(r".*_(bytes|per_s|us|flops|percent)|processors")
_TOTALS = (
    "budget_bytes",
    "reserve_bytes",
    "arena_bytes",
    "peak_live_bytes",
    "host_arena_bytes",
    "step_time_us",
    "lower_bound_us",
    "floor_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Rows of the plan by name or id; where a name is taken twice (a finding), the first row counts."""

    tensors: Mapping[str, PlanTensor]
    ops: Mapping[str, PlanOp]
    buffers: Mapping[int, Extent]
    slots: Mapping[int, Extent]
    producer: Mapping[str, PlanOp]

    def size(self, tensor: str) -> int:
        """Bytes of a tensor; 0 where the plan does not know it."""
        row = self.tensors.get(tensor)
        return row.bytes if row is not None else 0


def build_tables(plan: StepPlan, found: Findings) -> Tables:
    """The plan's tables; reports names and ids that are empty, negative or taken twice, tensors with two writers."""
    tensors = _unique("tensor", plan.tensors, lambda row: row.name, found)
    ops = _unique("op", plan.ops, lambda row: row.name, found)
    producer: dict[str, PlanOp] = {}
    for op in ops.values():
        for name in op.outputs:
            if name in producer:
                found.add("F", f"op {op.name}", f"writes {name}, which {producer[name].name} writes too")
            producer.setdefault(name, op)
    return Tables(
        tensors=tensors,
        ops=ops,
        buffers=_unique("buffer", plan.buffers, lambda row: row.id, found),
        slots=_unique("slot", plan.slots, lambda row: row.id, found),
        producer=producer,
    )


def _unique(what: str, rows: Iterable[Row], key: Callable[[Row], Key], found: Findings) -> dict[Key, Row]:
    by_key: dict[Key, Row] = {}
    for row in rows:
        name = key(row)
        if name == "" or (isinstance(name, int) and name < 0):
            found.add("F", f"{what} {name!r}", "names are not empty and ids are not negative")
        if name in by_key:
            found.add("F", f"{what} {name}", f"two rows of the plan's {what}s are called {name}")
        by_key.setdefault(name, row)
    return by_key


def check_tables(plan: StepPlan, tables: Tables, found: Findings) -> None:
    """Reports what is wrong with the header, the tensors, the ops and the places, each row seen alone."""
    _check_header(plan, found)
    for tensor in plan.tensors:
        _check_tensor(tensor, found)
    for op in plan.ops:
        _check_op(op, tables, found)
    for place in plan.resident:
        _check_place("resident", place, tables, found)
    for entry in plan.persistent:
        _check_place("persistent", entry, tables, found)
        if entry.becomes not in tables.tensors:
            found.add("F", f"persistent {entry.tensor}", f"becomes {entry.becomes}, which is not a tensor of the plan")
    for place in plan.outputs:
        _check_place("output", place, tables, found)


def _check_header(plan: StepPlan, found: Findings) -> None:
    if plan.format != FORMAT:
        found.add("F", "plan", f"format is {plan.format}; only {FORMAT} is known")
    for name in _TOTALS:
        if getattr(plan, name) < 0:
            found.add("F", "plan", f"{name} is {getattr(plan, name)}")
    if plan.lower_bound_us > plan.step_time_us:
        found.add("P", "plan", f"step_time_us {plan.step_time_us} is below lower_bound_us {plan.lower_bound_us}")
    if not _SHA256.fullmatch(plan.model.sha256):
        found.add("F", "model", f"sha256 {plan.model.sha256!r:.80} is not 64 hexadecimal digits in lower case")
    if plan.model.name in ("", ".", "..") or not {"/", "\0"}.isdisjoint(plan.model.name):
        found.add(
            "F", "model", f"name {plan.model.name!r:.80} is no file name; a plan names its model without a folder"
        )
    _check_device(plan.device, found)


def _check_device(device: Mapping[str, object], found: Findings) -> None:
    """Reports a device without a name or a capacity, and quantities that are no whole numbers from 0 up."""
    name, capacity = device.get("name"), device.get("capacity_bytes")
    if not isinstance(name, str) or not name:
        found.add("F", "device", f"has no name: {name!r:.80}")
    if type(capacity) is not int or capacity <= 0:
        found.add("F", "device", f"has no capacity_bytes: {capacity!r:.80}")
    for key, value in device.items():
        if _QUANTITY.fullmatch(key) and (type(value) is not int or value < 0):
            found.add("F", "device", f"{key} is {value!r:.80}, not a whole number from 0 up")


def _check_tensor(tensor: PlanTensor, found: Findings) -> None:
    where = f"tensor {tensor.name}"
    if tensor.role not in _ROLES:
        found.add("S", where, f"role {tensor.role!r} is none of {', '.join(Role)}")
    if tensor.dtype not in _NAMED:
        found.add("S", where, f"element type {tensor.dtype!r} is unknown")
        return
    if not _is_shape(tensor.shape):
        message = f"shape {tensor.shape!r:.200} has a negative dimension, or more than {_MAX_RANK} dimensions"
        found.add("S", where, message)
        return
    size = nbytes(_NAMED[tensor.dtype], tensor.shape)
    if size != tensor.bytes:
        found.add("S", where, f"{tensor.dtype}{tensor.shape} takes {size} bytes, the plan says {tensor.bytes}")


def _check_op(op: PlanOp, tables: Tables, found: Findings) -> None:
    where = f"op {op.name}"
    if op.phase not in _PHASES:
        found.add("F", where, f"phase {op.phase!r} is none of {', '.join(Phase)}")
    if not op.kind:
        found.add("F", where, "has no kind")
    if op.rng is not None and op.rng < 0:
        found.add("F", where, f"random stream {op.rng} is negative")
    unknown = [name for name in (*op.inputs, *op.outputs) if name not in tables.tensors]
    if unknown:
        found.add("F", where, f"names {unknown[:4]}, which are not tensors of the plan")
        return
    if "in_shapes" in op.attrs:
        _check_in_shapes(op, tables, found)


def _check_in_shapes(op: PlanOp, tables: Tables, found: Findings) -> None:
    shapes = op.attrs["in_shapes"]
    if not isinstance(shapes, list) or len(shapes) != len(op.inputs):
        found.add("S", f"op {op.name}", f"in_shapes {shapes!r:.200} lists no shape for each of {len(op.inputs)} inputs")
        return
    for name, shape in zip(op.inputs, shapes, strict=True):
        if shape is None:
            continue
        own = tables.tensors[name].shape
        if not _is_shape(shape) or elements(shape) != elements(own):
            found.add("S", f"op {op.name}", f"reads {name} of shape {own} as {shape!r:.200}, which has other elements")


def _is_shape(value: object) -> bool:
    if not isinstance(value, list) or len(value) > _MAX_RANK:
        return False
    return all(type(dim) is int and dim >= 0 for dim in value)


def _check_place(what: str, place: Place | Persistent, tables: Tables, found: Findings) -> None:
    where = f"{what} {place.tensor}"
    if place.tensor not in tables.tensors:
        found.add("F", where, "is not a tensor of the plan")
    if (place.buffer is None) == (place.slot is None):
        found.add("F", where, f"is in one place, not buffer {place.buffer} and slot {place.slot}")
    if place.buffer is not None and place.buffer not in tables.buffers:
        found.add("F", where, f"buffer {place.buffer} is unknown")
    if place.slot is not None and place.slot not in tables.slots:
        found.add("F", where, f"slot {place.slot} is unknown")
