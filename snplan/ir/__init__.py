"""The intermediate representation: tensors, ops, graphs."""

from snplan.ir.dtype import DType, elements, nbytes
from snplan.ir.graph import Forward, Graph, Step, fresh_name, problems
from snplan.ir.op import Attr, Attrs, Op, Phase
from snplan.ir.tensor import Role, Spec, Tensor

__all__ = [
    "Attr",
    "Attrs",
    "DType",
    "Forward",
    "Graph",
    "Op",
    "Phase",
    "Role",
    "Spec",
    "Step",
    "Tensor",
    "elements",
    "fresh_name",
    "nbytes",
    "problems",
]
