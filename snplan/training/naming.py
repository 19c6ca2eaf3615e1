"""Names that are given once, and graphs under other names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from snplan.ir import Graph, Op, Tensor


class Namer:
    """Gives each name once: the wanted one, or that with the next free number."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)
        self.numbers: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """`base`, or `base.1`, `base.2`, ... where it is taken."""
        name, number = base, self.numbers.get(base, 0)
        while name in self.taken:
            number += 1
            name = f"{base}.{number}"
        self.numbers[base] = number
        self.taken.add(name)
        return name


def unused_prefix(names: Iterable[str]) -> str:
    """A prefix that no name has."""
    return "~" * (1 + max((len(name) - len(name.lstrip("~")) for name in names), default=0))


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """`graph` with every tensor called what `names` says, or as before."""

    def new(old: Iterable[str]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in old)

    def op(old: Op) -> Op:
        if any(name in names for name in old.inputs) or any(name in names for name in old.outputs):
            return Op(
                name=old.name,
                kind=old.kind,
                inputs=new(old.inputs),
                outputs=new(old.outputs),
                phase=old.phase,
                attrs=old.attrs,
                nodes=old.nodes,
                rng=old.rng,
            )
        return old

    tensors = {}
    for name, tensor in graph.tensors.items():
        other = names.get(name, name)
        tensors[other] = tensor if other == name else Tensor(name=other, spec=tensor.spec, role=tensor.role)
    return Graph(
        tensors=tensors,
        ops=tuple(op(old) for old in graph.ops),
        sources=new(graph.sources),
        outputs=new(graph.outputs),
    )
