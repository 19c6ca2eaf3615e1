"""Builders of pooling and its gradients. A thread makes one position of the result, in channels-last order for several
neighbouring channels; gradients gather from the windows that hold the position, so nothing is added by atomics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from snplan.codegen.call import Access, Call, builds, reads, writes
from snplan.codegen.launch import Launch, Output, Param, Scalar, source
from snplan.codegen.operand import Operand
from snplan.codegen.scalars import accumulator, item_bytes, literal, quotient
from snplan.codegen.space import channel_width, coordinate_code, index_type, linear
from snplan.ir import DType

_BLOCK = 256
_SPATIAL = 3


def volume(x: Operand) -> Operand:
    """`x` with three spatial axes: ones are put in before those that it has."""
    missing = _SPATIAL + 2 - x.rank
    return replace(
        x,
        shape=(*x.shape[:2], *(1,) * missing, *x.shape[2:]),
        strides=(*x.strides[:2], *(0,) * missing, *x.strides[2:]),
    )


def _three(values: Sequence[int], fill: int) -> tuple[int, ...]:
    return (*(fill,) * (_SPATIAL - len(values)), *values)


def window_params(attrs: Mapping[str, Any], size: Sequence[int], count: Sequence[int]) -> dict[str, Param]:
    """The windows as constants of a template: input size, number of windows, kernel, strides, pads, dilations."""
    rank = len(attrs["kernel"])
    return {
        "size": _three(size, 1),
        "windows": _three(count, 1),
        "kernel": _three(attrs["kernel"], 1),
        "steps": _three(attrs["strides"], 1),
        "begin": _three(attrs["pads"][:rank], 0),
        "end": _three(attrs["pads"][rank:], 0),
        "dilations": _three(attrs["dilations"], 1),
        "counts_pad": bool(attrs.get("count_include_pad")),
    }


def _launch(call: Call, template: str, accesses: dict[str, Access], target: str, **params: Param) -> tuple[Launch, ...]:
    """One thread for each (group of) element of the access `target`."""
    volumes = {name: volume(access.operand) for name, access in accesses.items()}
    lead = volumes[target]
    if lead.elements == 0:
        return ()
    limit = max(1, 16 // max(item_bytes(x.dtype) for x in volumes.values()))
    width = channel_width(list(volumes.values()), limit)
    kind = index_type(list(volumes.values()))
    count = lead.elements // width
    declared = [
        f"{'' if isinstance(access.argument, Output) else 'const '}{access.type}* p_{name}"
        for name, access in accesses.items()
    ]
    params |= {
        "compute": accumulator(lead.dtype),
        "kind": kind,
        "width": width,
        "coordinates": tuple(coordinate_code(lead, width, kind)),
        "parameters": ", ".join([*declared, f"{kind} count"]),
        "tensors": tuple(
            (name, (accesses[name].type, x.strides[2:], linear(["c0", "c1"], x.strides[:2], x.offset, kind)))
            for name, x in volumes.items()
        ),
    }
    return (
        Launch(
            source=source(template, call.kind, **params),
            grid=(quotient(count, _BLOCK), 1, 1),
            block=(_BLOCK, 1, 1),
            arguments=(*(a.argument for a in accesses.values()), Scalar("int32" if kind == "int" else "int64", count)),
        ),
    )


@builds("max_pool")
def max_pool(call: Call) -> Sequence[Launch]:
    """Largest values and their positions in the windows."""
    x, y = call.inputs[0], call.outputs[0]
    lowest = "A(-infinity())" if x.dtype.is_float else literal(_lowest(x.dtype))
    accesses = {"y": writes(call, 0), "at": writes(call, 1), "x": reads(call, 0)}
    params = window_params(call.attrs, x.shape[2:], y.shape[2:])
    return _launch(call, "max_pool", accesses, "y", lowest=lowest, **params)


def _lowest(dtype: DType) -> int:
    return 0 if dtype.startswith("uint") else -(2 ** (dtype.bits - 1))


@builds("average_pool")
def average_pool(call: Call) -> Sequence[Launch]:
    """Means over the positions that count."""
    params = window_params(call.attrs, call.inputs[0].shape[2:], call.outputs[0].shape[2:])
    return _launch(call, "average_pool", {"y": writes(call), "x": reads(call, 0)}, "y", **params)


@builds("max_pool_grad")
def max_pool_grad(call: Call) -> Sequence[Launch]:
    """dy of the windows whose largest value was here."""
    accesses = {"dx": writes(call), "at": reads(call, 0), "dy": reads(call, 1)}
    return _gradient(call, accesses, largest=True)


@builds("average_pool_grad")
def average_pool_grad(call: Call) -> Sequence[Launch]:
    """dy of the windows that hold the position, each over its divisor."""
    return _gradient(call, {"dx": writes(call), "dy": reads(call, 0)}, largest=False)


def _gradient(call: Call, accesses: dict[str, Access], *, largest: bool) -> Sequence[Launch]:
    params = window_params(call.attrs, call.outputs[0].shape[2:], accesses["dy"].operand.shape[2:])
    return _launch(call, "pool_grad", accesses, "dx", largest=largest, **params)
