"""NumPy kernels, one for every op kind (docs/ops.md)."""

from snplan.runtime.numpy import (
    batch_norm,
    binary,
    constants,
    conv,
    fused,
    index,
    linear,
    loss,
    move,
    norm,
    pool,
    random,
    reduce,
    resize,
    unary,
    update,
)
from snplan.runtime.numpy.base import KERNELS, Array, Attrs, Context, Kernel

__all__ = ["FAMILIES", "KERNELS", "Array", "Attrs", "Context", "Kernel"]

# Importing a family's module is what registers its kernels.
FAMILIES = (
    *(batch_norm, binary, constants, conv, fused, index, linear, loss, move, norm, pool, random, reduce, resize, unary),
    update,
)
