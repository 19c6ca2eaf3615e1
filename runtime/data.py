"""Data of a run: arrays from an NPZ file, or seeded random ones in ranges that the model can take."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from snplan.errors import RunError
from snplan.plan.index import PlanIndex
from snplan.plan.model import PlanOp, PlanTensor
from snplan.runtime import rng
from snplan.runtime.calls import layout
from snplan.runtime.values import converted, sources

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# Streams of random data; streams of ops count from 0.
_DATA_STREAM = 1 << 31
# Integers whose use says nothing about their range: flags and masks are the common case.
_DEFAULT_BOUND = 2


class Data:
    """Inputs of each step. Arrays with a leading extra axis hold one entry a step, and start again after the last."""

    def __init__(self, tensors: Sequence[PlanTensor], arrays: Mapping[str, Array]) -> None:
        self._arrays = dict(arrays)
        self._stacked = {t.name for t in tensors if self._arrays[t.name].ndim == len(t.shape) + 1}

    def step(self, number: int) -> dict[str, Array]:
        """The inputs of step `number`, from 1."""
        return {
            name: array[(number - 1) % len(array)] if name in self._stacked else array
            for name, array in self._arrays.items()
        }


def load_data(index: PlanIndex, path: Path) -> Data:
    """Data of an NPZ file: arrays by input name. Raises RunError (SNP-R020) for a file or array that does not fit."""
    found = _read(path)
    tensors = sources(index, inputs=True)
    extra = sorted(set(found) - {tensor.name for tensor in tensors})
    if extra:
        names = ", ".join(tensor.name for tensor in tensors) or "none"
        raise RunError(
            "SNP-R020", f"{path} holds {extra[0]}, which is not an input of the model; its inputs are {names}"
        )
    return Data(tensors, {tensor.name: _fitting(tensor, found, path) for tensor in tensors})


def _read(path: Path) -> dict[str, Array]:
    try:
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise RunError("SNP-R020", f"data {path} is one array; save arrays by input name with numpy.savez")
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError("SNP-R020", f"data {path} cannot be read: {reason}; write it with numpy.savez") from error


def _fitting(tensor: PlanTensor, found: Mapping[str, Array], path: Path) -> Array:
    dtype, shape = layout(tensor)

    def complain(message: str) -> RunError:
        return RunError("SNP-R020", f"data {path}: {message}")

    if tensor.name not in found:
        raise complain(f"there is no array for input {tensor.name} ({dtype}{list(shape)})")
    array = found[tensor.name]
    if array.shape != shape and (array.shape[1:] != shape or array.ndim != len(shape) + 1 or not len(array)):
        wanted = f"{dtype}{list(shape)}, or with a leading axis of one entry a step"
        raise complain(f"{tensor.name} must be {wanted}; it is {array.dtype}{list(array.shape)}")
    return converted(tensor, array, complain)


def random_data(index: PlanIndex, *, seed: int) -> Data:
    """The same seeded random inputs every step: floats normal, integers in the range that their readers allow."""
    # By name: plans of one model list its inputs in different orders.
    tensors = sorted(sources(index, inputs=True), key=lambda tensor: tensor.name)
    bounds = _Bounds(index)
    arrays = {tensor.name: _random(tensor, bounds, seed, position) for position, tensor in enumerate(tensors)}
    return Data(tensors, arrays)


def _random(tensor: PlanTensor, bounds: _Bounds, seed: int, position: int) -> Array:
    dtype, shape = layout(tensor)
    count = int(np.prod(shape, dtype=np.int64))
    stream = {"seed": seed, "stream": _DATA_STREAM + position, "step": 0}
    if dtype.kind not in "iub":
        return rng.normal(count, **stream).reshape(shape).astype(dtype)
    bound = 2 if dtype.kind == "b" else min(bounds.of(tensor.name), np.iinfo(dtype).max)
    return np.floor(rng.uniform(count, **stream) * bound).reshape(shape).astype(dtype)


def integer_bound(index: PlanIndex, name: str) -> int:
    """What values of an integer input must be less than, as far as its readers say; 2 where none does."""
    return _Bounds(index).of(name)


# Kinds whose outputs hold elements of their inputs only (of input 0, or of those listed).
_MOVING: Mapping[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("cast", "copy", "view", "transpose", "slice", "expand", "tile", "split", "pad", "clip"), (0,)),
    **dict.fromkeys(("gather", "gather_elements", "gather_nd", "reduce_max", "reduce_min", "trilu", "abs"), (0,)),
    "concat": None,
    "where": (1, 2),
    "max": None,
    "min": None,
    "mask": (1,),
}


class _Bounds:
    """Exclusive upper bounds of integer inputs, from the ops that use them as labels or indices."""

    def __init__(self, index: PlanIndex) -> None:
        self._index = index
        self._readers: dict[str, list[tuple[PlanOp, int]]] = {}
        for op in index.plan.ops:
            for position, name in enumerate(op.inputs):
                self._readers.setdefault(name, []).append((op, position))

    def of(self, name: str) -> int:
        """The smallest bound that a reader sets, also behind casts and other moves; 2 where none does."""
        return min(self._found(name), default=_DEFAULT_BOUND)

    def _found(self, name: str) -> Iterator[int]:
        pending, seen = [name], {name}
        while pending:
            for op, position in self._readers.get(pending.pop(), ()):
                try:
                    bound = self._bound(op, position)
                except (LookupError, TypeError) as error:
                    message = f"op {op.name} has attributes that {op.kind} cannot have ({error!r}); compile it again"
                    raise RunError("SNP-R007", message) from error
                if bound is not None:
                    yield bound
                if op.kind in _MOVING and position in (_MOVING[op.kind] or range(len(op.inputs))):
                    fresh = [output for output in op.outputs if output not in seen]
                    pending += fresh
                    seen.update(fresh)

    def _bound(self, op: PlanOp, position: int) -> int | None:
        """What input `position` of `op` must be less than, or None where any value will do."""
        if position == 1 and op.kind in ("softmax_cross_entropy", "nll_loss", "gather", "gather_elements"):
            return self._shape(op, 0)[op.attrs["axis"]]
        if position == 1 and op.kind in ("scatter_elements", "scatter_nd", "gather_nd"):
            shape = self._shape(op, 0)
            batch = op.attrs.get("batch_dims", 0)
            axes = (
                shape[batch : batch + self._shape(op, 1)[-1]] if op.kind.endswith("_nd") else (shape[op.attrs["axis"]],)
            )
            return min(axes, default=None)
        return op.attrs["depth"] if op.kind == "one_hot" and position == 0 else None

    def _shape(self, op: PlanOp, position: int) -> tuple[int, ...]:
        viewed = op.attrs.get("in_shapes")
        own = self._index.tensors[op.inputs[position]].shape
        return tuple(own if viewed is None or viewed[position] is None else viewed[position])
