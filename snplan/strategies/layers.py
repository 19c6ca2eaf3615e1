"""Layers as the paper speaks of them, in terms of a step's ops and tensors (SuperNeurons, sections 3.3 and 3.4).

The paper's tensors are the outputs of layers. Here an op's result may go in place and the backward pass reads the
cheapest saved value, so a layer's tensor is what its result's buffer holds when the backward pass wants it.
"""

from __future__ import annotations

from bisect import bisect_left

from snplan.analysis.index import IndexedStep, forward_readers
from snplan.analysis.schedule import Schedule, saved_tensors
from snplan.ir import Op, Phase, Role
from snplan.ops.fused import parts_of

CONVOLUTIONS = frozenset({"conv", "conv_transpose"})
PRODUCTS = frozenset({"matmul"})
JOINS = frozenset({"add", "concat"})
_CONVOLUTIONS_BACKWARD = CONVOLUTIONS | {"conv_filter"}
_STATISTICS_SHARE = 64  # results under this part of what their op works on are statistics, and stay


def heavy_kinds(step: IndexedStep) -> frozenset[str]:
    """Kinds that count as CONV: convolutions, or matrix products in a network that has none."""
    forward = {op.kind for op in step.ops[: step.backward]}
    return CONVOLUTIONS if forward & CONVOLUTIONS else PRODUCTS


def checkpoint_tensors(step: IndexedStep) -> set[int]:
    """Tensors that recompute starts from: of convolutions, products, joins, and results with several readers."""
    readers, saved = forward_readers(step), set(saved_tensors(step))
    kept: set[int] = set()
    for op in range(step.backward):
        if step.ops[op].phase is not Phase.FORWARD:
            continue
        if _is_checkpoint(step, op):
            kept.update(_layer_tensor(step, tensor, readers, saved) for tensor in step.writes[op][:1])
        kept.update(tensor for tensor in step.writes[op] if len(readers[tensor]) > 1)
        kept.update(statistics(step, op))
    return kept


def _is_checkpoint(step: IndexedStep, op: int) -> bool:
    kinds = _kinds(step.ops[op])
    if kinds & JOINS:
        small = max(step.size[t] for t in step.writes[op]) // _STATISTICS_SHARE
        return sum(is_activation(step, t) and step.size[t] > small for t in step.reads[op]) > 1
    return bool(kinds & (CONVOLUTIONS | PRODUCTS))


def _kinds(op: Op) -> set[str]:
    """The op's kind; of a fused op those of its parts."""
    return {part.kind for part in parts_of(op.attrs)} if op.kind == "fused" else {op.kind}


def is_activation(step: IndexedStep, tensor: int) -> bool:
    """Whether the tensor is a result of the forward pass or an input of the graph."""
    return step.role(tensor) in (Role.ACTIVATION, Role.INPUT)


def statistics(step: IndexedStep, op: int) -> list[int]:
    """Results of `op` that are small beside what it works on: batch statistics and the like, which a layer keeps."""
    worked = [*(t for t in step.reads[op] if is_activation(step, t)), *step.writes[op]]
    largest = max(step.size[t] for t in worked)
    return [t for t in step.writes[op] if step.size[t] * _STATISTICS_SHARE <= largest]


def _layer_tensor(step: IndexedStep, tensor: int, readers: list[list[int]], saved: set[int]) -> int:
    """What the buffer of `tensor` holds for the backward pass: itself, or what its only reader makes of it in place."""
    found = tensor
    while found not in saved:
        if len(readers[found]) != 1:
            return tensor
        written = [w for w, r in step.overwrites[readers[found][0]] if r == found]
        if not written:
            return tensor
        found = written[0]
    return found


def heavy_tensors(step: IndexedStep) -> set[int]:
    """The tensors of CONV layers: what the paper offloads."""
    readers, saved, kinds = forward_readers(step), set(saved_tensors(step)), heavy_kinds(step)
    results = [step.writes[op][0] for op in range(step.backward) if step.ops[op].kind in kinds]
    return {_layer_tensor(step, tensor, readers, saved) for tensor in results}


def layer_inputs(step: IndexedStep, kinds: frozenset[str] | None = None) -> set[int]:
    """Activations that forward ops (of these kinds, or all of them) read."""
    ops = (op for op in range(step.backward) if step.ops[op].phase is Phase.FORWARD)
    chosen = [op for op in ops if kinds is None or step.ops[op].kind in kinds]
    return {tensor for op in chosen for tensor in step.reads[op] if is_activation(step, tensor)}


def fetch_positions(schedule: Schedule) -> list[int]:
    """For each position the one at which the paper fetches what it reads: the CONV before its own in the backward pass.

    "At any CONV layers in the backward, the runtime asynchronously fetches the required tensors for the previous CONV
    layer" (section 3.3). What the first CONV of the backward pass needs is fetched when that pass begins.
    """
    step = schedule.step
    starts, owner = _backward_layers(schedule)
    first = min(step.backward, max(schedule.end - 1, 0))
    found = []
    for position in range(schedule.end):
        index = bisect_left(starts, owner.get(position, position))
        found.append(min(position, starts[index - 1] if index else first))
    return found


def _backward_layers(schedule: Schedule) -> tuple[list[int], dict[int, int]]:
    """Positions where CONV layers begin in the backward pass, and for each position inside one where that is."""
    step = schedule.step
    kinds = _CONVOLUTIONS_BACKWARD if heavy_kinds(step) is CONVOLUTIONS else PRODUCTS
    begun: dict[int, int] = {}
    owner: dict[int, int] = {}
    for position in range(step.backward, schedule.end):
        op = schedule.runs[position]
        if schedule.first[position] and step.ops[op].phase is Phase.BACKWARD and step.ops[op].kind in kinds:
            gradients = [t for t in step.reads[op] if step.producer[t] >= step.backward]
            for gradient in gradients[-1:]:
                owner[position] = begun.setdefault(gradient, position)
    return sorted(set(begun.values())), owner
