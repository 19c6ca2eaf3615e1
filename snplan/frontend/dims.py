"""Graph inputs with their dimensions bound: --batch for the first ones, --dim NAME=N for the named ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx import TypeProto, ValueInfoProto

from snplan.errors import ModelError, UsageError
from snplan.frontend import codes
from snplan.frontend.tensors import DTYPES, checked_spec, type_name
from snplan.frontend.values import INPUT, Item, Poison, Source, Value
from snplan.ir import Spec

Dim = int | str | None
Shapes = Mapping[str, list[Dim] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundInputs:
    """What each graph input stands for; `rebatched` says that a fixed batch was replaced."""

    items: Mapping[str, Item]
    rebatched: bool


def bind_inputs(inputs: Sequence[ValueInfoProto], batch: int | None, dims: Mapping[str, int]) -> BoundInputs:
    """Inputs with every dimension a number.

    `dims` binds symbols, and INPUT:AXIS any dimension; `batch` the first dimension of every input where it is symbolic
    or unset, or the common fixed one of all inputs. Raises ModelError (SNP-I012) for a dimension left unbound, and
    UsageError (SNP-U061) for bindings that match nothing or contradict each other.
    """
    shapes = {info.name: _declared(info) for info in inputs if _dense(info)}
    _check_bindings(shapes, batch, dims)
    symbols = {**_batch_symbols(shapes, batch, dims), **dims}
    rebatched = _fixed_batch(shapes, batch)
    items: dict[str, Item] = {}
    for info in inputs:
        shape = shapes.get(info.name)
        if not _dense(info) or shape is None:
            items[info.name] = Poison(node=info.name, op="graph input", reason=_why_not(info))
            continue
        bound = [_bound(info.name, axis, dim, symbols) for axis, dim in enumerate(shape)]
        if batch is not None and bound and (rebatched or shape[0] is None) and f"{info.name}:0" not in dims:
            bound[0] = batch
        items[info.name] = _input(info, [_settled(info.name, axis, dim) for axis, dim in enumerate(bound)])
    return BoundInputs(items=items, rebatched=rebatched)


def _dense(info: ValueInfoProto) -> bool:
    return info.type.WhichOneof("value") == "tensor_type" and info.type.tensor_type.elem_type in DTYPES


def _why_not(info: ValueInfoProto) -> str:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return f"it is a {(kind or 'value of no type').removesuffix('_type')}"
    if info.type.tensor_type.elem_type not in DTYPES:
        return f"its elements are of type {type_name(info.type.tensor_type.elem_type)}"
    return "its rank is not declared"


def declared_dims(kind: TypeProto.Tensor) -> list[Dim] | None:
    """Declared dimensions: numbers, symbols, None where unset (or negative); None where the rank is unknown."""
    if not kind.HasField("shape"):
        return None
    return [_dim(dim) for dim in kind.shape.dim]


def _dim(dim: TypeProto) -> Dim:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return str(dim.dim_param) or None


def _declared(info: ValueInfoProto) -> list[Dim] | None:
    for dim in info.type.tensor_type.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value < -1:
            raise ModelError(codes.SIZE, f"input {info.name!r} has a negative dimension: {dim.dim_value}")
    return declared_dims(info.type.tensor_type)


def _check_bindings(shapes: Shapes, batch: int | None, dims: Mapping[str, int]) -> None:
    known = {dim for shape in shapes.values() for dim in shape or () if isinstance(dim, str)}
    places = {f"{name}:{axis}" for name, shape in shapes.items() for axis in range(len(shape or ()))}
    for name, size in [*dims.items(), *([] if batch is None else [("the batch", batch)])]:
        if size < 1:
            raise UsageError(codes.BINDING, f"dimension {name} cannot be bound to {size}; it must be 1 or more")
    for name in dims:
        if name not in known and name not in places:
            listed = ", ".join(sorted(known)) or "none"
            raise UsageError(
                codes.BINDING,
                f"the model has no dimension {name!r} to bind; its symbolic dimensions: {listed} "
                "(INPUT:AXIS=N binds any other)",
            )


def _batch_symbols(shapes: Shapes, batch: int | None, dims: Mapping[str, int]) -> dict[str, int]:
    """The symbols that the batch binds: those that are the first dimension of an input."""
    if batch is None:
        return {}
    symbols = {shape[0] for shape in shapes.values() if shape and isinstance(shape[0], str)}
    return {symbol: batch for symbol in sorted(symbols) if symbol not in dims}


def _fixed_batch(shapes: Shapes, batch: int | None) -> bool:
    """Whether the first dimensions are all fixed and equal, to something else than the batch asked for."""
    if batch is None:
        return False
    firsts = {shape[0] for shape in shapes.values() if shape}
    if firsts <= {batch} or any(not isinstance(first, int) for first in firsts):
        return False
    if len(firsts) > 1:
        listed = ", ".join(f"{name} {shape[0]}" for name, shape in shapes.items() if shape)
        raise UsageError(
            codes.BINDING,
            f"the batch cannot be set to {batch}: the inputs' first dimensions are fixed and differ ({listed})",
        )
    return True


def _bound(name: str, axis: int, dim: Dim, symbols: Mapping[str, int]) -> Dim:
    place = symbols.get(f"{name}:{axis}")
    if place is not None:
        return place
    return symbols.get(dim, dim) if isinstance(dim, str) else dim


def _settled(name: str, axis: int, dim: Dim) -> int:
    if isinstance(dim, int):
        return dim
    what = f"dimension {dim!r} (axis {axis})" if dim else f"axis {axis}"
    how = f"--dim '{dim}=N'" if dim else f"--dim '{name}:{axis}=N'"
    hint = f"{how} or --batch N" if axis == 0 else how
    raise ModelError(codes.UNBOUND, f"{what} of input {name!r} has no size; bind it with {hint}")


def _input(info: ValueInfoProto, shape: list[int]) -> Value:
    dtype = DTYPES[info.type.tensor_type.elem_type]  # type: ignore[index]
    spec: Spec = checked_spec(dtype, shape, f"input {info.name!r}")
    return Value(spec=spec, source=Source(name=info.name, kind=INPUT), name=info.name)
