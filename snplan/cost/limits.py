"""What the GPU libraries cannot do whatever the memory, told when a plan is made instead of when it runs."""

from __future__ import annotations

from snplan.errors import InfeasibleError
from snplan.ir import Graph, Op

MOST_ELEMENTS = 2**31 - 1
"""Elements that cuDNN addresses in one operand of a convolution. Other kernels index with 64 bits."""

_KINDS = ("conv", "conv_transpose", "conv_filter")


def check_sizes(graph: Graph) -> None:
    """Raise InfeasibleError (SNP-P020) where an operand of a convolution has more elements than cuDNN addresses."""
    for op in graph.ops:
        if op.kind not in _KINDS:
            continue
        for name in (*op.inputs, *op.outputs):
            elements = graph.tensors[name].spec.elements
            if elements > MOST_ELEMENTS:
                raise _too_large(op, name, graph.tensors[name].shape, elements)


def _too_large(op: Op, name: str, shape: tuple[int, ...], elements: int) -> InfeasibleError:
    return InfeasibleError(
        "SNP-P020",
        f"op {op.name} ({op.kind}): tensor {name} of shape {list(shape)} has {elements:,} elements, a convolution "
        f"takes at most {MOST_ELEMENTS:,} (2^31 - 1); lower the batch size",
        {"binding": op.name, "tensor": name, "elements": elements},
    )
