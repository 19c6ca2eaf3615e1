"""The finished forward graph: names for tensors and ops, sources in order, random streams numbered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from snplan.frontend.context import LowerContext, Record
from snplan.frontend.values import CONSTANT, INITIALIZER, INPUT
from snplan.ir import Forward, Graph, Op, Role, Tensor


class Names:
    """Unique names, each as near to the wanted one as can be."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """`wanted`, or `wanted` with the first free number behind a dot."""
        name, number = wanted, self._next.get(wanted, 1)
        while name in self._taken:
            name, number = f"{wanted}.{number}", number + 1
        self._next[wanted] = number
        self._taken.add(name)
        return name


def build_forward(
    ctx: LowerContext,
    records: Sequence[Record],
    targets: Mapping[str, int],
    places: Mapping[str, int],
    warnings: Sequence[str],
) -> Forward:
    """The forward graph of `records`; `targets` are the results by name, `places` the order of sources by name."""
    records, updates = chained(records)
    used = dict.fromkeys([*(handle for record in records for handle in record.inputs), *targets.values()])
    sources = [handle for handle in used if handle in ctx.sources]
    sources.sort(key=lambda handle: places.get(ctx.sources[handle].name, len(places)))
    names = _tensor_names(ctx, records, sources, targets, updates)
    tensors = {
        name: Tensor(name=name, spec=ctx.specs[handle], role=_role(ctx, handle)) for handle, name in names.items()
    }
    graph = Graph(
        tensors=tensors,
        ops=_ops(records, names),
        sources=tuple(names[handle] for handle in sources),
        outputs=tuple(dict.fromkeys(names[handle] for handle in targets.values())),
    )
    by_kind = {kind: tuple(names[h] for h in sources if ctx.sources[h].kind == kind) for kind in _ROLES}
    return Forward(
        graph=graph,
        inputs=by_kind[INPUT],
        initializers=by_kind[INITIALIZER],
        state_updates={names[before]: names[after] for before, after in updates.items()},
        warnings=tuple(warnings),
    )


_ROLES = {INPUT: Role.INPUT, INITIALIZER: Role.CONSTANT, CONSTANT: Role.CONSTANT}


def _role(ctx: LowerContext, handle: int) -> Role:
    source = ctx.sources.get(handle)
    return Role.ACTIVATION if source is None else _ROLES[source.kind]


def chained(records: Sequence[Record]) -> tuple[list[Record], dict[int, int]]:
    """The ops with updates of one running statistic in a chain, and the last value of each statistic.

    A statistic has several updates where a module is called twice, or where an exporter merged equal initializers.
    """
    last: dict[int, int] = {}
    found: list[Record] = []
    for record in records:
        if record.kind == "batch_norm_update":
            running = record.inputs[:2]
            inputs = (*(last.get(handle, handle) for handle in running), *record.inputs[2:])
            record = replace(record, inputs=inputs)
            last.update(zip(running, record.outputs, strict=True))
        found.append(record)
    return found, last


def _tensor_names(
    ctx: LowerContext,
    records: Sequence[Record],
    sources: Sequence[int],
    targets: Mapping[str, int],
    updates: Mapping[int, int],
) -> dict[int, str]:
    """A name for every tensor: sources and results have theirs, then the names in the model go, then made-up ones."""
    names, unique = {}, Names()
    for handle in sources:
        names[handle] = unique.unique(ctx.sources[handle].name)
    for name, handle in targets.items():
        if handle not in names:
            names[handle] = unique.unique(name)
    for before, after in updates.items():
        names[after] = unique.unique(f"{names[before]}:next")
    written = [handle for record in records for handle in record.outputs if handle not in names]
    for handle in written:
        hint = ctx.hints[handle]
        if hint:
            names[handle] = unique.unique(hint)
    for record in records:
        for place, handle in enumerate(record.outputs):
            if handle not in names:
                names[handle] = unique.unique(f"{record.node or record.kind}:{record.kind}{place or ''}")
    ordered = [*sources, *(handle for record in records for handle in record.outputs)]
    return {handle: names[handle] for handle in ordered}


def _ops(records: Sequence[Record], names: Mapping[int, str]) -> tuple[Op, ...]:
    last = {record.node: index for index, record in enumerate(records) if record.kind not in _BESIDE}
    unique = Names()
    titles = {index: unique.unique(node) for node, index in last.items() if node}
    streams: dict[int, int] = {}
    ops: list[Op] = []
    for index, record in enumerate(records):
        if record.stream is not None:
            streams.setdefault(record.stream, len(streams))
        title = titles.get(index) or unique.unique(f"{record.node}/{record.kind}" if record.node else record.kind)
        ops.append(
            Op(
                name=title,
                kind=record.kind,
                inputs=tuple(names[handle] for handle in record.inputs),
                outputs=tuple(names[handle] for handle in record.outputs),
                phase=record.phase,
                attrs=record.attrs,
                nodes=(record.node,) if record.node else (),
                rng=None if record.stream is None else streams[record.stream],
            )
        )
    return tuple(ops)


_BESIDE = frozenset({"batch_norm_update", "dropout_mask", "constant"})
"""Kinds that never carry the name of their node alone."""
