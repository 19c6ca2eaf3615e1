"""All graphs of a model, however deep, and the check that their names are text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from snplan.errors import ModelError
from snplan.frontend import codes
from snplan.frontend.order import subgraphs

STORING = ("Constant", "ConstantOfShape")
"""Operators whose results may be stored tensors."""


def bodies(model: ModelProto) -> Iterator[tuple[GraphProto | None, Sequence[NodeProto]]]:
    """The main graph, every subgraph, and the body of every function (which has no graph), with their nodes."""
    waiting: list[tuple[GraphProto | None, Sequence[NodeProto]]] = [(None, f.node) for f in model.functions]
    waiting.append((model.graph, model.graph.node))
    while waiting:
        graph, nodes = waiting.pop()
        yield graph, nodes
        waiting += [(inner, inner.node) for node in nodes if node.attribute for inner in subgraphs(node)]


def constant_tensor(node: NodeProto) -> TensorProto | None:
    """The tensor of a Constant node, or None."""
    if node.op_type != "Constant" or not node.output:
        return None
    return next((attribute.t for attribute in node.attribute if attribute.HasField("t")), None)


def stored_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every stored tensor of the model that can have external data: initializers and tensors of Constant nodes."""
    for graph, nodes in bodies(model):
        if graph is not None:
            yield from graph.initializer
        for node in nodes:
            tensor = constant_tensor(node)
            if tensor is not None:
                yield tensor


def ambiguous_names(model: ModelProto) -> frozenset[str]:
    """Names under which two graphs or functions of the model store tensors: weights are found by name alone."""
    seen: set[str] = set()
    twice: set[str] = set()
    for graph, nodes in bodies(model):
        names = {tensor.name for tensor in (graph.initializer if graph is not None else ())}
        names.update(
            node.output[0] for node in nodes if node.op_type in ("Constant", "ConstantOfShape") and node.output
        )
        twice |= seen & names
        seen |= names
    return frozenset(twice)


def check_names(model: ModelProto) -> None:
    """Raise ModelError (SNP-I001) where a name is no UTF-8 text: protobuf gives bytes then."""
    for graph, nodes in bodies(model):
        names: list[object] = []
        if graph is not None:
            names += [tensor.name for tensor in graph.initializer]
            names += [info.name for info in (*graph.input, *graph.output, *graph.value_info)]
        for node in nodes:
            names += (node.name, node.op_type, node.domain, *node.input, *node.output)
            names += [text for entry in node.attribute for text in (entry.name, entry.ref_attr_name)]
        _check(names)
    _check([f.name for f in model.functions] + [f.domain for f in model.functions])
    _check([name for f in model.functions for name in (*f.input, *f.output, *f.attribute)])
    _check([entry.domain for entry in model.opset_import])


def _check(names: Sequence[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise ModelError(codes.PARSE, f"this is not an ONNX model: the name {name!r} is not UTF-8 text")
