"""Views resolved: every op reads the tensor that holds the bytes, and says under which shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from snplan.ir import Attr, Graph, Op, Role
from snplan.ops import KINDS
from snplan.training.naming import Namer


def view_bases(graph: Graph) -> dict[str, str]:
    """The tensor that holds the bytes of each result of a view; tensors that hold their own are absent."""
    bases: dict[str, str] = {}
    for op in graph.ops:
        if KINDS[op.kind].view:
            source = op.inputs[0]
            bases[op.outputs[0]] = bases.get(source, source)
    return bases


def resolve_views(graph: Graph) -> Graph:
    """`graph` without views: readers name the base tensor and list the shapes they read in attribute `in_shapes`.

    Outputs that are views become their base tensors (`view_bases` maps other names), each listed once.
    """
    bases = view_bases(graph)
    if not bases:
        return graph
    return replace(
        graph,
        tensors={name: tensor for name, tensor in graph.tensors.items() if name not in bases},
        ops=tuple(_reading_bases(op, graph, bases) for op in graph.ops if not KINDS[op.kind].view),
        outputs=tuple(dict.fromkeys(bases.get(name, name) for name in graph.outputs)),
    )


def _reading_bases(op: Op, graph: Graph, bases: Mapping[str, str]) -> Op:
    if not any(name in bases for name in op.inputs):
        return op
    given = op.attrs.get("in_shapes")
    shapes: list[Attr] = given[:] if isinstance(given, list) else [None] * len(op.inputs)
    for index, name in enumerate(op.inputs):
        if name in bases and shapes[index] is None:
            shape = graph.tensors[name].shape
            shapes[index] = [*shape] if shape != graph.tensors[bases[name]].shape else None
    attrs = {key: value for key, value in op.attrs.items() if key != "in_shapes"}
    if any(shape is not None for shape in shapes):
        attrs["in_shapes"] = shapes
    return replace(op, inputs=tuple(bases.get(name, name) for name in op.inputs), attrs=attrs)


def with_own_outputs(graph: Graph) -> Graph:
    """`graph` with outputs that hold bytes of their own: what is a view or a source is copied.

    A copied view keeps its name; the copy of a source gets a new one.
    """
    sources, views = {*graph.sources}, view_bases(graph)
    own = _OwnOutputs(graph, names=Namer(graph.tensors), op_names=Namer(op.name for op in graph.ops))
    outputs = {name for name in graph.outputs if name in views}
    for op in graph.ops:
        if op.outputs[0] in outputs:
            own.copy_view(op)
        else:
            own.ops.append(op)
    results = tuple(own.copy_of(name) if name in sources else name for name in dict.fromkeys(graph.outputs))
    return replace(graph, tensors=own.tensors, ops=tuple(own.ops), outputs=results)


class _OwnOutputs:
    """Adds copies to a graph."""

    def __init__(self, graph: Graph, *, names: Namer, op_names: Namer) -> None:
        self.tensors = dict(graph.tensors)
        self.ops: list[Op] = []
        self.names = names
        self.op_names = op_names

    def copy_view(self, op: Op) -> None:
        """Add view `op` under a new name, and a copy under the old one."""
        (name,) = op.outputs
        view = self.names.fresh(f"{name}:view")
        self.tensors[view] = replace(self.tensors[name], name=view, role=Role.ACTIVATION)
        self.ops.append(replace(op, outputs=(view,)))
        self._copy(view, name, op.nodes)

    def copy_of(self, name: str) -> str:
        """The name of a new copy of tensor `name`."""
        copy = self.names.fresh(f"{name}:output")
        self.tensors[copy] = replace(self.tensors[name], name=copy, role=Role.ACTIVATION)
        self._copy(name, copy, ())
        return copy

    def _copy(self, source: str, target: str, nodes: tuple[str, ...]) -> None:
        op_name = self.op_names.fresh(f"{target}:copy")
        self.ops.append(Op(name=op_name, kind="copy", inputs=(source,), outputs=(target,), nodes=nodes))
