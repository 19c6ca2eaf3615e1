"""The kernel of fused ops: the kernels of its parts, one after another, so that fusing changes no bit."""

from __future__ import annotations

from collections.abc import Sequence

from snplan.runtime.numpy.base import KERNELS, Array, Attrs, Context


def fused(inputs: Sequence[Array], attrs: Attrs, context: Context) -> tuple[Array, ...]:
    """The values that `results` numbers; others are let go after the last part that reads them."""
    parts, results = attrs["parts"], attrs["results"]
    last = {number: place for place, (_, operands, _) in enumerate(parts) for number in operands}
    last.update(dict.fromkeys(results, len(parts)))
    values, count = dict(enumerate(inputs)), len(inputs)
    for place, (kind, operands, own) in enumerate(parts):
        for value in KERNELS[kind]([values[number] for number in operands], own, context):
            values[count] = value
            count += 1
        for number in {*operands}:
            if last[number] == place:
                del values[number]
    return tuple(values[number] for number in results)


# Parts widen and round for themselves: nothing is left to do for the registry's wrapper.
KERNELS["fused"] = fused
