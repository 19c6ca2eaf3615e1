"""Lower bounds on the step time: no plan of the step within the budget is faster.

1. The compute stream runs every op at least once: the sum of op times, each with its fastest engine.
2. Take any op v. When it first runs, all ops that it depends on have run and none of those that depend on it. Tensors
   written by the former and read by the latter, and persistent tensors that the latter update, are then somewhere: on
   the device, beside v's own inputs and outputs; on the host, which takes as many bytes over the link in each direction
   (a tensor that was on the host from the start is back there, updated, at the end); or nowhere, to be recomputed,
   which takes their op's time again and is open to forward ops only. With E bytes too many for the budget, x of them
   copied and the others recomputed in the cheapest way (fractions allowed),

       step time >= min over x of max(sum of op times + recompute(E - x), copies of x bytes each way)

   holds for every order of the ops. It is evaluated at the ops with the most live bytes and some spread over the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from snplan.cost.device import Device
from snplan.ir import Graph, Phase, Step
from snplan.ops import inplace_pairs

_WORK = 800_000  # ops visited for all cuts together
_CUTS = 24
_SLACK = 1 - 1e-9  # rounding of floats must not lift the bound above the truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What must exist while an op runs.

    here        bytes of the op's own inputs and outputs, without outputs that can be in place
    stuck       bytes that can only be on the device or on the host
    droppable   (bytes, microseconds of the op that writes them again), the cheapest microsecond a byte first
    """

    here: int
    stuck: int
    droppable: tuple[tuple[int, int], ...]

    @property
    def bytes(self) -> int:
        """All bytes of the cut."""
        return self.here + self.stuck + sum(size for size, _ in self.droppable)


def lower_bound_us(step: Step, costs: np.ndarray, device: Device, budget_bytes: int | None = None) -> int:
    """Microseconds that no plan of `step` beats within `budget_bytes` (those for buffers, without the reserve).

    `costs` are the times of `step.graph.ops` with their fastest engines (`op_costs`). Without a budget the bound is
    their sum.
    """
    compute = int(costs.sum())
    if budget_bytes is None:
        return compute
    times = costs.tolist()
    live = _live_bytes(step.graph)
    preds = predecessors(step.graph)
    cuts = (cut_at(step, times, v, preds) for v in _candidates(step.graph, live, budget_bytes))
    return max((compute, *(spill_bound_us(compute, cut, device, budget_bytes) for cut in cuts)))


def copies_us(h2d_bytes: float, d2h_bytes: float, device: Device) -> float:
    """Least microseconds in which the link moves these bytes, both directions as much at a time as pays."""
    h2d, d2h = device.h2d_bytes_per_s / 1e6, device.d2h_bytes_per_s / 1e6
    h2d_both, d2h_both = device.h2d_both_bytes_per_s / 1e6, device.d2h_both_bytes_per_s / 1e6
    both = min(h2d_bytes / h2d_both, d2h_bytes / d2h_both) if h2d_both / h2d + d2h_both / d2h > 1 else 0.0
    return both + (h2d_bytes - both * h2d_both) / h2d + (d2h_bytes - both * d2h_both) / d2h


def spill_bound_us(compute_us: int, cut: Cut, device: Device, budget_bytes: int) -> int:
    """The bound that one cut gives, at least `compute_us`; see rule 2 of the module."""
    excess: float = cut.bytes - budget_bytes
    time: float = compute_us
    per_byte = copies_us(1, 1, device)
    for size, us in cut.droppable:
        if excess * per_byte <= time:
            break
        # Recomputing d bytes more: compute time rises by us / size, copies shrink by per_byte, until both are equal.
        part = min(float(size), excess, (excess * per_byte - time) / (us / size + per_byte))
        time += part * us / size
        excess -= part
        if part < size:
            break
    return max(compute_us, int(max(time, excess * per_byte) * _SLACK))


def predecessors(graph: Graph) -> list[list[int]]:
    """For each op the ops that write what it reads."""
    return [[graph.producer[name] for name in op.inputs if name in graph.producer] for op in graph.ops]


def cut_at(step: Step, times: Sequence[int], v: int, preds: Sequence[Sequence[int]]) -> Cut:
    """The cut at op `v` of the step's graph; `preds` are the `predecessors` of its ops."""
    graph, op = step.graph, step.graph.ops[v]
    before, after = _ancestors(preds, v), _descendants(preds, v)
    own = {*op.inputs, *op.outputs}
    here = sum(graph.tensors[name].bytes for name in own)
    shared = {output for output, _ in inplace_pairs(op, graph.tensors)}
    here -= sum(graph.tensors[op.outputs[output]].bytes for output in shared)
    stuck = _updated_later(step, after, own)
    droppable: list[tuple[int, int]] = []
    for p in range(v):
        if not before[p]:
            continue
        names = [name for name in graph.ops[p].outputs if name not in own]
        size = sum(graph.tensors[name].bytes for name in names if any(after[r] for r in graph.readers[name]))
        if size and graph.ops[p].phase is Phase.FORWARD:
            droppable.append((size, times[p]))
        else:
            stuck += size
    return Cut(here=here, stuck=stuck, droppable=tuple(sorted(droppable, key=lambda item: item[1] / item[0])))


def _updated_later(step: Step, after: bytearray, own: set[str]) -> int:
    """Bytes of the persistent tensors that ops of `after` read and the step replaces, without those of `own`."""
    graph = step.graph
    return sum(
        graph.tensors[name].bytes
        for name, following in step.becomes.items()
        if following != name and name not in own and any(after[reader] for reader in graph.readers[name])
    )


def _ancestors(preds: Sequence[Sequence[int]], v: int) -> bytearray:
    """1 for each op that `v` depends on."""
    found = bytearray(len(preds))
    found[v] = 1
    for i in range(v, -1, -1):
        if found[i]:
            for p in preds[i]:
                found[p] = 1
    found[v] = 0
    return found


def _descendants(preds: Sequence[Sequence[int]], v: int) -> bytearray:
    """1 for each op that depends on `v`."""
    found = bytearray(len(preds))
    found[v] = 1
    for i in range(v + 1, len(preds)):
        for p in preds[i]:
            if found[p]:
                found[i] = 1
                break
    found[v] = 0
    return found


def _live_bytes(graph: Graph) -> np.ndarray:
    """Bytes of tensors that ops write, live during each op in the order of the graph."""
    change = np.zeros(len(graph.ops) + 1, dtype=np.int64)
    for name, start in graph.producer.items():
        size, readers = graph.tensors[name].bytes, graph.readers[name]
        change[start] += size
        change[(readers[-1] if readers else start) + 1] -= size
    return np.cumsum(change[:-1])


def _candidates(graph: Graph, live: np.ndarray, budget_bytes: int) -> list[int]:
    """Ops to cut at: those with the most live bytes, and evenly spread ones; none where every tensor fits at once."""
    count = len(graph.ops)
    if count == 0 or sum(tensor.bytes for tensor in graph.tensors.values()) <= budget_bytes:
        return []
    cuts = max(2, min(_CUTS, _WORK // count))
    peaks = np.argsort(-live, kind="stable")[: cuts // 2].tolist()
    spread = np.linspace(0, count - 1, cuts - cuts // 2).astype(int).tolist()
    return sorted({*peaks, *spread})
