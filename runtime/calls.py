"""Ops of a plan as calls of NumPy kernels: shared by the replay and by the unplanned execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from snplan.errors import RunError
from snplan.plan.index import PlanIndex
from snplan.plan.model import PlanOp, PlanTensor
from snplan.runtime.dtypes import numpy_dtype
from snplan.runtime.numpy import KERNELS, Array, Context, Kernel

Layout = tuple[np.dtype[Any], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCall:
    """One op with its kernel; `inputs` are types and shapes as it reads them, views applied, `outputs` as it writes."""

    op: PlanOp
    kernel: Kernel
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]

    def context(self, base: Context) -> Context:
        """`base` with the op's random stream."""
        return base if self.op.rng is None else replace(base, stream=self.op.rng)

    def __call__(self, inputs: Sequence[Array], context: Context) -> tuple[Array, ...]:
        """Fresh outputs. Raises RunError (SNP-R007) naming the op where the kernel fails or gives other shapes."""
        try:
            results = self.kernel(inputs, self.op.attrs, context)
        except Exception as error:
            raise self._failure(f"{type(error).__name__}: {error}") from error
        if len(results) != len(self.outputs):
            raise self._failure(f"gave {len(results)} results instead of {len(self.outputs)}")
        for name, result, (dtype, shape) in zip(self.op.outputs, results, self.outputs, strict=True):
            if result.dtype != dtype or result.shape != shape:
                raise self._failure(
                    f"gave {result.dtype}{list(result.shape)} for {name}, which is {dtype}{list(shape)}"
                )
        return results

    def _failure(self, what: str) -> RunError:
        nodes = f", node {', '.join(self.op.nodes)}" if self.op.nodes else ""
        return RunError("SNP-R007", f"op {self.op.name} ({self.op.kind}{nodes}) failed: {what}", {"op": self.op.name})


def layout(tensor: PlanTensor) -> Layout:
    """NumPy's type and shape of a tensor."""
    return numpy_dtype(tensor.dtype), tuple(tensor.shape)


def op_call(op: PlanOp, index: PlanIndex) -> OpCall:
    """The call of one op. Raises RunError (SNP-R004) where its kind has no kernel."""
    if op.kind not in KERNELS:
        raise RunError("SNP-R004", f"op {op.name} is of kind {op.kind}, which the numpy backend does not know")
    shapes = op.attrs.get("in_shapes") or [None] * len(op.inputs)
    inputs = [layout(index.tensors[name]) for name in op.inputs]
    return OpCall(
        op=op,
        kernel=KERNELS[op.kind],
        inputs=tuple(
            (dtype, own if shape is None else tuple(shape)) for (dtype, own), shape in zip(inputs, shapes, strict=True)
        ),
        outputs=tuple(layout(index.tensors[name]) for name in op.outputs),
    )
