"""From a loaded model to its forward graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from onnx import GraphProto, TensorProto

from snplan.errors import ModelError
from snplan.frontend import codes
from snplan.frontend.build import build_forward
from snplan.frontend.context import LowerContext
from snplan.frontend.dims import BoundInputs, bind_inputs, declared_dims
from snplan.frontend.infinite import infinite_constants
from snplan.frontend.load import LoadedModel
from snplan.frontend.lowering import LOWERINGS
from snplan.frontend.structure import ambiguous_names
from snplan.frontend.targets import check_lowered, choose_targets, needed_records
from snplan.frontend.tensors import Array
from snplan.frontend.tied import untied
from snplan.frontend.values import Item, Scope, Value
from snplan.frontend.walk import Walker, local_functions, opset_imports
from snplan.frontend.weights import peek, read_tensor
from snplan.ir import Forward, Spec

_NOTHING: Mapping[str, int] = {}


def import_model(
    loaded: LoadedModel,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] = _NOTHING,
    targets: Sequence[str] | None = None,
    train_batchnorm: bool = False,
    loss: str = "auto",
    mode: str = "train",
) -> Forward:
    """The forward graph of a model, pruned to the results that are wanted.

    `batch` and `dims` bind dimensions (see `bind_inputs`), `loss` and `mode` choose the results (see `choose_targets`)
    unless `targets` names them. `train_batchnorm` puts BatchNormalization and Dropout nodes in evaluation form into
    training form. Raises ModelError (SNP-I...) where the model is wrong or beyond what is supported, UsageError for
    bindings and names that do not fit it.
    """
    graph = loaded.proto.graph
    ctx = LowerContext(
        train=mode == "train", switch_to_training=train_batchnorm, ambiguous=ambiguous_names(loaded.proto)
    )
    walker = Walker(
        context=ctx,
        lowerings=LOWERINGS,
        stored=partial(_stored, loaded),
        functions=local_functions(loaded.proto),
    )
    ctx.subgraphs = walker
    scope = Scope(opsets=opset_imports(loaded.proto.opset_import))
    bound = _bound(graph, batch, dims)
    scope.items.update(bound.items)
    walker.graph(graph, scope)
    outputs = {info.name: _output(scope, info.name) for info in graph.output}
    wanted = targets if targets is not None else choose_targets(outputs, scope.items, loss=loss, mode=mode)
    handles = {name: _result(ctx, name, check_lowered(name, scope.find(name))) for name in wanted}
    handles = _named_results(ctx, handles)
    records = needed_records(ctx, [*handles.values()])
    warnings = [*_notes(ctx, walker, mode), *([] if bound.rebatched else _stale(graph, scope))]
    look = partial(peek, loaded, {tensor.name: tensor for tensor in graph.initializer})
    warnings += infinite_constants(ctx, records, look)
    if mode == "train":
        warnings += untied(ctx, records, look)
    return build_forward(ctx, records, handles, _places(graph), warnings)


def _stored(loaded: LoadedModel, tensor: TensorProto, spec: Spec) -> Array | None:
    """Values of a small tensor of the model."""
    return read_tensor(loaded, tensor)


def _bound(graph: GraphProto, batch: int | None, dims: Mapping[str, int]) -> BoundInputs:
    names: set[str] = set()
    for kind, found in (("graph input", graph.input), ("initializer", graph.initializer)):
        seen: set[str] = set()
        for entry in found:
            if entry.name in seen:
                raise ModelError(codes.DUPLICATE, f"two {kind}s are called {entry.name!r}")
            seen.add(entry.name)
        names = seen
    names |= {sparse.values.name for sparse in graph.sparse_initializer}
    return bind_inputs([info for info in graph.input if info.name not in names], batch, dims)


def _output(scope: Scope, name: str) -> Item:
    item = scope.find(name)
    if item is None:
        raise ModelError(codes.UNDEFINED, f"nothing writes the graph output {name!r}")
    return item


def _result(ctx: LowerContext, name: str, value: Value) -> int:
    """The tensor of a result; constants come into being here."""
    value.name = value.name or name
    return ctx.tensor(value)


def _named_results(ctx: LowerContext, handles: Mapping[str, int]) -> dict[str, int]:
    """Results by name, each a tensor of its own: a copy where it is a source or has another such name."""
    found: dict[str, int] = {}
    taken: set[int] = set()
    for name, handle in handles.items():
        if handle in taken or (handle in ctx.sources and ctx.sources[handle].name != name):
            copied = ctx.one("copy", [ctx.existing(handle)])
            handle = ctx.tensor(copied)
        taken.add(handle)
        found[name] = handle
    return found


def _notes(ctx: LowerContext, walker: Walker, mode: str) -> list[str]:
    notes = list(ctx.warnings)
    if walker.resorted:
        notes.append("nodes are not in topological order; they were sorted")
    if mode == "train" and ctx.eval_nodes and not ctx.switch_to_training:
        listed = " and ".join(f"{count} {op}" for op, count in sorted(ctx.eval_nodes.items()))
        notes.append(f"{listed} nodes are in evaluation mode, as the model says; --train-batchnorm switches them")
    return notes


def _stale(graph: GraphProto, scope: Scope) -> list[str]:
    """One warning where declared shapes contradict the computed ones, which count."""
    wrong: list[str] = []
    for info in [*graph.value_info, *graph.output]:
        item = scope.items.get(info.name)
        dims = declared_dims(info.type.tensor_type) if info.type.HasField("tensor_type") else None
        if dims is None or not isinstance(item, Value) or _agrees(dims, item.spec.shape):
            continue
        said = [dim if dim is not None else "?" for dim in dims]
        wrong.append(f"{info.name!r} says {said}, it is {list(item.spec.shape)}")
    if not wrong:
        return []
    return [f"the model declares wrong shapes for {len(wrong)} tensors; they were computed anew ({wrong[0]})"]


def _agrees(declared: Sequence[int | str | None], shape: Sequence[int]) -> bool:
    if len(declared) != len(shape):
        return False
    return all(not isinstance(dim, int) or dim == size for dim, size in zip(declared, shape, strict=True))


def _places(graph: GraphProto) -> dict[str, int]:
    """Where each source comes in the model: inputs, initializers (also those listed as inputs), tensors of nodes."""
    initializers = [tensor.name for tensor in graph.initializer]
    known = set(initializers)
    names = [info.name for info in graph.input if info.name not in known] + initializers
    names += [name for node in graph.node if node.op_type in ("Constant", "ConstantOfShape") for name in node.output]
    return {name: place for place, name in enumerate(names)}
