"""Lowers graphs node by node: constants fold, operators are lowered, functions and subgraphs are walked in place."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from snplan.errors import ModelError
from snplan.frontend import codes
from snplan.frontend.context import LowerContext
from snplan.frontend.expansion import COUNTED, Key, called, function_sizes, normal_domain, walked, weight
from snplan.frontend.folding import fold
from snplan.frontend.initializers import Stored, declare
from snplan.frontend.lowering.registry import Lowering
from snplan.frontend.node import NodeView
from snplan.frontend.order import node_name, ordered
from snplan.frontend.schema_functions import standard_function
from snplan.frontend.values import Item, Poison, Scope, Unsupported, Value

DEEPEST = 48
"""Function calls and subgraphs inside one another."""

MOST_WALKED = 1_000_000
"""Nodes that are walked for one model, repeated ones counted each time."""

MOST_UNROLLED = 100_000
"""Nodes that are walked inside the loops of one model."""

_BROKEN = (ValueError, IndexError, KeyError, TypeError, OverflowError, ZeroDivisionError, MemoryError)


def opset_imports(imports: Sequence[object]) -> dict[str, int]:
    """Imported version by domain; the highest where a domain is listed twice."""
    found: dict[str, int] = {}
    for entry in imports:
        domain, version = normal_domain(entry.domain), int(entry.version)  # type: ignore[attr-defined]
        found[domain] = max(version, found.get(domain, 0))
    return found


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Body:
    """A function as it is walked for each call: what does not depend on the call is worked out once.

    `undeclared` is a domain that a node uses without an opset import for it; `nodes` are in topological order.
    """

    name: str
    opsets: Mapping[str, int]
    undeclared: str | None
    inputs: Sequence[str]
    formal: frozenset[str]
    defaults: dict[str, object]
    nodes: Sequence[NodeProto]
    outputs: Sequence[str]


def function_body(function: FunctionProto) -> Body:
    """The body of a function; raises ModelError for nodes that are in no order, or write a name twice."""
    opsets = opset_imports(function.opset_import)
    order, _ = ordered(function.node, function.input)
    domains = (node.domain for node in function.node)
    return Body(
        name=f"{function.domain}::{function.name}",
        opsets=opsets,
        undeclared=next((domain or "ai.onnx" for domain in domains if normal_domain(domain) not in opsets), None),
        inputs=[*function.input],
        formal=frozenset(function.input),
        defaults={entry.name: entry for entry in function.attribute_proto},
        nodes=[function.node[index] for index in order],
        outputs=[*function.output],
    )


@dataclass(slots=True, eq=False, kw_only=True)
class Walker:
    """Walks the graphs of one model.

    `functions` are its local functions, `lowerings` the operators that are known, `stored` reads small stored tensors.
    """

    context: LowerContext
    lowerings: Mapping[str, Lowering]
    stored: Stored
    functions: Mapping[Key, FunctionProto] = field(default_factory=dict)
    resorted: int = 0
    walked: int = 0
    sizes: Mapping[Key, int] = field(init=False)
    bodies: dict[Key, Body | ModelError] = field(default_factory=dict)
    unrolled: int = 0  # nodes walked inside loops that have ended
    loop_start: int | None = None  # `walked` where the outermost loop began

    def __post_init__(self) -> None:
        self.sizes = function_sizes(self.functions)

    def graph(self, graph: GraphProto, scope: Scope, needed: set[int] | None = None) -> None:
        """Lower a graph's nodes (those in `needed`) into `scope`, which already holds its inputs.

        Raises ModelError (SNP-I004) where functions make them more than can be walked in fair time.
        """
        if self.functions:
            self._check_size(graph)
        declare(graph, scope, self.stored)
        order, moved = ordered(graph.node, [*scope.items])
        self.resorted += moved
        self.nodes([graph.node[index] for index in order], scope)

    def nodes(self, nodes: Sequence[NodeProto], scope: Scope) -> None:
        """Lower nodes, which are in topological order."""
        for index, proto in enumerate(nodes):
            self.node(proto, scope, index)

    def node(self, proto: NodeProto, scope: Scope, index: int) -> None:
        """Lower one node. Whatever is wrong with it becomes a Poison of its outputs.

        Raises ModelError (SNP-I004) where functions and loops expand to more nodes than can be walked in fair time.
        """
        self.walked += weight(proto)
        if self.walked > MOST_WALKED:
            raise ModelError(codes.TOO_MANY, f"functions and loops expand to more than {MOST_WALKED:,} nodes")
        items = [scope.find(name) if name else None for name in proto.input]
        while items and items[-1] is None and not proto.input[len(items) - 1]:
            items.pop()
        domain = normal_domain(proto.domain)
        view = NodeView(proto, scope, scope.label(node_name(proto, index)), items, scope.opsets.get(domain, 0))
        with self.context.at(view):
            try:
                self._lower(view)
            except Unsupported as error:
                self.context.poison(str(error))
            except ModelError as error:
                if error.code == codes.TOO_MANY:
                    raise
                self.context.poison("", error=error)
            except _BROKEN as error:
                self.context.poison("", error=view.error(f"its attributes or inputs do not fit: {error}"))
            self.context.poison("it has no such output")

    def subgraph(self, graph: GraphProto, scope: Scope, given: Sequence[Item], label: str) -> list[Item]:
        """What the outputs of a subgraph stand for when its inputs stand for `given`; `label` leads names inside."""
        inner = Scope(
            opsets=scope.opsets,
            parent=scope,
            prefix=f"{label}/",
            attributes=scope.attributes,
            calls=scope.calls,
            depth=self._deeper(scope),
        )
        for info, item in zip(graph.input, given, strict=False):
            inner.items[info.name] = item
        self.graph(graph, inner)
        return [self._result(inner, info.name, label) for info in graph.output]

    @contextmanager
    def loop(self, label: str, trips: int | None) -> Iterator[Callable[[int], None]]:
        """Around a loop; what it gives is to be called after each trip, with how many there were.

        Raises ModelError (SNP-I004) then where loops are unrolled to too many nodes, or will be, as `trips` (None: not
        known) says: each trip counts as the ones before it.
        """
        start, outermost = self.walked, self.loop_start is None
        if self.loop_start is None:
            self.loop_start = start

        def check(done: int) -> None:
            inside = self.walked - start
            ahead = inside * max(trips or 0, done) // done
            before = self.unrolled + start - (start if self.loop_start is None else self.loop_start)
            if before + ahead > MOST_UNROLLED:
                raise ModelError(codes.TOO_MANY, _unrolled_text(label, before + ahead, done, trips))

        try:
            yield check
        finally:
            if outermost:
                self.unrolled, self.loop_start = self.unrolled + self.walked - start, None

    # -- details --------------------------------------------------------------------------------------------------

    def _lower(self, view: NodeView) -> None:
        missing = [name for name, item in zip(view.proto.input, view.items, strict=False) if name and item is None]
        if missing:
            raise view.error(f"it reads {missing[0]!r}, which nothing writes", codes.UNDEFINED)
        poisons = [item for item in view.items if isinstance(item, Poison)]
        if poisons:
            self.context.poison("", parents=poisons)
            return
        folded = fold(view)
        if folded is not None and not _trained(view):
            self.context.bind_all(folded)
            return
        self._operator(view)
        for name, value in zip(view.proto.output, folded or (), strict=False):
            self._attach(view, name, value)

    def _check_size(self, graph: GraphProto) -> None:
        count = self.walked + walked(graph.node, self.sizes)
        if count > MOST_WALKED:
            number = f"{count:,}" if count < COUNTED else f"more than {COUNTED:,}"
            raise ModelError(
                codes.TOO_MANY,
                f"functions and loops expand to {number} nodes; a model may have at most {MOST_WALKED:,}",
            )

    def _attach(self, view: NodeView, name: str, folded: Value) -> None:
        """Remember values that derive from a parameter beside the tensor: shapes and attributes may need them."""
        bound = view.scope.items.get(name)
        if isinstance(bound, Value) and bound.content is None and bound.spec == folded.spec:
            view.scope.items[name] = Value(
                spec=bound.spec, handle=bound.handle, content=folded.content, trained=True, name=bound.name
            )

    def _operator(self, view: NodeView) -> None:
        key = called(view.proto)
        if key in self.functions:
            self._call(view, self.functions[key], key)
            return
        if view.domain not in view.scope.opsets:
            raise view.error(f"its opset domain {view.domain or 'ai.onnx'!r} is not imported", codes.FUNCTION)
        lowering = self.lowerings.get(view.kind)
        if lowering is not None:
            lowering(self.context, view)
            return
        function = standard_function(view)
        if function is None:
            raise Unsupported("")
        self._call(view, function, key)

    def _call(self, view: NodeView, function: FunctionProto, key: Key) -> None:
        """Lower the body of a function in place of its call."""
        if key in view.scope.calls:
            raise view.error(f"function {function.domain}::{function.name} calls itself", codes.FUNCTION)
        body = self._body(function, key)
        if body.undeclared is not None:
            raise view.error(
                f"function {body.name} uses domain {body.undeclared!r} without an opset import for it", codes.FUNCTION
            )
        inner = Scope(
            opsets=body.opsets,
            prefix=f"{view.label}/",
            attributes=ChainMap[str, object]({**view.attributes}, body.defaults),
            calls=(*view.scope.calls, key),
            depth=self._deeper(view.scope),
        )
        for name, item in zip(body.inputs, view.items, strict=False):
            if item is not None:
                inner.items[name] = item
        given = set(inner.items)
        for index, proto in enumerate(body.nodes):
            self.node(_without_absent(proto, body.formal, given), inner, index)
        wanted = zip(body.outputs, view.proto.output, strict=False)
        self.context.bind_all([self._result(inner, name, view.label) for name, _ in wanted])

    def _body(self, function: FunctionProto, key: Key) -> Body:
        """The body of a function; those of the model's own are kept, and so is what is wrong with one."""
        if key not in self.functions:
            return function_body(function)
        if key not in self.bodies:
            try:
                self.bodies[key] = function_body(function)
            except ModelError as error:
                self.bodies[key] = error
        body = self.bodies[key]
        if isinstance(body, ModelError):
            raise body
        return body

    def _result(self, scope: Scope, name: str, label: str) -> Item:
        item = scope.find(name)
        if item is None:
            return Poison(
                node=label,
                op="graph",
                error=ModelError(codes.UNDEFINED, f"{label}: nothing writes its output {name!r}"),
            )
        return item

    def _deeper(self, scope: Scope) -> int:
        if scope.depth >= DEEPEST:
            raise ModelError(codes.TOO_MANY, f"functions and subgraphs are more than {DEEPEST} deep inside one another")
        return scope.depth + 1


def _unrolled_text(label: str, count: int, done: int, trips: int | None) -> str:
    times = f"{trips:,} trips" if trips is not None else f"its first {done:,} trips"
    return (
        f"node {label!r}: with {times} of this loop, loops are unrolled to {count:,} nodes; "
        f"a model may have at most {MOST_UNROLLED:,} of them. Export it with fewer trips"
    )


def _without_absent(proto: NodeProto, formal: Collection[str], given: Collection[str]) -> NodeProto:
    """A function's node; formal inputs that the call leaves out read as left out."""
    if all(name not in formal or name in given for name in proto.input):
        return proto
    kept = NodeProto()
    kept.CopyFrom(proto)
    kept.input[:] = ["" if name in formal and name not in given else name for name in proto.input]
    return kept


def _trained(view: NodeView) -> bool:
    """Whether the node's results change as training goes on; shapes do not."""
    return view.op not in ("Shape", "Size") and any(isinstance(item, Value) and item.trained for item in view.items)


def local_functions(model: ModelProto) -> dict[Key, FunctionProto]:
    """The model's functions by domain, name and overload."""
    return {(normal_domain(f.domain), f.name, getattr(f, "overload", "")): f for f in model.functions}
