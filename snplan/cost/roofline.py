"""Times of ops: measured where the device has a profile, else a roofline over its published numbers.

    time = max(operations / reached rate, bytes moved / reached bandwidth) + launch, at least 1 us

Operations and bytes are what the op table says of the kind. Matrix products and convolutions run at the rate of the
precision, with the efficiency of `snplan.cost.gemm` and the engines of `snplan.cost.engines`; all else at the vector
rate of float32 (of float64 for float64), where it is the bytes that count. Normalisations, whose passes end in sums
over many blocks, reach 79 % of the bandwidth of a copy: measured on an H200, 3.4 of 4.3 TB/s.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from snplan.cost.device import Device, Precision
from snplan.cost.engines import engines, launch_us, memory_us
from snplan.cost.gemm import MATRIX_KINDS
from snplan.cost.profile import signature
from snplan.ir import DType, Graph, Op, Spec
from snplan.ir.signature import by_class
from snplan.ops import KINDS, input_specs
from snplan.ops.fused import parts_of

_NORMALISATIONS = frozenset(
    name + suffix
    for name in ("batch_norm_train", "batch_norm", "batch_norm_statistics", "layer_norm", "rms_norm", "group_norm")
    for suffix in ("", "_grad", "_grad_sums")
)
_NORMALISATION_SPEED = 0.79
_TWO_KERNELS = frozenset({"batch_norm_train", "batch_norm_grad", "batch_norm_eval", "batch_norm_eval_grad"})
"""Kinds that are launched twice: sums, then what is made of them. Fusion makes two ops of each."""


def op_costs(graph: Graph, device: Device, precision: Precision, *, pieces: int = 1) -> np.ndarray:
    """Microseconds of each op of `graph.ops` (int64, at least 1): its fastest engine in at most `pieces` pieces."""
    tensors = graph.tensors

    def cost(index: int) -> int:
        op = graph.ops[index]
        outputs = [tensors[name].spec for name in op.outputs]
        return op_cost(op, tuple(input_specs(op, tensors)), outputs, device, precision, pieces=pieces)

    return np.array(by_class(graph.classes, cost), dtype=np.int64)


def op_cost(
    op: Op, inputs: Sequence[Spec], outputs: Sequence[Spec], device: Device, precision: Precision, *, pieces: int = 1
) -> int:
    """Microseconds of `op` with its fastest engine in at most `pieces` pieces; `inputs` as the op reads them."""
    if op.kind in MATRIX_KINDS:
        return engines(op, inputs, device, precision, pieces=pieces)[-1].us
    if device.profile is not None:
        measured = device.profile.find(signature(op.kind, inputs, op.attrs, precision))
        if measured is not None:
            return measured[-1].us
    kind = KINDS[op.kind]
    specs = (*inputs, *outputs)
    rate = device.fp64_flops if any(spec.dtype == DType.FLOAT64 for spec in specs) else device.fp32_flops
    compute = kind.flops(inputs, outputs, op.attrs) * 1e6 / (rate * device.compute_percent / 100)
    memory = memory_us(kind.traffic(inputs, outputs, op.attrs), device)
    work = launch_us(max(compute, memory / _NORMALISATION_SPEED if _is_normalisation(op) else memory), device)
    return work + device.graph_launch_us if op.kind in _TWO_KERNELS else work


def _is_normalisation(op: Op) -> bool:
    """Whether the passes of `op` end in sums over many blocks."""
    if op.kind == "fused":
        return parts_of(op.attrs)[-1].kind in _NORMALISATIONS
    return op.kind in _NORMALISATIONS
