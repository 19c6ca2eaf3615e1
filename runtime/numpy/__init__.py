"""NumPy kernels, one for every op kind (docs/ops.md)."""

from snplan.runtime.numpy import binary, constants, conv, index, linear, move, reduce, unary
from snplan.runtime.numpy.base import KERNELS, Array, Attrs, Context, Kernel

__all__ = ["KERNELS", "Array", "Attrs", "Context", "Kernel"]
_FAMILIES = (binary, constants, conv, index, linear, move, reduce, unary)
