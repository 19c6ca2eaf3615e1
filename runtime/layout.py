"""Physical order of every tensor of a plan on the device, chosen once from the plan alone.

Convolutions read and write channels-last; the order spreads from them along ops whose operands look alike (elementwise,
normalisation, pooling, updates, ...) so that no step transposes. It stops where an op reads a tensor under a shape that
channels-last bytes cannot be read under, and an op that works in place keeps one order for both of its tensors. A
convolution one of whose tensors must be plain has all of them plain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from snplan.codegen.operand import Operand, Order, operand, strides_of
from snplan.errors import RunError
from snplan.ir import DType, Spec
from snplan.plan.index import PlanIndex
from snplan.plan.model import PlanOp, Recompute, Run
from snplan.runtime.device_array import DeviceArray

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Orders: TypeAlias = Mapping[str, Order]

_ORDERS: tuple[Order, ...] = ("plain", "channels_last")
CONVOLUTIONS = ("conv", "conv_transpose", "conv_filter")
# Kinds whose operands do not look alike: the order does not pass through them.
_BARRIERS = frozenset(
    (
        *CONVOLUTIONS,
        *("matmul", "transpose", "gather", "gather_grad", "gather_elements", "gather_nd", "gather_nd_grad"),
        *("scatter_add", "scatter_elements", "scatter_nd", "one_hot", "top_k", "cum_sum", "trilu", "tile"),
        *("layer_norm", "layer_norm_grad", "rms_norm", "rms_norm_grad", "constant", "range"),
        *("softmax", "softmax_grad", "log_softmax", "log_softmax_grad"),
    )
)


def assign_orders(index: PlanIndex) -> dict[str, Order]:
    """The physical order of each tensor, by name. Depends on the plan alone, so that every run agrees."""
    plain = _held_plain(index)
    while True:
        chosen = _spread(index, plain)
        clashes = {name for pair in _shared_bytes(index) for name in _clash(pair, chosen)}
        clashes.update(name for op in index.ops.values() for name in _mixed(op, index, chosen))
        if clashes <= plain:
            return {name: "channels_last" if name in chosen else "plain" for name in index.tensors}
        plain |= clashes


def op_operands(op: PlanOp, index: PlanIndex, orders: Orders) -> tuple[list[Operand], list[Operand]]:
    """Inputs as the op reads them, views applied, and outputs. Raises RunError (SNP-R040) for an impossible view."""
    views = views_of(op)
    inputs = [operand(spec_of(index, name), orders[name], view) for name, view in zip(op.inputs, views, strict=True)]
    return inputs, [operand(spec_of(index, name), orders[name]) for name in op.outputs]


def kinds_of(op: PlanOp) -> list[str]:
    """The kind of the op, and those of the parts of a fused one."""
    return [op.kind, *(part[0] for part in op.attrs.get("parts") or ())]


def views_of(op: PlanOp) -> list[list[int] | None]:
    """The shape under which the op reads each input; None: the tensor's own."""
    return op.attrs.get("in_shapes") or [None] * len(op.inputs)


def spec_of(index: PlanIndex, name: str) -> Spec:
    """Element type and shape of a tensor."""
    row = index.tensors[name]
    return Spec(DType(row.dtype), tuple(row.shape))


def to_device_order(value: Array, order: Order) -> Array:
    """A view of `value` whose row-major elements are those of the device, in the device's order."""
    return value if order == "plain" or value.ndim < 3 else np.moveaxis(value, 1, -1)


def from_device_order(block: Array, shape: Sequence[int], order: Order) -> Array:
    """An array of `shape`, row-major, from elements in device order (`block` has one axis)."""
    if order == "plain" or len(shape) < 3:
        return block.reshape(tuple(shape))
    return np.ascontiguousarray(np.moveaxis(block.reshape((shape[0], *shape[2:], shape[1])), -1, 1))


def held_order(value: DeviceArray, *, prefer: Order) -> Order | None:
    """The order that an array is in, `prefer` where both are the same bytes; None where it is in neither."""
    seen = Operand(dtype=DType.UINT8, shape=value.shape, strides=value.strides)
    fitting: list[Order] = [order for order in _ORDERS if seen.follows(strides_of(value.shape, order))]
    return prefer if prefer in fitting else next(iter(fitting), None)


def _held_plain(index: PlanIndex) -> set[str]:
    """Tensors that must be row-major: operands of products, and those read under a shape that needs it."""
    held = {name for name, row in index.tensors.items() if len(row.shape) < 3 or not _differs(row.shape)}
    for op in index.ops.values():
        if op.kind == "matmul":
            held.update(op.inputs)
            held.update(op.outputs)
        reads = zip(op.inputs, views_of(op), strict=True)
        held.update(name for name, view in reads if not _readable(index, name, view))
    return held


def _differs(shape: Sequence[int]) -> bool:
    """Whether the two orders are different bytes."""
    return shape[1] != 1 and prod(shape[2:]) != 1


def _readable(index: PlanIndex, name: str, view: Sequence[int] | None) -> bool:
    """Whether channels-last bytes of the tensor can be read under `view`."""
    try:
        operand(spec_of(index, name), "channels_last", view)
    except RunError:
        return False
    return True


def _spread(index: PlanIndex, plain: set[str]) -> set[str]:
    """Tensors that channels-last reaches from convolutions without entering `plain`."""
    links = _links(index)
    convolutions = [op for op in index.ops.values() if op.kind in CONVOLUTIONS]
    pending = [name for op in convolutions for name in (*op.inputs, *op.outputs)]
    chosen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in chosen or name in plain:
            continue
        chosen.add(name)
        pending += links.get(name, ())
    return chosen


def _links(index: PlanIndex) -> dict[str, list[str]]:
    """Tensors to which the order passes on: operands of one rank of the same op."""
    links: dict[str, list[str]] = {}
    for op in index.ops.values():
        if not _BARRIERS.isdisjoint(kinds_of(op)):
            continue
        names = list(dict.fromkeys(_whole(op)))
        for name in names:
            rank = len(index.tensors[name].shape)
            links.setdefault(name, []).extend(x for x in names if x != name and len(index.tensors[x].shape) == rank)
    return links


def _whole(op: PlanOp) -> list[str]:
    """Operands that the op reads or writes under their own shape."""
    return [*(name for name, view in zip(op.inputs, views_of(op), strict=True) if view is None), *op.outputs]


def _mixed(op: PlanOp, index: PlanIndex, chosen: set[str]) -> list[str]:
    """Image, filter and result of a convolution where only some are channels-last: libraries want all in one order."""
    if op.kind not in CONVOLUTIONS:
        return []
    names = [name for name in (*op.inputs[:2], *op.outputs) if _differs(index.tensors[name].shape)]
    return [] if all(name in chosen for name in names) else names


def _shared_bytes(index: PlanIndex) -> Iterator[tuple[Operandish, Operandish]]:
    """Pairs that must lie alike: what an action reads and writes in the same bytes, and what persists as it was."""
    for action in index.plan.actions:
        if isinstance(action, (Run, Recompute)):
            op = index.ops[action.op]
            views = dict(zip(op.inputs, views_of(op), strict=True))
            for read, source in action.reads:
                for written, target in action.writes:
                    if _overlap(index, source, target):
                        yield _row(index, read, views[read]), _row(index, written, None)
    for entry in index.plan.persistent:
        yield _row(index, entry.tensor, None), _row(index, entry.becomes, None)


# A tensor's name, spec, and the shape that it is seen under.
Operandish: TypeAlias = tuple[str, Spec, "Sequence[int] | None"]


def _row(index: PlanIndex, name: str, view: Sequence[int] | None) -> Operandish:
    return name, spec_of(index, name), view


def _overlap(index: PlanIndex, a: int, b: int) -> bool:
    x, y = index.buffers[a], index.buffers[b]
    return x.offset < y.offset + y.bytes and y.offset < x.offset + x.bytes


def _clash(pair: tuple[Operandish, Operandish], chosen: set[str]) -> set[str]:
    """The tensors of a pair where their elements do not lie alike; nothing where they do."""
    (a, spec_a, view_a), (b, spec_b, view_b) = pair
    if a not in chosen and b not in chosen:
        return set()
    x = operand(spec_a, "channels_last" if a in chosen else "plain", view_a)
    y = operand(spec_b, "channels_last" if b in chosen else "plain", view_b)
    alike = x.shape == y.shape and x.follows(y.strides)
    return set() if alike else {a, b}
